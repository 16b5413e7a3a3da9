# SPDX-License-Identifier: Apache-2.0
"""What a kernel lacks, looked up in a source tree: names, messages, configurations; on the tiny tree."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.fit_run_data import fit_run
from tests.fakes.hostile import deadline
from tests.fakes.kernel_tree import SOURCE, VERSION, read_facts, read_kconfig
from typer.testing import CliRunner

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import messages, name_index
from vmtailor.analysis.explain.failure import Recognised, recognise
from vmtailor.analysis.explain.lookup import KnownSource, Question, find, meant
from vmtailor.analysis.explain.presence import AskedKernel, Finding, Has, Presence, findings, lacking, needed, verdict
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, toml_files
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.explain import explain
from vmtailor.cli.signature import of_verb
from vmtailor.cli.tables import finding_view
from vmtailor.cli.tables.finding_view import LookupAnswer, brings_in
from vmtailor.pipeline import known_source
from vmtailor.pipeline.known_source import SourceAtHand, read_configuration

NOTHING = AskedKernel("a kernel of nothing", {})
MESSAGES = messages.load()
#: A tree as text: what the finders look for, one of each.
TREE = {
    "Kbuild": "obj-y += net/ fs/ drivers/\n",
    "net/Makefile": "obj-$(CONFIG_LINKS) += links.o\nobj-$(CONFIG_TABLES) += iptable_nat.o\nobj-y += opts.o\n"
    "obj-$(CONFIG_MATCHES) += xt_many.o\nxt_many-y := many.o\n",
    "net/links.c": 'static struct rtnl_link_ops ops = {\n\t.kind = DRV_NAME,\n};\n#define DRV_NAME "tunnel"\n'
    'MODULE_ALIAS_RTNL_LINK("tunnel");\nMODULE_ALIAS("old-tunnel");\n',
    "net/iptable_nat.c": "int x;\n",
    "net/many.c": 'static struct xt_match m[] = {\n\t{ .name = "one" },\n\t{ .name = "two" },\n};\n',
    "net/opts.c": "switch (cmd) {\n"
    "\tcase F_LOCK:\n\t\terr = do_lock(fd);\n\t\tbreak;\n\tcase F_PLAIN:\n\t\tbreak;\n\t}\n",
    "fs/Makefile": "",
    "drivers/Makefile": "",
    "include/linux/lock.h": "#ifdef CONFIG_LOCKS\nint do_lock(int fd);\n#else\n"
    "static inline int do_lock(int fd)\n{\n\treturn -EINVAL;\n}\n#endif\n",
    "include/uapi/linux/lock.h": "#define F_LOCK 5\n#define F_PLAIN 6\n",
    "include/linux/cgroup_subsys.h": "#if IS_ENABLED(CONFIG_PIDS)\nSUBSYS(pids)\n#endif\n",
    "include/linux/socket.h": "#define AF_INET6 10\n",
}


@pytest.fixture(scope="module")
def known() -> KnownSource:
    facts = read_facts()
    more = name_index.collect(facts, ksource_facts.reader(SOURCE), *name_index.files(SOURCE))
    return KnownSource(facts, more, demand_rules.load(), read_kconfig())


def of_tree(tree: dict[str, str]) -> KnownSource:
    sources = [path for path in tree if path.endswith(".c")]
    facts = ksource_facts.collect("6.12.7", tree.get, sources)
    more = name_index.collect(facts, tree.get, sources, [path for path in tree if path.endswith(".h")])
    return KnownSource(facts, more, demand_rules.Rules())


TREE_KNOWN = of_tree(TREE)


def symbol_of(ask: Question, known: KnownSource, target: AskedKernel = NOTHING) -> str:
    found = findings([ask], known, target)
    return found[0].symbol if found else ""


def read(message: str, known: KnownSource) -> tuple[Recognised, tuple[Finding, ...]]:
    read = recognise(message, known, MESSAGES)
    return read, findings(read.asks, known, NOTHING)


# ---- what the finders find


@pytest.mark.parametrize(
    ("ask", "symbol"),
    [
        (Question("link", "tunnel"), "LINKS"),
        (Question("module", "old-tunnel"), "LINKS"),
        (Question("module", "rtnl-link-tunnel"), "LINKS"),
        (Question("match", "two"), "MATCHES"),
        (Question("module", "xt_many"), "MATCHES"),  # a composite object
        (Question("table", "iptables:nat"), "TABLES"),
        (Question("word", "F_LOCK"), "LOCKS"),  # by the stub in a header
        (Question("word", "F_PLAIN"), ""),
        (Question("controller", "pids"), "PIDS"),
        (Question("link", "nothing"), ""),
        (Question("source", "net/links.c"), "LINKS"),
    ],
)
def test_names_lead_to_symbols(ask: Question, symbol: str) -> None:
    assert symbol_of(ask, TREE_KNOWN) == symbol


def test_another_tree_gives_another_answer() -> None:
    other = {**TREE, "net/Makefile": TREE["net/Makefile"].replace("CONFIG_TABLES", "CONFIG_LEGACY_TABLES")}
    message = "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist"
    assert [read(message, of_tree(tree))[1][0].symbol for tree in (TREE, other)] == ["TABLES", "LEGACY_TABLES"]


def test_numbers_of_families() -> None:
    more = of_tree(TREE).asked
    assert more.name_of("family", 10) == "INET6" and more.name_of("family", 11) == ""
    assert records.from_bytes(name_index.AskedNames, records.to_bytes(more)) == more


@given(st.text(max_size=400))
def test_any_text_can_be_searched(text: str) -> None:
    for prefix in name_index.HINTS:
        for _, _, offset in name_index.names(prefix + text, {}):
            assert 0 <= offset <= len(prefix) + len(text)
        list(name_index.cases(prefix + text, {"A_WORD"}))
        list(name_index.stubs(prefix + text))


# ---- how a kernel stands to it


@pytest.mark.parametrize(
    ("what", "symbol"),
    [("futex", "FUTEX"), ("epoll_create1", "EPOLL"), ("AF_INET6", "IPV6"), ("/proc/self/status", "PROC_FS"),
     ("parts", "PARTS_FS"), ("timer_create", "POSIX_TIMERS"), ("/dev/things/one", "DISK"), ("CONFIG_EPOLL", "EPOLL")],
)  # fmt: skip
def test_what_a_name_means(what: str, symbol: str, known: KnownSource) -> None:
    assert findings(meant(what, known), known, NOTHING)[0].symbol == symbol


def test_standing_and_what_is_in_the_way(known: KnownSource) -> None:
    ask = Question("family", "INET6")
    out = findings([ask], known, NOTHING)[0]
    assert out.has is Has.OUT and out.missing == ("IPV6", "NET") and out.in_the_way and out.possible
    assert dict(out.settings)["IPV6"] == "y" and "NET" in dict(out.settings)
    there = findings([ask], known, AskedKernel("x", {"NET": "y", "IPV6": "y"}))[0]
    assert there.has is Has.BUILT_IN and verdict([there], "") is Presence.PRESENT
    module = findings([ask], known, AskedKernel("x", {"NET": "y", "IPV6": "m"}))[0]
    assert module.has is Has.MODULE and module.symbol == "IPV6"
    always = findings([Question("call", "read")], known, NOTHING)[0]
    assert always.has is Has.ALWAYS


@pytest.mark.parametrize(
    ("condition", "values", "names"),
    [("A && B", {"A": "y"}, ("B",)), ("A || B && C", {}, ("A",)), ("A || B && C", {"B": "y"}, ("A",)),
     ("!A", {"A": "y"}, None), ("A=y", {"A": "m"}, ("A",)), ("A && ?", {}, ("A",)), ("0", {}, None)],
)  # fmt: skip
def test_the_shortest_way_to_a_condition(condition: str, values: dict[str, str], names: tuple[str, ...] | None) -> None:
    assert needed(parse(condition), values) == names


# ---- messages


@pytest.mark.parametrize(
    ("message", "symbol"),
    [
        ("futex(0x7f, FUTEX_WAIT, 1, NULL) = -1 ENOSYS (Function not implemented)", "FUTEX"),
        ("Error: ENOSYS: function not implemented, futex", "FUTEX"),
        (
            "[pid 7] socket(AF_INET6, SOCK_DGRAM, 0) = -1 EAFNOSUPPORT (Address family not supported by protocol)",
            "IPV6",
        ),
        ("dial tcp [::1]:80: socket: address family not supported by protocol", "IPV6"),
        ('openat(AT_FDCWD, "/proc/self/status", O_RDONLY) = -1 ENOENT (No such file or directory)', "PROC_FS"),
        ("\x1b[31mmount: /x: unknown filesystem type 'parts'.\x1b[0m", "PARTS_FS"),
        ("is CONFIG_EPOLL enabled in your kernel?", "EPOLL"),
    ],
)
def test_messages_lead_to_symbols(message: str, symbol: str, known: KnownSource) -> None:
    read_, found = read(message, known)
    assert not read_.not_kernel and found[0].symbol == symbol


@pytest.mark.parametrize(
    "message",
    [
        'openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = -1 ENOENT (No such file or directory)',
        "read(3, 0x7f, 12) = -1 EAGAIN (Resource temporarily unavailable)",
        "connect(3, {sa_family=AF_INET, sin_port=htons(80)}, 16) = -1 ECONNREFUSED (Connection refused)",
        "./a: error while loading shared libraries: libx.so: cannot open shared object file: No such file or directory",
        "sh: foo: command not found",
        "cat: /etc/shadow: Permission denied",
    ],
)
def test_what_is_not_the_kernel_is_said_so(message: str, known: KnownSource) -> None:
    read_, _ = read(message, known)
    assert verdict((), read_.not_kernel) is Presence.NOT_KERNEL


@pytest.mark.parametrize(
    "message",
    [
        "futex(0x7f, FUTEX_WAIT, 1, NULL) = -1 EAGAIN (Resource temporarily unavailable)",
        "futex(0x7f, FUTEX_FD, 1, NULL) = -1 EINVAL (Invalid argument)",
        "The futex facility failed: Operation not permitted",
        "epoll_create1 failed: EMFILE: too many open files",
        "[Warning] InnoDB: io_setup() failed with EAGAIN. Will make 5 attempts before giving up.",
        "read: Function not implemented",
    ],
)
def test_an_error_that_contradicts_the_answer_outweighs_it(message: str, known: KnownSource) -> None:
    read_, _ = read(message, known)
    assert read_.not_kernel and not read_.asks


@pytest.mark.parametrize(
    "message",
    [
        "mount: /x: unknown filesystem\ntype 'parts'.",
        "mount: /run/media/a/long/way/down/to/the/place/of/it: unknown files\nystem type 'parts'.",
        "Starting.\r\nmount: /x: unknown filesystem type 'parts'.\r\nGood bye.",
    ],
)
def test_a_message_that_was_wrapped_is_read_as_it_was_printed(message: str, known: KnownSource) -> None:
    _, found = read(message, known)
    assert found[0].symbol == "PARTS_FS"


@pytest.mark.parametrize(
    "message", ["socket: Address family not supported by protocol", "open: Exec format error", "x: errno 97"]
)
def test_what_is_only_likely_is_said_so(message: str, known: KnownSource) -> None:
    read_, found = read(message, known)
    assert not read_.sure and verdict(found, read_.not_kernel, sure=read_.sure) in (Presence.UNSURE, Presence.UNKNOWN)


def test_a_rule_of_nftables_asks_first_for_what_its_columns_name() -> None:
    rule = "add rule ip t c meta l4proto tcp dnat to numgen random mod 1 map { 0 : 10.0.0.1 }"
    begin = rule.index("numgen") + 1
    columns = f"/dev/stdin:4:{begin}-{begin + 18}: Error: Could not process rule: No such file or directory\n{rule}"
    kinds = {kind.id: kind for kind in MESSAGES.kinds}
    for text, first in ((columns, "numgen"), (columns.partition(": ")[2], "nat")):
        match = kinds["nft-could-not-process"].pattern.search(text)
        assert match is not None
        assert next(iter(MESSAGES.asks(kinds["nft-could-not-process"].asks, match.groupdict()))).name == first


def test_what_is_not_understood_is_said_so(known: KnownSource) -> None:
    read_, found = read("all is well", known)
    assert read_.kind == "" and verdict(found, read_.not_kernel) is Presence.UNKNOWN


def test_an_error_alone_lists_what_would_answer_so(known: KnownSource) -> None:
    from vmtailor.analysis.explain.presence import by_error

    lacks = dict(lacking(by_error("ENOSYS", known), known, NOTHING))
    assert "system call futex" in lacks["FUTEX"] and "EPOLL" in lacks
    assert "FUTEX" not in dict(lacking(by_error("ENOSYS", known), known, AskedKernel("x", {"FUTEX": "y"})))
    assert by_error("EIO", known) == ()


@given(st.text(max_size=300))
def test_any_message_can_be_read(message: str) -> None:
    known = TREE_KNOWN
    for text in (message, f"{message}({message}) = -1 ENOSYS", f"mount: unknown filesystem type '{message}'"):
        findings(recognise(text, known, MESSAGES).asks, known, NOTHING)


def test_a_long_message_is_read_quickly(known: KnownSource) -> None:
    with deadline(20):
        recognise("ip link add " * 5000 + "(" * 5000, known, MESSAGES)


def test_faults_in_kinds_of_messages_are_named() -> None:
    with pytest.raises(UserInputError, match="either asks or not_kernel"):
        toml_files.read(messages.Messages, "[[failure]]\nid = 'a'\nsays = 'b'\nmatch = 'c'\n", "x.toml")
    with pytest.raises(UserInputError, match="unknown key"):
        toml_files.read(
            messages.Messages, "[[failure]]\nid = 'a'\nsays = 'b'\nmatch = 'c'\nnot_kernel = 'd'\nodd = 1\n", "x.toml"
        )
    with pytest.raises(UserInputError, match=r"x\.toml, error 'E': about is one of kernel"):
        toml_files.read(messages.Messages, "[[error]]\nname='E'\nsays=['e']\nabout='moon'\nmeaning='m'\n", "x.toml")
    with pytest.raises(UserInputError, match="unterminated"):
        toml_files.read(
            messages.Messages, "[[failure]]\nid = 'a'\nsays = 'b'\nmatch = '['\nnot_kernel = 'd'\n", "x.toml"
        )


def test_kinds_name_symbols_only_where_a_source_cannot_tell() -> None:
    """The list is here so that it does not grow unseen: another tree can change all other answers."""
    named = {ask for kind in MESSAGES.kinds for ask in kind.asks if ask.startswith("symbol:")}
    assert named <= {
        "symbol:NETFILTER_XT_MATCH_ADDRTYPE", "symbol:VIRTIO_VSOCKETS", "symbol:TMPFS_XATTR", "symbol:EROFS_FS_XATTR",
        "symbol:SQUASHFS_XATTR", "symbol:MODULES", "symbol:IA32_EMULATION", "symbol:COMPAT", "symbol:BLK_DEV_INITRD",
        "symbol:DEBUG_INFO_BTF", "symbol:CFS_BANDWIDTH",
    }  # fmt: skip


# ---- the verb


@pytest.fixture
def with_source(known: KnownSource, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmtailor.cli import explain as verb

    monkeypatch.setattr(verb, "source_for", lambda *_: SourceAtHand(known, VERSION))


def ask(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(of_verb("explain", explain))
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})
    if result.exception is not None:
        raise result.exception
    return result.stdout


CONFIG = f"#\n# Linux/x86 {VERSION} Kernel Configuration\n#\nCONFIG_64BIT=y\nCONFIG_NET=y\n# CONFIG_IPV6 is not set\n"


@pytest.mark.usefixtures("with_source")
@pytest.mark.parametrize("packed", [False, True])
def test_a_configuration_gets_the_lines_to_add(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / "config"
    file.write_bytes(gzip.compress(CONFIG.encode()) if packed else CONFIG.encode())
    text = ask("--config", str(file), "AF_INET6")
    assert "IPV6, which" in text and "CONFIG_IPV6=y" in text
    document = json.loads(
        ask("--config", str(file), "--json", "--failure", "dial tcp: socket: address family not supported")
    )
    assert document["schema"] == finding_view.LOOKUP_SCHEMA and document["verdict"] == "missing"
    assert document["findings"][0]["symbol"] == "IPV6" and document["findings"][0]["brings_in"][0] == "CONFIG_IPV6=y"


@pytest.mark.usefixtures("with_source")
def test_a_bundle_gets_the_command_that_fits_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    records.save(fit_run(), tmp_path / "run.json")
    text = ask(str(tmp_path), "--failure", "mount: unknown filesystem type 'parts'")
    assert "PARTS_FS, which the tailored kernel lacks" in text and "--keep PARTS_FS" in text
    assert len(text.splitlines()) <= 24
    assert json.loads(ask(str(tmp_path), "EAFNOSUPPORT", "--json"))["lacking"]
    assert "not the kernel" in ask(str(tmp_path), "--failure", "sh: foo: command not found")
    with pytest.raises(UserInputError, match="neither the plan"):
        ask(str(tmp_path), "nothing_of_this_name")


@pytest.mark.usefixtures("with_source")
def test_a_bundle_gets_the_way_to_fit_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle = tmp_path / "a bundle"
    bundle.mkdir()
    records.save(fit_run(), bundle / "run.json")
    told = json.loads(ask(str(bundle), "--json", "--failure", "mount: unknown filesystem type 'parts'"))
    assert told["findings"][0]["brings_in"] == [f"vmtailor refit '{bundle}' --keep PARTS_FS"]


@pytest.mark.usefixtures("with_source")
def test_a_message_alone_is_answered_from_the_source(known: KnownSource, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmtailor.cli import explain as verb

    monkeypatch.setattr(verb, "newest_source", lambda: SourceAtHand(known, VERSION, f"read in the source of {VERSION}"))
    text = ask("--failure", "mount: unknown filesystem type 'parts'")
    assert text.startswith("→ file system parts needs PARTS_FS") and "lacks" not in text and VERSION in text
    assert json.loads(ask("--json", "--failure", "socket: address family not supported"))["verdict"] == "unsure"
    monkeypatch.setattr(verb, "newest_source", lambda: None)
    with pytest.raises(UserInputError, match="no kernel's source is in the cache"):
        ask("--failure", "anything")


@pytest.mark.usefixtures("with_source")
def test_a_fragment_is_completed_before_it_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "part"
    file.write_text(f"# Linux/x86 {VERSION} Kernel Configuration\nCONFIG_64BIT=y\nCONFIG_IPV6=y\n")
    told = json.loads(ask("--config", str(file), "--json", "AF_INET6"))
    assert told["verdict"] == "missing" and "NET" in told["findings"][0]["missing"]
    assert "is a fragment" in told["notes"][0]
    told = json.loads(ask("--config", str(file), "--json", "CONFIG_IPV6"))
    assert "sets it, and kconfig drops it: depends on" in told["findings"][0]["why_out"]
    file.write_text(file.read_text() + "CONFIG_NET=y\nCONFIG_INET=y\n")
    assert json.loads(ask("--config", str(file), "--json", "AF_INET6"))["verdict"] == "present"


def test_a_whole_configuration_that_was_edited_lacks_what_kconfig_would_drop(known: KnownSource) -> None:
    assert known.kconfig is not None
    assert set(known.kconfig.unmet({"IPV6": "y"})) == {"IPV6"}
    assert known.kconfig.unmet({"IPV6": "y", "INET": "y", "NET": "y"}) == {}
    assert set(known.kconfig.unmet({"IPV6": "y", "INET": "y", "NET": "n"})) == {"INET", "IPV6"}
    assert known.kconfig.unmet({"IPV6": "n", "UNKNOWN_SYMBOL": "y"}) == {}


def test_without_a_source_it_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "config"
    file.write_text(CONFIG)
    with pytest.raises(UserInputError, match=r"source of 6\.12\.7 is not in the cache") as caught:
        ask("--config", str(file), "AF_INET6")
    assert "--source 6.12.7" in caught.value.hint
    with pytest.raises(UserInputError, match="nothing to look up"):
        ask("--config", str(file))
    with pytest.raises(UserInputError, match="nothing to explain"):
        ask()


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x1f\x8bbroken", gzip.compress(b"CONFIG_A=y\n" * 2_000_000), b"CONFIG_A=y\0"]
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.gz").write_bytes(data)
    with pytest.raises(UserInputError):
        read_configuration(tmp_path / "config.gz")


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="does not exist"):
        known_source.source_for(str(tmp_path / "nothing"), "6.12.7")


def test_text_from_outside_cannot_steer_the_terminal(known: KnownSource) -> None:
    evil = "\x1b[31m[bold]x"
    finding = Finding(Question("module", evil), "X", Has.OUT, "X", "x.c", ("X",), evil, (evil,), (evil,), True, evil)
    out = io.StringIO()
    finding_view.show(
        LookupAnswer(evil, NOTHING, Presence.MISSING, (finding,), "6.12", notes=(evil,)),
        TerminalConsole(file=out, width=100),
    )
    assert "\x1b" not in out.getvalue() and "[bold]x" in out.getvalue()
    assert (
        brings_in(dataclasses.replace(finding, possible=False), LookupAnswer("", NOTHING, Presence.MISSING, (), ""))
        == ()
    )
    assert find(Question("no such kind", "x"), known) == ()
