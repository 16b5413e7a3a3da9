# SPDX-License-Identifier: Apache-2.0
"""Rows of those options of `run` that say what surrounds a container: docker's own, in docker's forms."""

from __future__ import annotations

from vmtailor.model import run_values
from vmtailor.model.option import Option, OptionSubject

_CONTAINERS = frozenset({OptionSubject.CONTAINER})

READ_ONLY = Option(
    name="--read-only", type=bool, subjects=_CONTAINERS,
    help="Mount the container's root read-only; volumes, --tmpfs and /dev stay writable.",
)  # fmt: skip
TMPFS = Option(
    name="--tmpfs", many=True, read=run_values.tmpfs, subjects=_CONTAINERS,
    help="Mount a memory file system: PATH or PATH:OPTIONS, such as /run:size=64m,mode=1777. Repeat it for more.",
)  # fmt: skip
SHM_SIZE = Option(
    name="--shm-size", read=run_values.shm_size, subjects=_CONTAINERS,
    help="Let /dev/shm hold this much, such as 64m. Default: half of the machine's memory.",
)  # fmt: skip
ADD_HOST = Option(
    name="--add-host", many=True, read=run_values.hosts, subjects=_CONTAINERS,
    help="Add NAME:ADDRESS to /etc/hosts; host-gateway is the address of this host. Repeat it for more.",
)  # fmt: skip
DNS = Option(
    name="--dns", many=True, read=run_values.name_servers, subjects=_CONTAINERS,
    help="Ask this name server, by its address, instead of this host's. Repeat it for more.",
)  # fmt: skip
DNS_SEARCH = Option(
    name="--dns-search", many=True, read=run_values.search_domains, subjects=_CONTAINERS,
    help="Search names in this domain, too. Repeat it for more.",
)  # fmt: skip
DNS_OPTION = Option(
    name="--dns-option", short="--dns-opt", many=True, read=run_values.resolver_options, subjects=_CONTAINERS,
    help="Set an option of the resolver, such as ndots:2. Repeat it for more.",
)  # fmt: skip
CAP_ADD = Option(
    name="--cap-add", many=True, read=run_values.capabilities, subjects=_CONTAINERS,
    help="Give root in the container a capability, such as NET_ADMIN or ALL. Repeat it for more.",
)  # fmt: skip
CAP_DROP = Option(
    name="--cap-drop", many=True, read=run_values.capabilities, subjects=_CONTAINERS,
    help="Take a capability from root in the container, such as NET_RAW or ALL. Repeat it for more.",
)  # fmt: skip
GROUP_ADD = Option(
    name="--group-add", many=True, read=run_values.groups, subjects=_CONTAINERS,
    help="Add the user to a group, by name or number. Repeat it for more.",
)  # fmt: skip
ULIMIT = Option(
    name="--ulimit", many=True, read=run_values.limits, subjects=_CONTAINERS,
    help="Limit a resource: NAME=SOFT or NAME=SOFT:HARD, such as nofile=1024:2048; -1 is none. Repeat it for more.",
)  # fmt: skip
SYSCTL = Option(
    name="--sysctl", many=True, read=run_values.sysctls, subjects=_CONTAINERS,
    help="Set NAME=VALUE of the guest's kernel, below /proc/sys. Repeat it for more.",
)  # fmt: skip
OOM_SCORE_ADJ = Option(
    name="--oom-score-adj", type=int, metavar="SCORE", least=-1000, most=1000, subjects=_CONTAINERS,
    help="Set how early the kernel ends these processes when memory runs out.",
)  # fmt: skip
DOMAINNAME = Option(
    name="--domainname", read=run_values.domain_name, subjects=_CONTAINERS, help="Give the guest this domain name."
)
SECURITY_OPT = Option(
    name="--security-opt", many=True, read=run_values.no_new_privileges,
    subjects=_CONTAINERS, suggests=("no-new-privileges",),
    help="Take no-new-privileges: programs get no rights by setuid or file capabilities. Repeat it for more.",
)  # fmt: skip
PUBLISH_ALL = Option(
    name="--publish-all", short="-P", type=bool, subjects=_CONTAINERS,
    help="Open a free host port for each port that the image or --expose names.",
)  # fmt: skip
EXPOSE = Option(
    name="--expose", many=True, read=run_values.exposed, subjects=_CONTAINERS,
    help="Name a port, or a range of ports, for --publish-all. Repeat it for more.",
)  # fmt: skip
NETWORK = Option(
    name="--network", short="--net", suggests=("user", "none", "tap:"), read=run_values.network, subjects=_CONTAINERS,
    help="Choose the network: user, none, or tap:NAME for a TAP device of this host. Default: user.",
)  # fmt: skip
MAC_ADDRESS = Option(
    name="--mac-address",
    read=run_values.mac_address,
    help="Give the network device this address, such as 02:42:ac:11:00:02.",
)
IP = Option(
    name="--ip", read=run_values.ip_address, subjects=_CONTAINERS,
    help="Give the guest this IPv4 address on a TAP device: ADDRESS or ADDRESS/PREFIX.",
)  # fmt: skip
IP6 = Option(
    name="--ip6", read=run_values.ip6_address, subjects=_CONTAINERS,
    help="Give the guest this IPv6 address, too: ADDRESS or ADDRESS/PREFIX. The kernel needs IPV6.",
)  # fmt: skip
CPUSET_CPUS = Option(
    name="--cpuset-cpus",
    read=run_values.host_cpus,
    help="Run the machine on these CPUs of this host, such as 0-3 or 0,2.",
)
