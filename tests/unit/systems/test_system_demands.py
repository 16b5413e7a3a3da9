# SPDX-License-Identifier: Apache-2.0
"""From calls of a whole system to symbols, by a source made up of a few names."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.systems.test_loads import INDEX
from tests.unit.systems.test_system_log import EXCERPT, calls, read

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.analysis.explain.name_index import AskedNames
from vmtailor.analysis.ksource.facts import Facts, Place
from vmtailor.analysis.systems import harmless_opens
from vmtailor.analysis.systems.demands import SystemDemands
from vmtailor.analysis.systems.seen import Seen
from vmtailor.base.errors import UserInputError
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.watched.system_trace import LoadedFor, ModuleLoad

FACTS = Facts(
    "6.12.1",
    {},
    {
        "filesystem": {
            "bpf": (Place("kernel/bpf/inode.c", 1, "BPF_SYSCALL"),),
            "mqueue": (Place("ipc/m.c", 1, "POSIX_MQUEUE"),),
        }
    },
    {},
)  # fmt: skip
NAMES = AskedNames(
    "6.12.1",
    {
        "link": {"bridge": (Place("net/bridge/br_netlink.c", 5, "BRIDGE"),)},
        "controller": {"memory": (Place("include/linux/cgroup_subsys.h", 9, "MEMCG"),)},
        "expression": {
            "meta": (
                Place("net/bridge/nft_meta_bridge.c", 1, "NFT_BRIDGE_META"),
                Place("net/netfilter/nft_meta.c", 2, "NF_TABLES"),
            )
        },
        "match": {"addrtype": (Place("net/netfilter/xt_addrtype.c", 3, "XT_ADDR"),)},
        "word": {"BPF_PROG_TYPE_CGROUP_SKB": (Place("include/linux/bpf_types.h", 4, "CGROUP_BPF"),)},
    },
    {},
)  # fmt: skip
BASELINE = {
    "BRIDGE": "m", "MEMCG": "y", "CGROUP_BPF": "y", "NF_TABLES": "m", "NFT_BRIDGE_META": "m", "BPF_SYSCALL": "y",
    "POSIX_MQUEUE": "y", "NFT_COMPAT": "m", "CFS_BANDWIDTH": "y", "CGROUPS": "y", "PSI": "y", "CGROUP_SCHED": "y",
    "FAIR_GROUP_SCHED": "y", "XT_ADDR": "m", "VT": "y", "DEBUG_FS": "y", "BR_NF": "m",
}  # fmt: skip


@pytest.fixture
def system() -> SystemDemands:
    rules = demand_rules.load()
    demands = Demands(FACTS, rules, BASELINE, who="the system")
    return SystemDemands(demands, KnownSource(FACTS, NAMES, rules), BASELINE)


def symbols(system: SystemDemands) -> dict[str, str]:
    return {name: one.text for one in system.demands.result() for name in one.symbols}


def call(name: str, *args: str, pid: int = 7, error: str = "") -> SyscallEvent:
    return SyscallEvent(1, pid, "engine", name, args, 3, error, 0.0)


def opened(path: str, how: str = "O_RDONLY|O_CLOEXEC") -> SyscallEvent:
    return call("openat", "AT_FDCWD</>", f'"{path}"', how)


def test_a_recorded_system_demands_what_it_used(system: SystemDemands) -> None:
    _, found = read(EXCERPT.read_bytes())
    for event in calls(found):
        system.event(event)
    kept = symbols(system)
    assert kept["BRIDGE"] == "dockerd makes a network link of kind bridge"
    assert set(kept) >= {"MEMCG", "CGROUP_BPF", "XT_ADDR", "NFT_COMPAT", "NF_TABLES"}
    assert "NFT_BRIDGE_META" not in kept


def test_a_file_system_that_nobody_looks_into_demands_nothing(system: SystemDemands) -> None:
    system.event(opened("/sys/fs/bpf", "O_RDONLY|O_NOFOLLOW|O_CLOEXEC|O_PATH"))
    system.event(call("mount", '"bpf"', '"/proc/self/fd/4"', '"bpf"', "0", "NULL"))
    assert "BPF_SYSCALL" not in symbols(system)
    system.event(opened("/sys/fs/bpf", "O_RDONLY|O_DIRECTORY"))
    assert "BPF_SYSCALL" not in symbols(system)
    system.event(opened("/sys/fs/bpf/pinned"))
    assert "BPF_SYSCALL" in symbols(system)


def test_the_same_file_system_elsewhere_is_asked_for(system: SystemDemands) -> None:
    """An engine mounts message queues in a container: it would fail without them."""
    system.event(call("mount", '"mqueue"', '"/dev/mqueue"', '"mqueue"', "0", "NULL"))
    assert "POSIX_MQUEUE" not in symbols(system)
    system.event(call("mount", '"mqueue"', '"/proc/self/fd/7"', '"mqueue"', "0", "NULL"))
    assert "POSIX_MQUEUE" in symbols(system)


def test_looking_whether_something_is_there_is_no_demand(system: SystemDemands) -> None:
    system.event(call("newfstatat", "AT_FDCWD</>", '"/sys/kernel/debug"', "0x1", "0"))
    system.event(opened("/sys/kernel/debug", "O_RDONLY|O_PATH"))
    assert "DEBUG_FS" not in symbols(system)
    system.event(opened("/sys/kernel/debug/x"))
    assert "DEBUG_FS" in symbols(system)


def test_devices_are_the_machines_to_decide(system: SystemDemands) -> None:
    system.event(opened("/dev/tty0", "O_RDWR"))
    assert "VT" not in symbols(system)


def test_files_of_any_control_group_are_known_by_their_names(system: SystemDemands) -> None:
    system.event(opened("/sys/fs/cgroup/system.slice/a.service/cpu.max", "O_WRONLY"))
    system.event(call("read", "5</sys/fs/cgroup/x/memory.pressure>", '""', "9"))
    assert set(symbols(system)) >= {"CFS_BANDWIDTH", "PSI"}


def test_modules_demand_by_what_they_were_loaded_for(system: SystemDemands) -> None:
    seen = Seen()
    seen.take([EXCERPT.read_bytes()])
    made = {"net/bridge/br_netfilter": "BR_NF", "fs/configfs/configfs": "CGROUPS", "net/netlink/netlink_diag": "VT"}
    system.loads(seen.noted.loads(INDEX), made.get)
    # By name: demanded. With -q, or by our tracer: not.
    assert symbols(system) == {"BR_NF": "modprobe made the kernel load br_netfilter: it asked for br_netfilter"}


def test_what_is_missed_in_words_is_demanded_and_what_is_passed_over_is_not(system: SystemDemands) -> None:
    loads = [
        ModuleLoad(module, path, LoadedFor.PERHAPS, module, task, 7)
        for module, path, task in (
            ("autofs4", "fs/autofs/autofs4", "systemd"),  # a row of data/systems: it warns
            ("ip_tables", "net/ipv4/netfilter/ip_tables", "systemd"),  # in silence
            ("autofs4", "other", "somebody"),
        )
    ]
    system.loads(loads, {"fs/autofs/autofs4": "BR_NF", "net/ipv4/netfilter/ip_tables": "VT", "other": "CGROUPS"}.get)
    assert symbols(system) == {"BR_NF": "systemd made the kernel load autofs4: it asked for autofs4"}


def test_what_the_traced_kernel_had_not_cannot_be_missed(system: SystemDemands) -> None:
    system.event(call("sendto", "3<NETLINK:[ROUTE:1]>", 'nlmsg_type=RTM_NEWLINK nla_type=IFLA_INFO_KIND}, "vrf"'))
    assert symbols(system) == {} and {q.name for q in system.unanswered} == {"vrf"}


def test_rows_of_what_is_come_by_are_whole() -> None:
    found = harmless_opens.load()
    assert found.covers("/dev/tty1") and not found.covers("/dev/ttyS0") and not found.covers("/dev/tty")
    reasons = [*(row.reason for row in found.mounts), *(row.reason for row in found.missed)]
    assert all(len(reason) > 20 for reason in reasons) and found.missed


def test_a_malformed_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[[mount]]\nid = "a"\ntype = "x"\nreason = "y"\n')
    with pytest.raises(UserInputError, match=r"a\.toml, mount 'a'"):
        harmless_opens.load(tmp_path)
