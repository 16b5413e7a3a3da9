# SPDX-License-Identifier: Apache-2.0
"""Values of `docker run`'s options for a container's surroundings, in docker's forms: each function returns the value,
or raises UserInputError with a hint."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import is_number, plain
from vmtailor.model.boots.surroundings import Limit, Tmpfs
from vmtailor.model.image import Port

#: Stands in --add-host for the address by which the guest reaches its host.
HOST_GATEWAY = "host-gateway"
ALL = "ALL"
#: Capabilities by number.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
#: Those that engines leave the container's root.
USUAL_CAPABILITIES = frozenset(
    {
        "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE",
        "NET_RAW", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP",
    }
)  # fmt: skip
#: Resources of setrlimit(2) by number, as docker names them.
RESOURCES: Mapping[str, int] = MappingProxyType(
    {
        "cpu": 0, "fsize": 1, "data": 2, "stack": 3, "core": 4, "rss": 5, "nproc": 6, "nofile": 7, "memlock": 8,
        "locks": 10, "sigpending": 11, "msgqueue": 12, "nice": 13, "rtprio": 14, "rttime": 15,
    }
)  # fmt: skip
_MOST_LIMIT = 2**63 - 1
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _SYNC, _DIRSYNC, _MANDLOCK = 1, 2, 4, 8, 16, 128, 64
_NOATIME, _NODIRATIME, _RELATIME, _STRICTATIME = 1 << 10, 1 << 11, 1 << 21, 1 << 24
#: Words of mount(8) for a tmpfs: the flags that each sets, and clears.
_FLAGS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "defaults": (0, 0),
        "ro": (_RDONLY, 0), "rw": (0, _RDONLY), "nosuid": (_NOSUID, 0), "suid": (0, _NOSUID),
        "nodev": (_NODEV, 0), "dev": (0, _NODEV), "noexec": (_NOEXEC, 0), "exec": (0, _NOEXEC),
        "sync": (_SYNC, 0), "async": (0, _SYNC), "dirsync": (_DIRSYNC, 0),
        "mand": (_MANDLOCK, 0), "nomand": (0, _MANDLOCK),
        "noatime": (_NOATIME, 0), "atime": (0, _NOATIME), "nodiratime": (_NODIRATIME, 0),
        "diratime": (0, _NODIRATIME), "relatime": (_RELATIME, 0), "norelatime": (0, _RELATIME),
        "strictatime": (_STRICTATIME, 0), "nostrictatime": (0, _STRICTATIME),
    }
)  # fmt: skip
#: Words of a tmpfs with a value.
_OWN = {
    "size": re.compile(r"[0-9]{1,15}[kKmMgGtT%]?"), "nr_blocks": re.compile(r"[0-9]{1,15}[kKmMgG]?"),
    "nr_inodes": re.compile(r"[0-9]{1,15}[kKmMgG]?"), "mode": re.compile(r"[0-7]{1,4}"),
    "uid": re.compile(r"[0-9]{1,10}"), "gid": re.compile(r"[0-9]{1,10}"),
}  # fmt: skip
#: Folders that must stay what init makes of them.
_STAYING = ("/proc", "/sys", "/.vmtailor")
_DOMAIN_PART = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = re.compile(rf"{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*\.?")
_EXPOSED = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?", re.ASCII)
_MAC = re.compile(r"[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2}){4}", re.ASCII)
#: As the kernel names network devices.
_INTERFACE = re.compile(r"[!-~]{1,15}", re.ASCII)


def _shown(text: str) -> str:
    return plain(text[:60])


def shm_size(text: str) -> int | None:
    """Return the bytes of `64m`, `1.5g`, `67108864`; None for 0, which is the default. Raises UserInputError."""
    size = notation.parse_docker_size(text)
    if size is None or size > 1 << 44:
        raise UserInputError(
            f"'{_shown(text)}' is not a size of /dev/shm", hint="write it as 64m, 1g or a number of bytes"
        )
    return size or None


def tmpfs(texts: Iterable[str]) -> tuple[Tmpfs, ...]:
    """Return the memory file systems of PATH[:OPTIONS], those above others first. The last one of a path counts. Raises
    UserInputError."""
    found = {one.path: one for one in map(_tmpfs, texts)}
    return tuple(sorted(found.values(), key=lambda one: (one.path.count("/"), one.path)))


def _tmpfs(text: str) -> Tmpfs:
    path, _, words = text.partition(":")
    if not path.startswith("/"):
        raise UserInputError(
            f"--tmpfs takes an absolute path, not '{_shown(path)}'", hint="for example --tmpfs /run:size=64m"
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or len(path) > 4000 or any(ord(c) < 32 for c in path):
        raise UserInputError(
            f"'{_shown(path)}' is not a path for --tmpfs", hint="write it without .. and control characters"
        )
    path = "/" + "/".join(parts)
    if path in ("/", "/dev") or any(path == stays or path.startswith(f"{stays}/") for stays in _STAYING):
        raise UserInputError(f"--tmpfs cannot cover {path}", hint="name a folder of the container's own")
    flags, own = _NOSUID | _NODEV | _NOEXEC, dict[str, str]()
    for word in filter(None, words.split(",")):
        name, equals, value = word.partition("=")
        if not equals and name in _FLAGS:
            sets, clears = _FLAGS[name]
            flags = (flags | sets) & ~clears
        elif equals and name in _OWN and _OWN[name].fullmatch(value):
            own[name] = value
        else:
            raise UserInputError(
                f"--tmpfs {_shown(path)} cannot have the option '{_shown(word)}'",
                hint="for example size=64m, mode=1777, uid=1000, gid=1000, nr_inodes=1k, exec, suid, dev, ro",
            )
    return Tmpfs(path, flags, ",".join(f"{name}={value}" for name, value in own.items()))


def hosts(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return names and addresses of NAME:ADDRESS, NAME=ADDRESS; the address may be HOST_GATEWAY. Raises
    UserInputError."""
    return tuple(map(_host, texts))


def _host(text: str) -> tuple[str, str]:
    name, found, address = text.partition("=")
    if not found:
        name, found, address = text.partition(":")
    if not name or not found or any(c.isspace() or not c.isprintable() for c in name):
        raise UserInputError(f"'{_shown(text)}' names no host", hint="write it as --add-host NAME:ADDRESS")
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    return name, address if address == HOST_GATEWAY else _address(address, "--add-host")


def name_servers(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of name servers. Raises UserInputError."""
    return tuple(_address(text.strip(), "--dns") for text in texts)


def _address(text: str, option: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        hint = "write it as 192.0.2.1 or 2001:db8::1" + (f", or {HOST_GATEWAY}" if option == "--add-host" else "")
        raise UserInputError(f"{option} takes an address, not '{_shown(text)}'", hint=hint) from None


def search_domains(texts: Iterable[str]) -> tuple[str, ...]:
    """Return domains to search in; `.` stands for none. Raises UserInputError."""
    return tuple(map(_search_domain, texts))


def _search_domain(text: str) -> str:
    text = text.strip()
    if text != "." and (not _DOMAIN.fullmatch(text) or not re.search("[a-zA-Z]", text) or len(text) > 254):
        raise UserInputError(
            f"'{_shown(text)}' is not a domain to search in", hint="for example --dns-search example.com"
        )
    return text


def resolver_options(texts: Iterable[str]) -> tuple[str, ...]:
    """Return options of the resolver. Raises UserInputError."""
    found = tuple(texts)
    for text in found:
        if not text or any(c.isspace() or not c.isprintable() for c in text):
            raise UserInputError(
                f"'{_shown(text)}' is not an option of the resolver", hint="for example --dns-option ndots:2"
            )
    return found


def working_folder(text: str) -> str:
    """Return a working directory. Raises UserInputError."""
    if not text.startswith("/"):
        raise UserInputError(f"'{_shown(text)}' is not an absolute path", hint="give it from the root: -w /srv")
    return text


def domain_name(text: str) -> str:
    """Return a domain name. Raises UserInputError."""
    if not 0 < len(text.encode()) <= 64 or any(c.isspace() or not c.isprintable() for c in text):
        raise UserInputError(f"'{_shown(text)}' is not a domain name", hint="at most 64 bytes, without blanks")
    return text


def capabilities(texts: Iterable[str]) -> tuple[str, ...]:
    """Return names of capabilities, without CAP_ and in capitals, or ALL. Raises UserInputError."""
    return tuple(map(_capability, texts))


def _capability(text: str) -> str:
    name = text.strip().upper().removeprefix("CAP_")
    if name != ALL and name not in CAPABILITIES:
        raise UserInputError(
            f"'{_shown(text)}' is not a capability", hint="for example NET_ADMIN, CAP_NET_ADMIN or ALL"
        )
    return name


def rights(add: Iterable[str], drop: Iterable[str]) -> int:
    """Return the capabilities that are left, a bit each, as engines work it out: with ALL to add, those to drop are
    missing; with ALL to drop, those to add are left; otherwise the usual ones lose some, and then gain some."""
    adds, drops = frozenset(add), frozenset(drop)
    if ALL in adds:
        names = frozenset(CAPABILITIES) - drops
    elif ALL in drops:
        names = adds
    else:
        names = (USUAL_CAPABILITIES - drops) | adds
    return sum(1 << number for number, name in enumerate(CAPABILITIES) if name in names)


def groups(texts: Iterable[str]) -> tuple[str, ...]:
    """Return groups, names or numbers. Raises UserInputError."""
    found = tuple(texts)
    for text in found:
        number = int(text) if is_number(text) and len(text) < 20 else 0
        if not text or len(text) > 64 or any(c in ":\n\0" for c in text) or number >= 2**32 - 1:
            raise UserInputError(f"'{_shown(text)}' is not a group", hint="give its name or number: --group-add audio")
    return found


def limits(texts: Iterable[str]) -> tuple[Limit, ...]:
    """Return the limits of NAME=SOFT[:HARD]; the last one of a name counts. Raises UserInputError."""
    return tuple({one.resource: one for one in map(_limit, texts)}.values())


def _limit(text: str) -> Limit:
    name, _, values = text.partition("=")
    if name not in RESOURCES:
        raise UserInputError(
            f"'{_shown(text)}' is not a known limit", hint=f"NAME=SOFT[:HARD], of {', '.join(RESOURCES)}"
        )
    match = re.fullmatch(r"(-1|[0-9]{1,19})(?::(-1|[0-9]{1,19}))?", values, re.ASCII)
    if match is None or any(int(value) > _MOST_LIMIT for value in match.groups("0")):
        raise UserInputError(
            f"'{_shown(text)}' is not a limit", hint=f"write it as {name}=1024 or {name}=1024:2048; -1 is none"
        )
    soft, hard = int(match[1]), int(match[2] or match[1])
    if hard != -1 and (soft == -1 or soft > hard):
        raise UserInputError(
            f"the soft limit in '{_shown(text)}' is above the hard one", hint="write it as NAME=SOFT:HARD"
        )
    return Limit(RESOURCES[name], soft, hard)


def sysctls(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return paths below /proc/sys with values, of NAME=VALUE; the last one of a name counts. Raises
    UserInputError."""
    return tuple(dict(map(_sysctl, texts)).items())


def _sysctl(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    separator = re.search(r"[./]", name)
    # As sysctl(8): whichever stands first separates; the other one is part of a name.
    path = name if separator is None or separator[0] == "/" else name.translate({ord("."): "/", ord("/"): "."})
    parts = path.split("/")
    if (
        not equals or not value or len(path) > 200 or not re.fullmatch(r"[!-~]+", path)
        or any(part in ("", ".", "..") for part in parts) or any(ord(c) < 32 and c != "\t" for c in value)
    ):  # fmt: skip
        raise UserInputError(
            f"'{_shown(text)}' is not a setting of the kernel", hint="for example --sysctl net.core.somaxconn=1024"
        )
    return path, value


#: Values of --security-opt that ask for what holds anyway: there is no filter of system calls, no profile, no label.
_HOLDING = re.compile(r"(?:seccomp|apparmor)[=:]unconfined|label[=:]disable")
_NO_NEW_PRIVILEGES = re.compile(r"no-new-privileges(?:[=:](true|false))?")


def no_new_privileges(texts: Iterable[str]) -> bool:
    """Return whether --security-opt asks that executed programs get no rights by their files. Raises UserInputError for
    what it cannot have."""
    wanted = False
    for text in texts:
        match = _NO_NEW_PRIVILEGES.fullmatch(text)
        if match is None and not _HOLDING.fullmatch(text):
            raise UserInputError(
                f"--security-opt does not take '{_shown(text)}': the machine is the boundary, and has no profiles",
                hint="no-new-privileges; seccomp=unconfined, apparmor=unconfined and label=disable hold anyway",
            )
        wanted = wanted if match is None else match[1] != "false"
    return wanted


def exposed(texts: Iterable[str]) -> tuple[Port, ...]:
    """Return the ports of PORT[-PORT][/PROTOCOL]. Raises UserInputError."""
    found = []
    for text in texts:
        match = _EXPOSED.fullmatch(text)
        low, high = (int(match[1]), int(match[2] or match[1])) if match is not None else (0, 0)
        if match is None or not 0 < low <= high < 65536:
            raise UserInputError(
                f"'{_shown(text)}' is not a port to expose", hint="for example --expose 80 or --expose 8000-8002/udp"
            )
        found += [Port(number, match[3] or "tcp") for number in range(low, high + 1)]
    return tuple(found)


def mac_address(text: str) -> str:
    """Return an Ethernet address of one device, in lower case with colons. Raises UserInputError."""
    found = text.lower().replace("-", ":")
    if not _MAC.fullmatch(text) or int(found[:2], 16) & 1 or found == "00:00:00:00:00:00":
        raise UserInputError(
            f"'{_shown(text)}' is not the MAC address of a device",
            hint="six pairs of digits, the first even: 02:42:ac:11:00:02",
        )
    return found


#: The network behind QEMU: of its own, with ports that are published. Docker's names of its default network stand for
#: it, too.
USER_NETWORK, NO_NETWORK, TAP = "user", "none", "tap:"


def network(text: str) -> str:
    """Return `user`, `none` or `tap:NAME`. Raises UserInputError for the networks of engines."""
    if text in (USER_NETWORK, "bridge", "default"):
        return USER_NETWORK
    if text == NO_NETWORK:
        return text
    if text.startswith(TAP):
        name = text.removeprefix(TAP)
        if not _INTERFACE.fullmatch(name) or "/" in name or ":" in name or "%" in name or name in (".", ".."):
            raise UserInputError(
                f"'{_shown(name)}' is not the name of a TAP device", hint="for example --network tap:tap0"
            )
        return text
    if text == "host":
        raise UserInputError(
            "--network host is not possible: the machine has a network of its own",
            hint="-p publishes a port, --host-loopback leads to servers on 127.0.0.1 of this host",
        )
    raise UserInputError(
        f"--network does not take '{_shown(text)}': machines share no networks",
        hint="user (the default), none, or tap:NAME for a TAP device of this host",
    )


def host_cpus(text: str) -> frozenset[int]:
    """Return the numbers of CPUs of this host, of `0-3,5`. Raises UserInputError."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part, re.ASCII)
        low, high = (int(match[1]), int(match[2] or match[1])) if match is not None else (1, 0)
        if low > high:
            raise UserInputError(f"'{_shown(text)}' is not a list of CPUs", hint="for example --cpuset-cpus 0-3 or 0,2")
        found |= set(range(low, high + 1))
    return frozenset(found)


def ip6_address(text: str) -> str:
    """Return the IPv6 address of the guest, `ADDRESS` or `ADDRESS/PREFIX`. Raises UserInputError."""
    hint = "for example --ip6 fd00:1::5, or fd00:1::5/64"
    try:
        found = ipaddress.IPv6Interface(text)
    except ValueError:
        raise UserInputError(f"'{_shown(text)}' is not an IPv6 address", hint=hint) from None
    one = found.ip
    special = one.is_multicast or one.is_loopback or one.is_unspecified or one.is_link_local or one.ipv4_mapped
    if special or one.scope_id or not found.network.prefixlen:
        raise UserInputError(f"'{_shown(text)}' is not the IPv6 address of one machine in its network", hint=hint)
    return str(found) if "/" in text else str(one)


def ip_address(text: str) -> str:
    """Return the IPv4 address of the guest, `ADDRESS` or `ADDRESS/PREFIX`. Raises UserInputError."""
    try:
        found = ipaddress.IPv4Interface(text)
    except ValueError:
        raise UserInputError(f"'{_shown(text)}' is not an IPv4 address", hint="for example --ip 192.0.2.7") from None
    return str(found) if "/" in text else str(found.ip)
