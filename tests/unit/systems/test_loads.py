# SPDX-License-Identifier: Apache-2.0
"""Which module was loaded for what."""

from __future__ import annotations

import pytest
from tests.unit.systems.test_system_log import EXCERPT

from vmtailor.analysis.systems.loads import read_event
from vmtailor.analysis.systems.log import Mark
from vmtailor.analysis.systems.module_index import ModuleIndex
from vmtailor.analysis.systems.seen import Seen
from vmtailor.model.watched.system_trace import LoadedFor, ModuleLoad

#: As depmod wrote it for that kernel.
ALIAS = """\
# Aliases extracted from modules themselves.
alias virtio:d00000004v* virtio_rng
alias virtio:d00000001v* virtio_net
alias net-pf-16-proto-4-type-16 netlink_diag
alias net-pf-16-proto-12 nfnetlink
alias nfnetlink-subsys-10 nf_tables
alias nfnetlink-subsys-11 nft_compat
alias ipt_addrtype xt_addrtype
"""
DEP = """\
kernel/fs/autofs/autofs4.ko.xz:
kernel/fs/configfs/configfs.ko.xz:
kernel/fs/overlayfs/overlay.ko.xz:
kernel/drivers/char/hw_random/virtio-rng.ko.xz:
kernel/net/netlink/netlink_diag.ko.xz:
kernel/net/netfilter/nfnetlink.ko.xz:
kernel/lib/libcrc32c.ko.xz:
kernel/net/netfilter/nf_tables.ko.xz: kernel/net/netfilter/nfnetlink.ko.xz kernel/lib/libcrc32c.ko.xz
kernel/net/netfilter/x_tables.ko.xz:
kernel/net/netfilter/nft_compat.ko.xz: kernel/net/netfilter/nf_tables.ko.xz kernel/net/netfilter/x_tables.ko.xz
kernel/net/netfilter/xt_addrtype.ko.xz: kernel/net/netfilter/x_tables.ko.xz
kernel/net/llc/llc.ko.xz:
kernel/net/802/stp.ko.xz: kernel/net/llc/llc.ko.xz
kernel/net/bridge/bridge.ko.xz: kernel/net/802/stp.ko.xz kernel/net/llc/llc.ko.xz
kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz kernel/net/802/stp.ko.xz kernel/net/llc/llc.ko.xz
"""
INDEX = ModuleIndex.read(ALIAS, DEP, "kernel/fs/ext4/ext4.ko\n")


@pytest.fixture(scope="module")
def seen() -> Seen:
    found = Seen()
    found.take([EXCERPT.read_bytes()])
    return found


@pytest.fixture(scope="module")
def loads(seen: Seen) -> dict[str, ModuleLoad]:
    return {load.module: load for load in seen.noted.loads(INDEX)}


@pytest.mark.parametrize(
    ("module", "reason", "what", "task"),
    [
        ("bridge", LoadedFor.NAME, "bridge", "modprobe"),
        ("br_netfilter", LoadedFor.NAME, "br_netfilter", "modprobe"),
        ("stp", LoadedFor.DEPENDENCY, "bridge", "modprobe"),
        ("configfs", LoadedFor.PERHAPS, "configfs", "modprobe"),
        ("nfnetlink", LoadedFor.REQUEST, "net-pf-16-proto-12", "iptables"),
        ("nf_tables", LoadedFor.REQUEST, "nfnetlink-subsys-10", "iptables"),
        ("libcrc32c", LoadedFor.DEPENDENCY, "nf_tables", "iptables"),
        ("xt_addrtype", LoadedFor.REQUEST, "ipt_addrtype", "iptables"),
        ("netlink_diag", LoadedFor.WATCHING, "net-pf-16-proto-4-type-16", "ld.so"),
        ("autofs4", LoadedFor.PERHAPS, "autofs4", "systemd"),
    ],
)
def test_each_module_has_its_reason(
    loads: dict[str, ModuleLoad], module: str, reason: LoadedFor, what: str, task: str
) -> None:
    load = loads[module]
    assert (load.reason, load.what, load.task) == (reason, what, task)
    assert load.path.endswith(module)


def test_a_device_that_is_there_is_a_reason() -> None:
    found = Seen()
    found.take([EXCERPT.read_bytes().replace(b"d00000001v00001AF4", b"d00000004v00001AF4")])
    load = next(one for one in found.noted.loads(INDEX) if one.module == "virtio_rng")
    assert (load.reason, load.what) == (LoadedFor.DEVICE, "virtio:d00000004v00001AF4")


def test_programs_that_the_kernel_starts_descend_from_no_pid_1(seen: Seen) -> None:
    (only,) = seen.noted.kernel_programs()
    assert only.path == "/sbin/modprobe"
    # Three more were started by the system itself, and are in the tracer's lines.
    told = [e for e in seen.noted.events if e.kind == "sched_process_exec" and e.name == "/sbin/modprobe"]
    assert only.count == len(told) - sum(e.pid in (160,) for e in told)


def test_modules_have_their_addresses_for_the_plugins_counts(seen: Seen) -> None:
    bridge = next(one for one in seen.noted.modules if one.name == "bridge")
    assert (bridge.bytes, bridge.base) == (372736, 0xFFFFFFFFC0407000)
    assert (".text", 0xFFFFFFFFC0407000) in bridge.sections


def test_an_index_answers_by_name_and_by_pattern() -> None:
    assert INDEX.answering("virtio-rng") == ("virtio_rng",)
    assert INDEX.answering("virtio:d00000004v00001AF4") == ("virtio_rng",)
    assert INDEX.answering("ext4") == ("ext4",)
    assert INDEX.answering("pci:v00001AF4d00001000") == ()
    assert INDEX.with_needs(["br_netfilter"]) == {"br_netfilter", "bridge", "stp", "llc"}


@pytest.mark.parametrize("text", ["", "nothing", "a-1 [000] x 1.0: module_load:", "a-1 [000] x 1.0: other: y"])
def test_events_that_are_none_are_passed_over(text: str) -> None:
    assert read_event(Mark(1, "kernel", text)) is None
