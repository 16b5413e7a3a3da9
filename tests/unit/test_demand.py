# SPDX-License-Identifier: Apache-2.0
"""What calls, paths, images and exercises demand; only what worked demands anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kernel_tree import read_facts

from vmtailor.analysis.demands import demand, demand_rules
from vmtailor.analysis.demands.demand import Demand, Demands
from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.ksource.facts import Place
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.architecture import named
from vmtailor.model.evidence import EvidenceKind, Strength
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.plan import RootFormat
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import ModuleRequest

FACTS = read_facts()
RULES = demand_rules.load()
EVERYTHING = {s for text in FACTS.files.values() for s in text.replace("(", " ").replace(")", " ").split()} | {
    "MULTIUSER", "PROC_EXTRA", "MEMBARRIER",
}  # fmt: skip


def call(name: str, *args: str, error: str = "", line: int = 7, result: int | None = 0) -> SyscallEvent:
    return SyscallEvent(line, 1, "t", name, args, -1 if error else result, error, 0.0)


def demands_of(*events: SyscallEvent, head: bytes = b"", baseline: set[str] | None = None) -> dict[str, Demand]:
    found = Demands(FACTS, RULES, EVERYTHING if baseline is None else baseline, lambda path: head)
    demand.of_events(events, found)
    return {d.evidence.key: d for d in found.result()}


def symbols_of(*events: SyscallEvent, head: bytes = b"") -> set[str]:
    return {s for d in demands_of(*events, head=head).values() for s in d.symbols}


@pytest.mark.parametrize(
    ("event", "symbols"),
    [
        (call("futex", "0x1", "FUTEX_WAIT", "0"), {"FUTEX"}),
        (call("futex", "0x1", "FUTEX_WAIT", "0", result=None), {"FUTEX"}),  # still waiting
        (call("futex", "0x1", "FUTEX_WAIT", "0", error="EAGAIN"), {"FUTEX"}),  # it is there
        (call("futex", "0x1", "FUTEX_WAIT", "0", error="ENOSYS"), set()),
        (call("membarrier", "0"), {"MEMBARRIER"}),
        (call("read", "3", "", "1"), set()),
        (call("clock_gettime", "CLOCK_MONOTONIC", "0x1"), set()),
        (call("clock_gettime", "CLOCK_PROCESS_CPUTIME_ID", "0x1"), {"POSIX_TIMERS"}),
        (call("setuid", "33"), {"MULTIUSER"}),
        (call("no_such_call"), set()),
        (call("socket", "AF_INET", "SOCK_STREAM", "IPPROTO_TCP"), {"NET", "INET"}),
        (call("socket", "AF_INET6", "SOCK_STREAM", "IPPROTO_TCP"), {"NET", "IPV6"}),
        (call("socket", "AF_INET6", "SOCK_STREAM", "IPPROTO_MPTCP"), {"NET", "IPV6", "MPTCP", "MPTCP_IPV6"}),
        (call("socket", "AF_UNIX", "SOCK_STREAM", "0"), {"NET", "UNIX"}),
        (call("socket", "AF_INET6", "SOCK_STREAM", "IPPROTO_TCP", error="EAFNOSUPPORT"), set()),
        (call("mount", '"none"', '"/mnt"', '"parts"', "0", "NULL"), {"PARTS_FS"}),
        (call("mount", '"none"', '"/mnt"', '"moon"', "0", "NULL"), set()),
        (call("fcntl", "3", "F_SETLK", "{l_type=F_WRLCK}"), {"FILE_LOCKING"}),
        (call("fcntl", "3", "F_GETFL"), set()),
        (call("fcntl", "3", "F_SETLK", "{}", error="EINVAL"), set()),
        (call("openat", "AT_FDCWD</>", '"/proc/stat"', "O_RDONLY"), {"PROC_FS"}),
        (call("openat", "AT_FDCWD</>", '"/proc/77/smaps"', "O_RDONLY"), {"PROC_FS", "PROC_EXTRA"}),
        (call("openat", "AT_FDCWD</proc/self>", '"smaps"', "O_RDONLY"), {"PROC_FS", "PROC_EXTRA"}),
        (call("openat", "AT_FDCWD</>", '"/proc/self/task/9/status"', "O_RDONLY"), {"PROC_FS"}),
        (call("openat", "AT_FDCWD</>", '"/proc/sys/kernel/watches"', "O_RDONLY"), {"PROC_FS", "PROC_SYSCTL", "EPOLL"}),
        # One that the source makes in a way which is not read, and the folder itself.
        (call("openat", "AT_FDCWD</>", '"/proc/sys/net/odd/one"', "O_RDONLY"), {"PROC_FS", "PROC_SYSCTL"}),
        (call("openat", "AT_FDCWD</>", '"/proc/sys"', "O_RDONLY|O_DIRECTORY"), {"PROC_FS", "PROC_SYSCTL"}),
        (call("openat", "AT_FDCWD</>", '"/proc/stat"', "O_RDONLY", error="ENOENT"), set()),
        (call("openat", "AT_FDCWD</>", '"/process"', "O_RDONLY"), set()),
        (call("access", '"/sys/kernel/mm/transparent_hugepage/x"', "R_OK"), {"SYSFS", "TRANSPARENT_HUGEPAGE"}),
        (call("openat", "AT_FDCWD</>", '"/dev/things/one"', "O_RDONLY"), {"DISK"}),
        (call("openat", "AT_FDCWD</>", '"/dev/null"', "O_RDONLY"), set()),
        (call("openat", "AT_FDCWD</>", '"/dev/ptmx"', "O_RDONLY"), {"UNIX98_PTYS"}),
        (call("unshare", "CLONE_NEWNS|CLONE_NEWPID"), {"PID_NS"}),
        (call("mmap", "NULL", "4096", "PROT_READ", "MAP_PRIVATE|MAP_HUGETLB", "-1", "0"), {"HUGETLBFS"}),
        (call("write", "1", '"F_SETLK MAP_HUGETLB"', "3"), set()),
        (call("prctl", "PR_SET_NAME", '"PR_SET_SECCOMP"'), set()),
        (call("fchownat", "AT_FDCWD</>", '"/x"', "33", "33", "0"), {"MULTIUSER"}),
        (call("fchownat", "AT_FDCWD</>", '"/x"', "0", "0", "0"), set()),
        (call("chown", '"/x"', "0", "4"), {"MULTIUSER"}),
        # What is left as it is, is -1: without users the call succeeds, and the file stays root's.
        (call("fchownat", "AT_FDCWD</data>", '"."', "999", "-1", "0"), {"MULTIUSER"}),
        (call("fchown", "1<pipe:[478]>", "-1", "100"), {"MULTIUSER"}),
        (call("chown", '"/x"', "0", "-1"), set()),
        # As programs of 32 bits have them.
        (call("chown32", '"/d/x.db"', "33", "33"), {"MULTIUSER"}),
        (call("fcntl64", "3", "F_SETLK64", "{l_type=F_WRLCK}"), {"FILE_LOCKING"}),
        (call("setsockopt", "3", "SOL_TCP", "TCP_ULP", '"tls"', "4"), {"TLS"}),
        (call("setsockopt", "3", "SOL_TCP", "TCP_ULP", '"other"', "4"), set()),
    ],
)  # fmt: skip
def test_a_call_demands(event: SyscallEvent, symbols: set[str]) -> None:
    assert symbols_of(event) == symbols


@pytest.mark.parametrize(("name", "symbols"), [("arm64", {"ARM64_MTE"}), ("x86_64", set())])
def test_a_rule_is_of_its_processor(name: str, symbols: set[str]) -> None:
    """Memory with tags: another processor has not the symbol."""
    rules = demand_rules.load(architecture=named(name))
    demands = Demands(FACTS, rules, EVERYTHING)
    demands.event(call("mmap", "NULL", "4096", "PROT_READ|PROT_MTE", "MAP_PRIVATE|MAP_ANONYMOUS", "-1", "0"))
    assert {symbol for found in demands.result() for symbol in found.symbols} == symbols


@pytest.mark.parametrize(
    ("head", "symbols"),
    [
        (b"#!/bin/sh", {"BINFMT_SCRIPT"}),
        (b"\x7fELF\x02", {"BINFMT_ELF"}),
        (b"\x7fELF\x01", {"IA32_EMULATION"}),
        (b"", set()),
    ],
)
def test_a_program_demands_its_format(head: bytes, symbols: set[str]) -> None:
    assert symbols_of(call("execve", '"/bin/x"', "[]", "0x1"), head=head) == symbols


def test_a_symbol_that_the_baseline_lacks_is_only_demanded_when_it_must_be_there() -> None:
    # Of two ways to have a file, the one that the baseline has.
    found = demands_of(call("futex", "0x1", "FUTEX_WAIT"), baseline=set())
    assert found["futex"].symbols == ("FUTEX",)


def test_evidence_says_where_and_how_often() -> None:
    found = demands_of(call("futex", "0x1", line=12), call("futex", "0x1", line=99))["futex"]
    assert found.evidence.count == 2 and found.reference == "trace:requests:12"
    assert found.evidence.strength is Strength.DEMANDED and found.evidence.detail == "kernel/futex.c:2"


def test_addresses_beyond_loopback_ask_for_a_network() -> None:
    outside = call("bind", "3", '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("0.0.0.0")}', "16")
    inside = call("bind", "3", '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}', "16")
    local = call("connect", "3", '{sa_family=AF_UNIX, sun_path="/x"}', "16")
    for event, wanted in ((outside, True), (inside, False), (local, False)):
        found = Demands(FACTS, RULES, EVERYTHING)
        found.event(event)
        assert demand.wants_network(ImageConfig("amd64"), found) is wanted
    assert demand.wants_network(ImageConfig("amd64", exposed_ports=(Port(80),)), Demands(FACTS, RULES, EVERYTHING))


@pytest.mark.parametrize(
    ("config", "references"),
    [
        (ImageConfig("amd64", user="www-data:www-data"), {"image:user"}),
        (ImageConfig("amd64", user="0:0"), set()),
        (ImageConfig("amd64", user="root:www-data"), {"image:user"}),
        (ImageConfig("amd64", user="0:root"), set()),
        (ImageConfig("amd64", user="root"), set()),
        (ImageConfig("amd64", exposed_ports=(Port(80),)), {"image:ports"}),
        (ImageConfig("amd64", entrypoint=("/run.sh",)), {"image:entrypoint"}),
    ],
)
def test_an_image_demands(config: ImageConfig, references: set[str]) -> None:
    found = Demands(FACTS, RULES, EVERYTHING, lambda path: b"#!/bin/sh\n")
    demand.of_image(config, found)
    assert {d.reference for d in found.result()} == references


@pytest.mark.parametrize(
    ("form", "symbols"),
    [
        (RootFormat.EROFS, ("EROFS_FS_POSIX_ACL", "TMPFS_POSIX_ACL")),
        (RootFormat.EXT4, ("EXT4_FS_POSIX_ACL", "TMPFS_POSIX_ACL")),
        (RootFormat.SQUASHFS, ("TMPFS_POSIX_ACL",)),
    ],
)
def test_access_control_lists_of_files_are_demands(form: RootFormat, symbols: tuple[str, ...]) -> None:
    found = Demands(FACTS, RULES, EVERYTHING)
    demand.of_access_lists((), form, found)
    assert found.result() == ()
    demand.of_access_lists(("/srv", "/srv/a", "/srv/b"), form, found)
    (one,) = found.result()
    assert (one.symbols, one.reference) == (symbols, "image:/srv")
    assert one.text == "/srv and 2 more files of the image have an access control list"


LOW = '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("0.0.0.0")}'
LOW6 = '{sa_family=AF_INET6, sin6_port=htons(443), inet_pton(AF_INET6, "::", &sin6_addr)}'
HIGH = '{sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("0.0.0.0")}'
ANY = '{sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr("0.0.0.0")}'


@pytest.mark.parametrize(
    ("user", "event", "asked"),
    [
        ("www-data", call("bind", "3", LOW, "16"), True),
        ("33:33", call("bind", "3", LOW6, "28"), True),
        ("www-data", call("bind", "3", HIGH, "16"), False),
        ("www-data", call("bind", "3", ANY, "16"), False),  # the kernel chooses, above 1024
        ("www-data", call("bind", "3", LOW, "16", error="EACCES"), False),
        ("www-data", call("connect", "3", LOW, "16"), False),
        ("0", call("bind", "3", LOW, "16"), False),
        ("", call("bind", "3", LOW, "16"), False),
    ],
)
def test_an_ordinary_user_on_a_low_port_asks_for_the_setting(user: str, event: SyscallEvent, asked: bool) -> None:
    found = Demands(FACTS, RULES, EVERYTHING)
    demand.of_events([event], found)
    demand.of_user(ImageConfig("amd64", user=user), found)
    assert {s for d in found.result() for s in d.symbols if s.startswith("PROC_")} == (
        {"PROC_FS", "PROC_SYSCTL"} if asked else set()
    )


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("AF_INET", "SOCK_DGRAM", "IPPROTO_ICMP"), True),
        (("AF_INET6", "SOCK_DGRAM|SOCK_CLOEXEC", "IPPROTO_ICMPV6"), True),
        (("AF_INET", "SOCK_RAW", "IPPROTO_ICMP"), False),  # a capability opens it
        (("AF_INET", "SOCK_DGRAM", "IPPROTO_UDP"), False),
    ],
)
def test_a_socket_to_ping_with_asks_for_the_setting(arguments: tuple[str, ...], asked: bool) -> None:
    assert ("PROC_SYSCTL" in symbols_of(call("socket", *arguments))) is asked


def test_modules_that_were_asked_for_are_demanded_but_not_every_variant_of_an_algorithm() -> None:
    found = Demands(FACTS, RULES, EVERYTHING)
    asked = [
        ModuleRequest("net-pf-38", "af_alg", "crypto/af_alg"),
        ModuleRequest("crypto-sha256", "sha256_ssse3", "arch/x86/crypto/sha256_ssse3"),
        ModuleRequest("net-pf-99", "af_odd", "net/odd/af_odd"),
    ]
    symbols = {"crypto/af_alg": "CRYPTO_USER_API", "arch/x86/crypto/sha256_ssse3": "CRYPTO_SHA256_SSSE3"}
    demand.of_modules(asked, found, symbols.get)
    (one,) = found.result()
    assert (one.symbols, one.reference) == (("CRYPTO_USER_API",), "modules:af_alg")
    assert "af_alg" in one.text and "net-pf-38" in one.text


def test_an_algorithm_and_its_parts_are_demanded_by_name() -> None:
    files = {"crypto/hmac.c": "CRYPTO_HMAC", "crypto/sha256_generic.c": "CRYPTO_SHA256", "crypto/md5.c": "CRYPTO_MD5"}
    names: dict[str, tuple[Place, ...]] = {
        path.split("/")[1].partition("_")[0].partition(".")[0]: (Place(path, 1, symbol),)
        for path, symbol in files.items()
    }
    facts = replace(FACTS, names={**FACTS.names, "algorithm": names})
    found = Demands(facts, RULES, set(files.values()))
    demand.of_events([call("bind", "3", '{sa_family=AF_ALG, salg_type="hash", salg_name="hmac(sha256)"}', "88")], found)
    assert {s for d in found.result() for s in d.symbols} == {"CRYPTO_USER_API_HASH", "CRYPTO_HMAC", "CRYPTO_SHA256"}


@pytest.mark.parametrize(
    ("path", "symbols"),
    [
        ("/proc/self/ns/net", ("NET_NS",)),
        ("/proc/17/ns/pid_for_children", ("PID_NS",)),
        ("/proc/thread-self/ns/ipc", ("IPC_NS",)),
        ("/proc/17/task/19/ns/user", ("USER_NS",)),
        ("/proc/self/ns/mnt", ()),  # which is always there
        ("/srv/ns/net", ()),
    ],
)
def test_a_namespace_that_is_looked_at_is_demanded(path: str, symbols: tuple[str, ...]) -> None:
    found = Demands(FACTS, RULES, EVERYTHING)
    demand.of_events([call("readlink", f'"{path}"', '"net:[4026531840]"', "64", result=16)], found)
    assert {s for d in found.result() for s in d.symbols if s.endswith("_NS")} == {*symbols}


def test_an_exercise_over_http_demands_tcp() -> None:
    found = Demands(FACTS, RULES, EVERYTHING)
    demand.of_exercise(Exercise("x", Ready(ReadyKind.EXIT)), found)
    assert found.result() == ()
    demand.of_exercise(Exercise("x", Ready(ReadyKind.EXIT), (Step(StepKind.HTTP, port=80),)), found)
    assert [d.symbols for d in found.result()] == [("NET", "INET")]


@pytest.mark.parametrize("kind", [StepKind.TCP, StepKind.HTTP])
def test_each_kind_of_step_that_connects_demands_tcp(kind: StepKind) -> None:
    found = Demands(FACTS, RULES, EVERYTHING)
    command = Step(StepKind.COMMAND, argv=("true",))
    demand.of_exercise(Exercise("x", Ready(ReadyKind.COMMAND, command), (command, Step(kind, port=80))), found)
    assert [d.symbols for d in found.result()] == [("NET", "INET")]


@given(
    st.sampled_from([*FACTS.table, "prctl", "mount", "setsockopt", "execve", "bind"]),
    st.lists(
        st.one_of(st.text(max_size=20), st.sampled_from(["AF_INET", '"/proc/self/x"', "{sa_family=AF_INET6}"])),
        max_size=6,
    ),
)
def test_no_event_is_too_strange(name: str, args: list[str]) -> None:
    demands_of(call(name, *args), head=b"#!")


# ---- rules


def test_every_rule_that_comes_along_has_its_reason_and_a_known_kind() -> None:
    assert len(RULES.calls) > 30 and len(RULES.paths) > 20
    for rule in RULES.calls:
        assert (
            rule.reason
            and rule.symbols
            and rule.calls
            and (rule.words or rule.text or rule.id in ("capabilities", "chown"))
        )
        assert rule.kind in EvidenceKind
    for path in RULES.paths:
        assert path.reason and path.symbols and all(p.startswith("/") for p in path.paths)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/sys/fs/cgroup", "/sys/fs/cgroup", True),
        ("/sys/fs/cgroup", "/sys/fs/cgroup/memory.max", True),
        ("/sys/fs/cgroup", "/sys/fs/cgroups", False),
        ("/dev/loop*", "/dev/loop12", True),
        ("/dev/loop*", "/dev/x/loop1", False),
        ("/dev/tty[1-9]*", "/dev/tty1", True),
        ("/dev/tty[1-9]*", "/dev/tty", False),
        ("/sys/devices/system/node/*", "/sys/devices/system/node/node0/meminfo", True),
        ("/a.b", "/axb", False),
    ],
)
def test_path_rules(pattern: str, path: str, matches: bool) -> None:
    rules = toml_files.read(
        demand_rules.Rules, f"[[path]]\nid='a'\npaths=['{pattern}']\nsymbols=['X']\nreason='r'", "test"
    )
    assert rules.paths[0].covers(path) is matches


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[[call]]\nid='a'\ncalls=['x']\nsymbols=['X']", "reason"),
        ("[[call]]\nid='a'\ncalls='x'\nsymbols=['X']\nreason='r'", "calls"),
        ("[[call]]\nid='a'\ncalls=['x']\nsymbols=['X']\nreason='r'\ntext='('", "a"),
        ("[[call]]\nid='a'\ncalls=['x']\nsymbols=['X']\nreason='r'\nkernel='6'", "bound"),
        ("[[call]]\nid='a'\ncalls=['x']\nsymbols=['X']\nreason='r'\nkind='moon'", "moon"),
        ("[[path]]\nid='a'\npaths=['/x']\nsymbols=['X']\nreason='r'\nflag='x'", "flag"),
        ("[[path", "not TOML"),
    ],
)
def test_malformed_rules_are_refused(text: str, part: str) -> None:
    with pytest.raises(UserInputError, match=part):
        toml_files.read(demand_rules.Rules, text, "test")


def test_rules_of_other_kernels_do_not_hold() -> None:
    text = "[[path]]\nid='a'\npaths=['/x']\nsymbols=['X']\nreason='r'\nkernel='>=6.6'"
    rules = toml_files.read(demand_rules.Rules, text, "test")
    assert rules.for_kernel("6.12.1").paths and not rules.for_kernel("6.1.192").paths
    assert Rules().for_kernel("6.1") == Rules()
