# SPDX-License-Identifier: Apache-2.0
"""Changes: the catalogue's recipes, how they are made on a machine, what is expected of them, and the whole trial,
played."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import played
from tests.fakes.boot_data import GATHERED

from vmtailor.analysis.changes import choice, effects, trial_hardware
from vmtailor.analysis.changes.change_catalogue import Candidate, candidates, catalogue
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.guests.machine_variants import USUAL, on_loopback
from vmtailor.base.errors import UserInputError
from vmtailor.base.figures import millions
from vmtailor.base.natives import Natives
from vmtailor.base.terminal import TerminalConsole
from vmtailor.booting import series_run
from vmtailor.booting.booter import OnProgress
from vmtailor.cli.tables.series_table import show
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.drivers.rootfs import boot_disk, initrd_additions, small_initrd
from vmtailor.drivers.rootfs.initramfs import cpio, file
from vmtailor.model.architecture import named, names
from vmtailor.model.boots.boot import Boot, FunctionCost, Milestone, Outcome, Phase
from vmtailor.model.boots.boot_cost import BootCost, CostOfFunction, CostOfInitcall, Helpers
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.boots.timeline import KernelInfo, PhaseSpan, Process, Timeline
from vmtailor.model.boots.workload import Nothing, OwnInit, Workload
from vmtailor.model.change import Change, ChangeKind, Figure, Setting, Verdict
from vmtailor.model.machine import Clock, Disk, DiskFormat, DiskMode, Machine
from vmtailor.pipeline import boot_trials, machine_testbed
from vmtailor.pipeline.change_means import HOW, Means, applied

DIRECT = replace(
    USUAL,
    kernel="/k",
    initrd="/i",
    words=("root=/dev/vda", "debug", "loglevel=7", "initcall_debug"),
    disks=(Disk("/d", mode=DiskMode.OVERLAID),),
)


#: A compiler of kernels that only writes down what it was asked for is enough here.
MEANS = Means(Path(), Path(), rebuild=lambda asked: Path(f"/kernel-{asked.symbols}"), services=True)


def candidate(name: str) -> Candidate:
    return next(one for one in candidates() if one.change.id == name)


def made(vm: Machine, *changes: Change) -> Machine:
    return applied(changes, vm, MEANS)[0]


def changed(name: str, vm: Machine = DIRECT) -> Machine:
    return made(trial_hardware.equipped(vm, candidate(name).hardware), candidate(name).change)


def machine_for(one: Candidate) -> Machine:
    """A machine of a processor that the change is for, with the hardware that both sides of its trial have."""
    here = (DIRECT.architecture, *names())
    row = next(named(name) for name in here if not choice.not_for(one.change, name))
    suits = DIRECT if row.name == DIRECT.architecture else replace(DIRECT, architecture=row.name, board=row.usual)
    return trial_hardware.equipped(suits, one.hardware)


def test_every_change_that_can_be_tried_changes_a_machine() -> None:
    ids = [one.change.id for one in candidates()]
    assert len(ids) == len(set(ids)) >= 80
    for one in candidates():
        assert one.change.does and one.change.reasons[0].reference == f"advice:{one.advice}"
        small = Setting(ChangeKind.ROOTFS, "initrd", "small")
        before = machine_for(one)
        assert one.change.settings == (small,) or made(before, one.change) != before, one.change.id


def test_every_remedy_is_tried_or_says_why_not() -> None:
    for entry in catalogue():
        assert bool(entry.trials) is not bool(entry.untried), entry.id
        assert entry.untried == "" or len(entry.untried.split()) > 5, entry.id
    reasons = {one.change.id: one.change.problem for one in choice.untried()}
    assert reasons == {entry.id: entry.untried for entry in catalogue() if entry.untried} and len(reasons) < 20
    for name, why in reasons.items():
        with pytest.raises(UserInputError, match="no trial is possible") as refused:
            choice.for_machine([name])
        assert why in refused.value.message
        with pytest.raises(UserInputError, match="no trial is possible"):
            choice.for_bundle([name], "6.12")


def test_both_sides_of_a_trial_have_its_hardware_and_only_the_change_differs() -> None:
    plain = replace(DIRECT, entropy=False)
    for name, away in (("floppy", "floppy-away"), ("sound", "sound-away"), ("usb", "usb-away")):
        with_it = trial_hardware.equipped(plain, candidate(name).hardware)
        assert with_it != plain and trial_hardware.has(with_it, name) and candidate(away).hardware == (name,)
        assert changed(name, plain).extras == with_it.extras  # a word leaves the driver out, the hardware stays
        assert changed(away, plain) == plain
        assert trial_hardware.equipped(with_it, (name,)) == with_it
    for name in ("ata-ports", "virtio-console", "fewer-uarts-of-four", "pcie-absent"):
        before = trial_hardware.equipped(plain, candidate(name).hardware)
        assert changed(name, plain).extras == before.extras
    given = changed("virtio-rng", DIRECT)
    assert DIRECT.entropy and not given.entropy and trial_hardware.has(given, "virtio-rng")
    assert "console=hvc0" in changed("virtio-console", replace(DIRECT, words=("console=tty0", "console=ttyS0"))).words
    assert "console=ttyS0" not in changed("virtio-console", replace(DIRECT, words=("console=ttyS0",))).words
    with pytest.raises(UserInputError, match="microvm cannot have a sound card"):
        changed("sound", replace(DIRECT, board="microvm"))
    with pytest.raises(UserInputError, match="has a SATA controller of six empty ports in any case"):
        trial_hardware.taken(DIRECT, "sata")


def test_qemu_is_given_every_piece_of_hardware_once() -> None:
    for name, row in trial_hardware.known().items():
        for board, words in row.boards.items():
            if board == DIRECT.board:
                line = command(trial_hardware.given(replace(DIRECT, entropy=False), name))
                assert " ".join(words) in " ".join(line), name
            assert len(words) % 2 == 0 and all(one.startswith("-") for one in words[::2]), name


def test_choosing() -> None:
    def ids(*names: str) -> list[str]:
        return [one.change.id for one in choice.for_machine(names)]

    assert ids("audit", "timesyncd") == ["audit", "timesyncd"]
    assert set(ids("slow-units")) > {"timesyncd", "rsyslog"}
    assert choice.for_machine(["all"]) == (*candidates(), *choice.untried())
    with pytest.raises(UserInputError, match="no change 'no/thing'"):
        choice.for_machine(["no/thing"])
    with pytest.raises(UserInputError, match="no change 'auditt'") as misspelt:
        choice.for_machine(["auditt"])
    assert "did you mean audit?" in misspelt.value.hint and "word:auditt" in misspelt.value.hint
    both, one = choice.for_machine(["audit+rsyslog", "audit+"])
    assert (both.change.id, [part.change.id for part in both.parts]) == ("audit+rsyslog", ["audit", "rsyslog"])
    assert one == candidate("audit")
    with pytest.raises(UserInputError, match="no change 'no/thing'"):
        choice.for_machine(["audit+no/thing"])


def test_changes_are_made() -> None:
    assert changed("console-quiet").words == (
        "root=/dev/vda", "initcall_debug", "quiet", "loglevel=1", "systemd.show_status=0",
    )  # fmt: skip
    assert "systemd.mask=rsyslog.service" in changed("rsyslog").words
    assert changed("pci-or-mmio").board == "microvm"
    assert changed("memory").memory_bytes == 1 << 30
    assert changed("firmware").firmware == "qboot.rom"
    both = made(DIRECT, candidate("audit").change, candidate("rsyslog").change)
    assert both.words[-2:] == ("audit=0", "systemd.mask=rsyslog.service")
    (joined,) = choice.for_machine(["audit+rsyslog"])
    assert made(DIRECT, joined.change) == both
    lists = made(DIRECT, candidate("input-probes").change, candidate("modules-unused").change).words
    (modules,) = [word for word in lists if word.startswith("module_blacklist=")]
    assert modules.startswith("module_blacklist=psmouse,") and ",drm," in modules
    with pytest.raises(UserInputError, match="only with --kernel"):
        changed("audit", replace(DIRECT, kernel=None))


OTHER_WORDS = ("audit=1", "lsm=x", "module_blacklist=kvm,x", "systemd.mask=cron.service", "initcall_blacklist=a")


@pytest.mark.parametrize("name", [one.change.id for one in candidates() if one.change.id != "initrd-small"])
@pytest.mark.parametrize("words", [(), OTHER_WORDS])
def test_a_change_is_taken_back_by_its_own_settings(name: str, words: tuple[str, ...]) -> None:
    own = machine_for(candidate(name))
    before = replace(own, words=(*DIRECT.words, *words), cpu_model="max,-vmx", firmware="other.rom")
    after, (done,) = applied([candidate(name).change], before, MEANS)
    again, _ = applied([done.back], after, MEANS)
    assert sorted(again.words) == sorted(before.words)
    if any(one.kind is ChangeKind.CONFIG for one in done.settings):
        again = replace(again, kernel=before.kernel)  # it is compiled with the values that stood there
    assert replace(again, words=()) == replace(before, words=())
    for setting in done.settings:
        if setting.name in ("audit", "lsm"):
            assert setting.before == dict(word.split("=") for word in words).get(setting.name)


@pytest.mark.parametrize("kind", list(ChangeKind))
def test_every_kind_has_its_place(kind: ChangeKind) -> None:
    """It is applied, or refused in words that a person understands."""
    assert kind in HOW
    setting = Setting(kind, "none-such", "1")
    try:
        after, (done,) = applied([Change("x", "", (setting,))], DIRECT, Means(Path(), Path()))
    except UserInputError as error:
        assert kind is not ChangeKind.COMMAND_LINE
        assert kind.value.partition("-")[0] in error.message.replace("configuration", "config") or kind in (
            ChangeKind.ROOTFS, ChangeKind.UNIT,
        )  # fmt: skip
    else:
        assert kind is ChangeKind.COMMAND_LINE and after.words[-1] == "none-such=1" and done.setting.before is None


def test_what_is_expected_is_read_from_the_rows() -> None:
    timeline = Timeline(
        kernel=KernelInfo(),
        processes=[
            Process("rsyslogd", 5, 1, 0, 10, 10, 250_000, "samples"),
            Process("in:imuxsock", 6, 1, 0, 10, 10, 50_000, "samples"),
            Process("rsyslogd", 7, 1, 0, 10, 10, 9, "samples", observer=True),
            Process("other", 8, 1, 0, 10, 10, 900_000, "samples"),
        ],
        phases=(PhaseSpan("initrd", 1_000_000, 3_500_000, "x"),),
    )
    assert effects.expected_seconds(candidate("rsyslog"), timeline) == (0.3, "rsyslogd, in:imuxsock")
    assert effects.expected_seconds(candidate("initrd-small"), timeline) == (2.5, "phase initrd")
    assert effects.expected_seconds(candidate("cron"), timeline) == (None, "")
    two, unknown = choice.for_machine(["rsyslog+initrd-small", "rsyslog+cron"])
    assert effects.expected_seconds(two, timeline) == (2.8, "rsyslogd, in:imuxsock, phase initrd")
    assert effects.expected_seconds(unknown, timeline) == (None, "rsyslogd, in:imuxsock")


def test_instructions_to_expect_are_read_from_the_cost() -> None:
    cost = BootCost(
        "6.12", 1_000_000, 0, 0, 0, 0,
        (CostOfFunction("aes", "crypto/aes_generic.c", "CRYPTO_AES", 300_000),
         CostOfFunction("keccakf_round", "crypto/sha3_generic.c", "CRYPTO_SHA3", 30_000),
         CostOfFunction("deferred_init_maxorder", "mm/mm_init.c", "", 50_000)),
        (),
        (CostOfInitcall("inet6_init", "net/ipv6/af_inet6.c", "IPV6", 1, 77_000, 0),
         CostOfInitcall("jent_mod_init", "crypto/jitterentropy-kcapi.c", "CRYPTO_JITTERENTROPY", 2, 90_000, 0),
         CostOfInitcall("init_encrypted", "security/keys/x.c", "ENCRYPTED_KEYS", 3, 40_000, 0)),
        Helpers(count=5, for_tests=2, each=7_000),
    )  # fmt: skip

    def expected(name: str) -> tuple[float | None, str]:
        (one,) = choice.for_machine([name])
        return effects.expected_instructions(one, cost)

    lookups = 3 * 3_200  # counted, for each initcall that there is
    assert expected("ipv6") == (77_000, "inet6_init")
    assert expected("audit") == (None, "")
    assert expected("memory") == (25_000, "deferred_init_maxorder")
    assert expected("crypto-selftests") == (314_000, "2 helpers, aes")
    assert expected("initrd-small") == (35_000, "5 helpers")
    # Initcalls left out: the kernel looks up the names of all, once for all that are.
    assert expected("jitterentropy") == (90_000 - lookups, "jent_mod_init")
    assert expected("jitterentropy+encrypted-keys") == (130_000 - lookups, "jent_mod_init, init_encrypted")
    assert effects.expected_instructions(candidate("initrd-small"), replace(cost, helpers=Helpers())) == (None, "")


@pytest.mark.lengthy
def test_a_trial_from_prediction_to_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every boot is played alike, so nothing gets better; what breaks is said."""
    for name in ("k", "d"):
        (tmp_path / name).write_bytes(b"x")
    played.play(monkeypatch, tmp_path, [(0.0, "[    0.000000] Linux version 6.12.1 (x)\na login: ")])
    wanted = (candidate("audit"), candidate("memory"), candidate("initrd-small"))
    vm = replace(
        DIRECT, network=False, initrd=None, memory_bytes=512 << 20, kernel=str(tmp_path / "k"),
        disks=(Disk(str(tmp_path / "d"), mode=DiskMode.OVERLAID),),
    )  # fmt: skip
    work = OwnInit(parse_signal("login"), 10.0)
    found = boot_trials.on_machine("vm", vm, work, wanted, tmp_path, times=1, natives=Natives(tmp_path))
    by_id = {t.id: t for t in found.trials}
    assert set(by_id) == {"audit", "memory", "initrd-small"}
    assert by_id["memory"].problem == "the machine is like this already"
    assert by_id["initrd-small"].problem == "there is no initial RAM disk to rebuild"
    assert by_id["audit"].verdict in (Verdict.UNDECIDED, Verdict.SAME)
    assert by_id["audit"].measures(Figure.READY) is not None
    assert [(one.variant, one.boot.outcome) for one in found.boots] == [
        (n, Outcome.READY) for n in ("base", "audit", "base")
    ]
    with pytest.raises(UserInputError, match="symbols are known"):
        boot_trials.on_machine(
            "vm", vm, OwnInit(parse_signal("login"), 10.0), wanted, tmp_path, times=1, natives=Natives(tmp_path),
            judged_by=JudgedBy.INSTRUCTIONS,
        )  # fmt: skip


def test_on_the_instruction_clock_every_boot_settles_its_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One boot a side is enough there; a boot without the plugin would let virtual time depend on the host's disks."""
    booted = []

    class Played:
        def __init__(self, natives: Natives) -> None:
            pass

        def __call__(
            self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
        ) -> tuple[Boot, Gathered]:
            assert on_progress is not None
            on_progress(1.0)
            at_ns = 9_000_000_000 if "audit=0" in machine.words else 13_000_000_000
            ready = Milestone("ready", wall_s=1.0, virtual_ns=at_ns, executed=7_000_000)
            console = b"[    0.000000] Linux version 6.12.1 (x)\n"
            return Boot(Outcome.READY, (ready,), 1.0), replace(GATHERED, console=console)

    def on_boot(variant: str, number: int, seconds: float) -> None:
        booted.append(variant)

    monkeypatch.setattr(boot_trials, "Settled", Played)
    monkeypatch.setattr(boot_trials, "plain_boot", None)
    vm = replace(DIRECT, initrd=None, clock=Clock.INSTRUCTIONS)
    found = boot_trials.on_machine(
        "vm",
        vm,
        OwnInit(parse_signal("login"), 10.0),
        [candidate("audit")],
        tmp_path,
        times=1,
        natives=Natives(tmp_path),
        on_boot=on_boot,
    )
    assert booted == ["profile", "base", "audit", "control-1", "control-2"]
    assert [(t.verdict, t.measured[0].value) for t in found.trials] == [(Verdict.BETTER, -4.0)]
    text = io.StringIO()
    show(found, tmp_path, TerminalConsole(file=text, width=200))
    assert "judged by the virtual time of ready" in text.getvalue()
    assert f"{millions(7e6)} instructions from QEMU's start to ready" in text.getvalue()
    assert "a word that means nothing moves it by up to 0.000 s" in text.getvalue()


def test_the_command_is_pure_and_never_writes_the_disk() -> None:
    vm = replace(
        DIRECT, ports=on_loopback([22, 80]), disks=(Disk("/a,b.qcow2", DiskFormat.QCOW2, mode=DiskMode.OVERLAID),)
    )
    argv = command(vm)
    assert "if=none,id=disk0,file=/a,,b.qcow2,format=qcow2,snapshot=on" in argv
    assert "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22,hostfwd=tcp:127.0.0.1:0-:80" in argv
    assert argv[argv.index("-append") + 1] == "root=/dev/vda debug loglevel=7 initcall_debug"
    assert argv[argv.index("-icount") + 1] == "shift=auto" and argv.count("-serial") == 1
    counted = command(replace(vm, clock=Clock.INSTRUCTIONS, board="microvm"), Ends(probe=5))
    assert counted[counted.index("-icount") + 1] == "shift=0,sleep=off"
    # The board has one port: the second is a device.
    assert counted.count("-serial") == 1 and "isa-serial,index=1,chardev=probe" in counted
    assert "virtio-blk-device,drive=disk0,bus=virtio-mmio-bus.7" in counted


def test_disks_are_told_by_content(tmp_path: Path) -> None:
    raw, qcow, loader, ext4 = (tmp_path / name for name in ("raw", "qcow", "loader", "ext4"))
    raw.write_bytes(bytes(4096))
    qcow.write_bytes(b"QFI\xfb" + bytes(600))
    loader.write_bytes(b"\xeb\x63" + bytes(508) + b"\x55\xaa")
    ext4.write_bytes(bytes(1080) + b"\x53\xef" + bytes(4096))
    assert boot_disk.disk_of(raw).format is DiskFormat.RAW and not boot_disk.has_loader(boot_disk.disk_of(raw))
    assert boot_disk.disk_of(qcow).format is DiskFormat.QCOW2 and boot_disk.has_loader(boot_disk.disk_of(qcow))
    assert boot_disk.has_loader(boot_disk.disk_of(loader))
    assert small_initrd.file_system(boot_disk.disk_of(ext4)) == "ext4"
    assert small_initrd.file_system(boot_disk.disk_of(raw)) == small_initrd.file_system(boot_disk.disk_of(qcow)) == ""
    for bad in (tmp_path / "none", tmp_path):
        with pytest.raises(UserInputError):
            boot_disk.disk_of(bad)


MEMBERS = cpio([file("lib/modules/6/kernel/a.ko", b"A" * 100), file("init", b"I", 0o755)])


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_initial_ram_disks_are_read(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "initrd"
    path.write_bytes(cpio([file("early", b"microcode")]) + pack(MEMBERS))
    found = small_initrd.read(path)
    assert found == {"early": b"microcode", "lib/modules/6/kernel/a.ko": b"A" * 100, "init": b"I"}
    with_it = initrd_additions.with_collector(path, path, tmp_path / "out")
    assert small_initrd.read(with_it)[initrd_additions.COLLECTOR] == path.read_bytes()


@given(st.integers(0, len(MEMBERS)), st.binary(max_size=8))
def test_damaged_ram_disks_are_the_users_error(cut: int, junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "initrd"
        path.write_bytes(MEMBERS[:cut] + junk + MEMBERS[cut + len(junk) :])
        with contextlib.suppress(UserInputError):
            assert isinstance(small_initrd.read(path), dict)


def test_every_change_that_can_be_tried_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "advice.md").read_text()
    for one in candidates():
        assert f"`{one.change.id}`: {one.change.does}" in page, one.change.id
    for one in choice.untried():
        assert f"- **Not tried:** {one.change.problem}" in page, one.change.id


@pytest.mark.parametrize(
    ("clock", "judged_by", "changes", "times", "least"),
    [
        (Clock.WALL, JudgedBy.READY, 1, 3, 4),
        (Clock.WALL, JudgedBy.READY, 6, 2, 4),
        (Clock.WALL, JudgedBy.READY, 13, 1, 3),
        (Clock.WALL, JudgedBy.READY, 1, 4, None),
        (Clock.WALL, JudgedBy.CPU, 1, 1, 4),
        (Clock.WALL, JudgedBy.INSTRUCTIONS, 1, 1, None),
        (Clock.INSTRUCTIONS, JudgedBy.READY, 1, 1, None),
    ],
)
def test_boots_that_can_never_decide_are_said_beforehand(
    clock: Clock, judged_by: JudgedBy, changes: int, times: int, least: int | None
) -> None:
    said = machine_testbed.doubt(clock, judged_by, changes, times)
    assert (f"--repeat {least} " in said) if least else said == ""


@pytest.mark.parametrize(
    ("saved", "verdict"), [(0.03, Verdict.SAME), (0.06, Verdict.SAME), (0.3, Verdict.BETTER), (-0.3, Verdict.WORSE)]
)
def test_what_a_word_that_means_nothing_moves_is_no_saving(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, saved: float, verdict: Verdict
) -> None:
    def booted(at_s: float) -> tuple[Boot, Gathered]:
        ready = Milestone("ready", wall_s=1.0, virtual_ns=round(at_s * 1e9), executed=7_000_000)
        console = b"[    0.000000] Linux version 6.12.1 (x)\n"
        return Boot(Outcome.READY, (ready,), 1.0), replace(GATHERED, console=console)

    class Played:
        def __init__(self, natives: Natives) -> None:
            pass

        def __call__(self, machine: Machine, *_: object, **__: object) -> tuple[Boot, Gathered]:
            moved = 0.07 if machine_variants.PLACEBO_WORDS[1] in machine.words else 0.0
            return booted(13.27 + moved - (saved if "audit=0" in machine.words else 0.0))

    monkeypatch.setattr(boot_trials, "Settled", Played)
    vm, signal = replace(DIRECT, initrd=None, clock=Clock.INSTRUCTIONS), OwnInit(parse_signal("login"), 10.0)
    found = boot_trials.on_machine("vm", vm, signal, [candidate("audit")], tmp_path, times=1, natives=Natives(tmp_path))
    assert [one.verdict for one in found.trials] == [verdict]
    assert found.variants[0].name == machine_testbed.BASE and len(found.controls) == 2
    text = io.StringIO()
    show(found, tmp_path, TerminalConsole(file=text, width=200))
    assert "a word that means nothing moves it by up to 0.070 s" in text.getvalue()


def test_hardware_of_a_trial_is_on_both_sides_and_on_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A floppy controller costs a second, its driver half of it: neither is credited to another change."""
    seen: list[tuple[bool, bool]] = []

    class Played:
        def __init__(self, natives: Natives) -> None:
            pass

        def __call__(self, machine: Machine, *_: object, **__: object) -> tuple[Boot, Gathered]:
            has = trial_hardware.has(machine, "floppy")
            driver = has and "module_blacklist=floppy" not in machine.words
            seen.append((has, driver))
            at_s = 13.0 + 0.5 * has + 0.5 * driver - (0.3 if "audit=0" in machine.words else 0.0)
            ready = Milestone("ready", wall_s=1.0, virtual_ns=round(at_s * 1e9), executed=7_000_000)
            console = b"[    0.000000] Linux version 6.12.1 (x)\n"
            return Boot(Outcome.READY, (ready,), 1.0), replace(GATHERED, console=console)

    monkeypatch.setattr(boot_trials, "Settled", Played)
    vm, signal = replace(DIRECT, initrd=None, clock=Clock.INSTRUCTIONS), OwnInit(parse_signal("login"), 10.0)
    wanted = choice.for_machine(["floppy", "audit"])
    assert [one.change.id for one in wanted] == ["floppy", "floppy-away", "audit"]
    found = boot_trials.on_machine("vm", vm, signal, wanted, tmp_path, times=1, natives=Natives(tmp_path))
    assert seen[0] == (True, True), "the boot that shows more has the hardware, too"
    names = [one.name for one in found.variants]
    assert names[0] == machine_testbed.BASE and "base-floppy" in names and "control-floppy-1" in names
    assert {one.verdict for one in found.trials} == {Verdict.BETTER}
    measured = {one.id: one.measured[0].value for one in found.trials}
    # All that were better together are judged against the machine with a controller.
    expected = {"floppy": -0.5, "floppy-away": -1.0, "audit": -0.3, "together": -1.3}
    assert measured == pytest.approx(expected)
    assert len(found.controls) == 2
    text = io.StringIO()
    show(found, tmp_path, TerminalConsole(file=text, width=200))
    assert "a word that means nothing moves it by up to 0.000 s" in text.getvalue()
    alone = boot_trials.on_machine(
        "vm", vm, signal, choice.for_machine(["floppy"]), tmp_path / "x", times=1, natives=Natives(tmp_path)
    )
    assert alone.variants[0].name == "base-floppy" and len(alone.controls) == 2


def test_all_names_what_is_not_tried_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("k", "d"):
        (tmp_path / name).write_bytes(b"x")
    played.play(monkeypatch, tmp_path, [(0.0, "[    0.000000] Linux version 6.12.1 (x)\na login: ")])
    some = {"u-boot-delay", "nfc", "sound", "memory", "hw-random"}
    wanted = [one for one in choice.for_machine(["all"]) if one.change.id in some]
    vm = replace(
        DIRECT, board="microvm", network=False, initrd=None, memory_bytes=512 << 20, kernel=str(tmp_path / "k"),
        disks=(Disk(str(tmp_path / "d"), mode=DiskMode.OVERLAID),),
    )  # fmt: skip
    work = OwnInit(parse_signal("login"), 10.0)
    found = boot_trials.on_machine("vm", vm, work, wanted, tmp_path, times=1, natives=Natives(tmp_path))
    problems = {one.id: one.problem for one in found.trials}
    assert "no U-Boot runs before it" in problems["u-boot-delay"]
    assert "on a container's bundle only" in problems["nfc"]
    assert problems["sound"] == "the machine microvm cannot have a sound card (Intel HD Audio)"
    assert problems["memory"] == "the machine is like this already" and "is for arm" in problems["hw-random"]
    text = io.StringIO()
    show(found, tmp_path, TerminalConsole(file=text, width=200))
    assert text.getvalue().count("not tried") == 5 and problems["u-boot-delay"] in text.getvalue()


def test_long_names_of_variants_have_folders_of_their_own() -> None:
    long = "module_blacklist=" + "x" * 80
    first, second = series_run.safe(long + ",a"), series_run.safe(long + ",b")
    assert first != second and len(first) == len(second) == 60 and series_run.safe("audit=0") == "audit-0"


def test_there_are_controls_where_the_command_line_is_ours_and_boots_hardly_differ() -> None:
    counted = replace(DIRECT, clock=Clock.INSTRUCTIONS)
    found = machine_variants.controls(counted)
    assert [one.words for one in found] == [(*DIRECT.words, word) for word in machine_variants.PLACEBO_WORDS]
    assert not machine_variants.controls(DIRECT) and not machine_variants.controls(replace(counted, kernel=None))


@pytest.mark.parametrize(
    ("changes", "times", "expected"),
    [(1, 1, "u a v w"), (1, 2, "u a v a w"), (1, 4, "u a v a w a u a v"), (7, 1, "u a b c d e f v g w")],
)
def test_between_the_changed_machines_the_unchanged_ones_take_turns(changes: int, times: int, expected: str) -> None:
    unchanged = [series_run.variant(name, DIRECT) for name in "uvw"]
    changed = [series_run.variant(name, DIRECT) for name in "abcdefg"[:changes]]
    turns = machine_testbed.in_turn(unchanged, changed, times)
    assert " ".join(one.name for one, _ in turns) == expected
    assert len({(one.name, number) for one, number in turns}) == len(turns)


def test_a_counted_boot_leaves_what_each_function_took_beside_its_console(tmp_path: Path) -> None:
    counted = Boot(Outcome.READY, (), 1.0, functions=(
        FunctionCost("later", Phase.LOAD, 7), FunctionCost("dear", Phase.LOAD, 70), FunctionCost("not", Phase.LOAD, 0),
        FunctionCost("first", Phase.KERNEL, 5),
    ))  # fmt: skip
    schedule = [(series_run.variant("base", DIRECT), 1)]
    series_run.run("x", schedule, Nothing(1.0), tmp_path, booter=lambda *_, **__: (counted, GATHERED))
    table = (tmp_path / "base-1" / series_run.FUNCTIONS).read_text()
    assert table.splitlines() == [
        "phase\tfunction\tinstructions", "kernel\tfirst\t5", "load\tdear\t70", "load\tlater\t7",
    ]  # fmt: skip
