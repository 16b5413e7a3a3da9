# SPDX-License-Identifier: Apache-2.0
"""A made-up record of a fit, for tests of what is shown. Its sizes are plausible; none of its figures was measured."""

from __future__ import annotations

import dataclasses

from tests.fakes.plan_data import plan

from vmtailor.model.boots.boot import FunctionCost, Phase, PhaseCounts
from vmtailor.model.change import Cause, Change, ChangeKind, Figure, Reason, Setting, Verdict, exact, symbol
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.exercise import Exercise, Expect, Proof, Ready, ReadyKind, Step, StepKind
from vmtailor.model.fit_run import EmulationLoop, FitRun, Part, Side, Untouched, Warning
from vmtailor.model.image import HealthCheck, ImageConfig, Port
from vmtailor.model.kernel import FoundKernel
from vmtailor.model.margin import Margin, MarginPrice
from vmtailor.model.reach import Lack, Nearness
from vmtailor.model.syscalls import CallSummary, FailedCall
from vmtailor.model.trial import Purpose, Trial

BASE_SUBSYSTEMS = {
    "crypto": 612_400_118,
    "lib": 171_220_904,
    "arch/x86": 148_200_031,
    "mm": 96_730_412,
    "drivers/acpi": 61_904_227,
    "kernel": 58_110_960,
    "fs": 41_800_300,
    "drivers/base": 37_204_118,
    "drivers/tty": 30_040_552,
    "security": 22_190_460,
    "net": 17_402_233,
    "drivers/pci": 11_020_145,
    "init": 9_804_110,
    "drivers/virtio": 4_120_988,
    "block": 3_902_114,
}
OWN_SUBSYSTEMS = {
    "arch/x86": 118_640_210,
    "mm": 6_204_381,
    "lib": 5_120_662,
    "fs": 3_420_118,
    "kernel": 3_301_927,
    "drivers/tty": 1_204_400,
    "net": 1_140_210,
    "init": 480_114,
    "drivers/virtio": 402_118,
    "drivers/base": 360_209,
    "block": 204_418,
}


def _phases(scale: dict[Phase, tuple[int, int, int, int]]) -> tuple[PhaseCounts, ...]:
    return tuple(
        PhaseCounts(phase, *counts, 4_000 // (i + 1), 900 * i) for i, (phase, counts) in enumerate(scale.items())
    )


def _functions(rows: list[tuple[str, Phase, int]]) -> tuple[FunctionCost, ...]:
    return tuple(FunctionCost(*row) for row in rows)


def _conditions(kernel: str) -> tuple[tuple[str, str], ...]:
    return (
        ("accelerator", "tcg"),
        ("machine", "microvm"),
        ("cpus", "1"),
        ("cpu model", "max"),
        ("memory", "256 MiB"),
        ("kernel", kernel),
        ("qemu", "7.2.22"),
        ("root file system", "erofs"),
    )


def baseline() -> Side:
    """The packaged kernel's side."""
    label = "Debian 6.12.117-1 cloud-amd64"
    return Side(
        name="baseline",
        kernel=label,
        kernel_file="vmlinuz-6.12.117+deb12-cloud-amd64",
        symbols_y=2411,
        symbols_prompted=1402,
        kernel_bytes=11_702_272,
        kernel_compressed_bytes=11_702_272,
        boots=3,
        init_instructions=1_355_210_118,
        init_instructions_net=1_244_990_804,
        reset_instructions=2_083_402_560,
        reset_instructions_net=1_973_183_246,
        ready_instructions=1_402_660_482,
        init_virtual_us=1_355_210.1,
        ready_virtual_us=1_610_204.2,
        device_accesses=48_210,
        device_accesses_net=9_210,
        requests=220,
        request_kernel_instructions=84_210.4,
        request_user_instructions=21_900.0,
        min_memory_bytes=112 << 20,
        init_wall_us=4_310_000.0,
        ready_wall_us=5_204_000.0,
        phases=_phases(
            {
                Phase.FIRMWARE: (728_192_442, 0, 0, 0),
                Phase.KERNEL: (1_354_904_118, 306_000, 0, 0),
                Phase.INIT: (9_402_118, 180_224, 0, 0),
                Phase.START_UP: (22_104_962, 15_763_060, 4_204_118, 1_220_402),
                Phase.LOAD: (18_526_288, 4_818_000, 30_204_110, 9_240_118),
                Phase.STOP: (8_204_336, 420_118, 0, 0),
            }
        ),
        functions=_functions(
            [
                ("sha512_transform", Phase.KERNEL, 210_402_118),
                ("setup_boot_APIC_clock", Phase.KERNEL, 108_004_110),
                ("crypto_ed25519_test", Phase.KERNEL, 96_402_551),
                ("ecdsa_verify", Phase.KERNEL, 88_102_114),
                ("memset_orig", Phase.KERNEL, 41_220_118),
                ("acpi_ps_parse_loop", Phase.KERNEL, 20_118_402),
                ("__orc_find", Phase.KERNEL, 18_204_118),
                ("serial8250_console_putchar", Phase.KERNEL, 11_204_118),
                ("tcp_sendmsg_locked", Phase.LOAD, 2_204_118),
            ]
        ),
        subsystems=tuple(BASE_SUBSYSTEMS.items()),
        initcalls=(
            ("crypto_algapi_init", 611_204_118),
            ("acpi_init", 58_204_118),
            ("populate_rootfs", 44_118_204),
            ("serial8250_init", 30_018_204),
            ("pci_subsys_init", 11_020_145),
            ("inet_init", 4_402_118),
            ("ftrace_init", 3_920_118),
            ("virtio_mmio_init", 902_118),
        ),
        symbol_costs=(
            ("CRYPTO_MANAGER_EXTRA_TESTS", 612_000_000),
            ("ACPI", 61_904_227),
            ("BLK_DEV_INITRD", 44_118_204),
            ("X86_LOCAL_APIC", 108_004_110),
            ("SERIAL_8250_CONSOLE", 30_040_552),
            ("PCI", 11_020_145),
            ("INET", 9_402_118),
        ),
        loops=(
            EmulationLoop(
                "APIC timer calibration", 108_004_110, "waits for jiffies to pass; KVM guests have a deadline timer"
            ),
            EmulationLoop("TSC calibration", 2_215_204, "reads the PIT until it wraps"),
        ),
        spread=(("init_instructions", 0.0), ("ready_instructions", 0.0), ("request_kernel_instructions", 0.0)),
        conditions=_conditions(label),
        wall_conditions=(("accelerator", "tcg"),),
    )


def tailored() -> Side:
    """The fitted kernel's side."""
    label = "6.12.117 tailored"
    return Side(
        name="tailored",
        kernel=label,
        kernel_file="vmlinux",
        symbols_y=527,
        symbols_prompted=104,
        kernel_bytes=8_402_112,
        kernel_compressed_bytes=3_204_118,
        boots=3,
        init_instructions=134_906_240,
        init_instructions_net=26_902_130,
        reset_instructions=134_912_402,
        reset_instructions_net=26_908_292,
        ready_instructions=151_402_118,
        init_virtual_us=134_906.2,
        ready_virtual_us=240_118.0,
        device_accesses=2_118,
        device_accesses_net=1_018,
        requests=220,
        request_kernel_instructions=61_204.2,
        request_user_instructions=21_880.0,
        min_memory_bytes=22 << 20,
        init_wall_us=412_000.0,
        ready_wall_us=690_000.0,
        phases=_phases(
            {
                Phase.FIRMWARE: (6_162, 0, 0, 0),
                Phase.KERNEL: (134_906_240, 0, 0, 0),
                Phase.INIT: (1_204_118, 90_112, 0, 0),
                Phase.START_UP: (5_118_204, 10_083_444, 3_102_118, 1_220_402),
                Phase.LOAD: (13_464_924, 4_813_600, 22_204_110, 9_240_118),
                Phase.STOP: (2_204_118, 402_118, 0, 0),
            }
        ),
        functions=_functions(
            [
                ("setup_boot_APIC_clock", Phase.KERNEL, 108_004_110),
                ("memset_orig", Phase.KERNEL, 3_204_118),
                ("memmap_init_range", Phase.KERNEL, 3_002_118),
                ("blake2s_compress_generic", Phase.KERNEL, 2_704_118),
                ("tcp_sendmsg_locked", Phase.LOAD, 1_904_118),
                ("erofs_read_folio", Phase.START_UP, 904_118),
            ]
        ),
        subsystems=tuple(OWN_SUBSYSTEMS.items()),
        initcalls=(
            ("inet_init", 2_118_204),
            ("serial8250_init", 1_018_204),
            ("virtio_mmio_init", 402_118),
            ("erofs_module_init", 118_204),
            ("init_overlay_fs", 20_118),
        ),
        symbol_costs=(
            ("X86_LOCAL_APIC", 108_004_110),
            ("INET", 2_402_118),
            ("SERIAL_8250_CONSOLE", 1_204_400),
            ("VIRTIO_BLK", 402_118),
        ),
        loops=(
            EmulationLoop(
                "APIC timer calibration", 108_004_110, "waits for jiffies to pass; KVM guests have a deadline timer"
            ),
        ),
        spread=(("init_instructions", 0.0), ("ready_instructions", 0.0), ("request_kernel_instructions", 0.0)),
        conditions=_conditions(label),
        wall_conditions=(("accelerator", "tcg"),),
    )


#: Folder, what was measured, what is expected of each symbol that was left out there.
LEDGER: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("crypto", -612_400_000, {"CRYPTO_MANAGER_EXTRA_TESTS": -612_000_000}),
    ("init", -180_402_118, {"BLK_DEV_INITRD": -150_000_000}),
    ("drivers/acpi", -151_204_118, {"ACPI": -151_000_000}),
    ("lib", -262_482_438, {}),
    ("kernel", -12_000_000, {"FTRACE": -60_000_000, "KPROBES": -21_990_804, "AUDIT": 0}),
    ("fs/overlayfs", 400_000, {}),
    ("block", 0, {}),
)


def _folder(name: str, measured: int, symbols: dict[str, int]) -> Change:
    figure = Figure.INIT_INSTRUCTIONS_NET
    return Change(
        name,
        "",
        tuple(Setting(ChangeKind.CONFIG, one, "n", "y") for one in symbols),
        expected=tuple(exact(figure, cost, one) for one, cost in symbols.items()),
        measured=(exact(figure, measured),),
        verdict=Verdict.BETTER if measured < 0 else Verdict.WORSE if measured else Verdict.SAME,
    )


def _direct() -> Change:
    step = Setting(ChangeKind.MACHINE, "kernel", "vmlinux", "vmlinuz")
    measured = (exact(Figure.BEFORE_KERNEL, -728_186_280), exact(Figure.KERNEL_BYTES, -3_300_160))
    return Change("direct-kernel", "entered directly", (step,), measured=measured, verdict=Verdict.BETTER)


def fit_run(**changes: object) -> FitRun:
    """The whole record; keyword arguments replace fields of it."""
    run = FitRun(
        version="0.1.0",
        command="vmtailor fit oci:images/lighttpd --exercise lighttpd.toml -o out",
        bundle="out",
        reference="oci:images/lighttpd",
        image_digest="sha256:" + "5e" * 32,
        image=ImageConfig(
            "amd64",
            entrypoint=("/usr/sbin/lighttpd", "-D"),
            cmd=("-f", "/etc/lighttpd/lighttpd.conf"),
            user="www-data",
            exposed_ports=(Port(80),),
            health_check=HealthCheck(("/bin/sh", "-c", "wget -q -O- http://127.0.0.1/")),
        ),
        exercise=Exercise(
            "lighttpd.toml",
            Ready(ReadyKind.HTTP, Step(StepKind.HTTP, 80, path="/", expect=Expect(status=200))),
            (
                Step(StepKind.HTTP, 80, path="/", repeat=200, expect=Expect(status=200, contains="It works")),
                Step(StepKind.HTTP, 80, path="/big.bin", repeat=20, expect=Expect(status=200, sha256="ab" * 32)),
            ),
        ),
        plan=plan(),
        baseline=baseline(),
        tailored=tailored(),
        verified=True,
        degraded=(),
        trials=(
            Trial(
                1,
                Purpose.FIRST,
                (),
                False,
                ("inotify_init1() answered ENOSYS, on the baseline it worked",),
                402.4,
                11.2,
            ),
            Trial(2, Purpose.REPAIR, (symbol("INOTIFY_USER", "y", before="n"),), True, (), 21.6, 11.0),
            Trial(3, Purpose.UNNEEDED, (symbol("AIO", "n", before="y"),), True, (), 20.0, 9.8),
        ),
        ledger=(_direct(), *(_folder(*row) for row in LEDGER)),
        remainder=(
            Part("code that is always built", 230_000_000, 26_000_000),
            Part("code of symbols that both kernels have", 20_000_000, 902_130),
        ),
        unexplained=(),
        untouched=Untouched(
            1840,
            96,
            ("/usr/lib/x86_64-linux-gnu/libicudata.so.72", "/usr/bin/perl", "/usr/share/doc/lighttpd/README"),
            (443,),
        ),
        calls=(
            CallSummary("lighttpd", "epoll_wait", 402, (), 1e-6, 2.1e-3, 0.4, ((0, "5"), (2, "1025"))),
            CallSummary("sh", "wait4", 2, (), 1e-3, 2e-3, 3e-3, ()),
            CallSummary("lighttpd", "openat", 61, (("ENOENT", 12),), 2e-6, 9e-6, 4e-5, ((0, "AT_FDCWD"),)),
            CallSummary("lighttpd", "sendfile", 220, (), 8e-6, 4.1e-5, 2e-4, ()),
            CallSummary(
                "lighttpd", "accept4", 441, (("EAGAIN", 221),), 1e-6, 3e-6, 2e-5, ((3, "SOCK_CLOEXEC|SOCK_NONBLOCK"),)
            ),
        ),
        warnings=(
            Warning("exercise-narrow", "port 443 is exposed and was never answered; add a step for it to the exercise"),
        ),
        stage_seconds=(
            ("image", 1.2),
            ("trace", 71.4),
            ("plan", 22.8),
            ("build", 424.0),
            ("verify", 32.0),
            ("measure", 96.0),
        ),
        sources=(
            ("kernel source", "linux-source-6.12 6.12.117-1 (Debian)"),
            ("image", "sha256:" + "5e" * 32),
            ("gcc", "12.2.0"),
        ),
        proof=Proof.LOAD,
        prices=(
            MarginPrice((), 60, 480, 210, note="not measured: its kernel is not in the cache"),
            MarginPrice((Margin.REACHABLE,), 62, 490, 224, 4_700_000, 26_900_000, 16 << 20, chosen=True),
            MarginPrice((Margin.SERVER,), 84, 512, 262, 5_100_000),
            MarginPrice((Margin.REACHABLE, Margin.SERVER), 84, 512, 262, 5_100_000, 31_000_000, 17 << 20),
        ),
        lacks=(
            Lack(
                "SYSVIPC", ("SYSVIPC",), Nearness.LED_TO, ("shmget", "semop"), ("/usr/bin/perl",), "imports shmget",
                to_init=12_300,
            ),
            Lack("IA32_EMULATION", ("IA32_EMULATION",), Nearness.IN_IMAGE, ("ELF32",), ("/usr/bin/old",), "is 32-bit"),
        ),
        found_kernel=FoundKernel(True, "oci:images/nginx", 3, "0123456789ab"),
    )  # fmt: skip
    return dataclasses.replace(run, **changes)  # type: ignore[arg-type]


HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>&amp;\u2028{{7*7}}[red]"


def hostile_run() -> FitRun:
    """A record in which every string that an image or a guest can choose tries to be markup."""
    run = fit_run()
    assert run.image is not None
    return dataclasses.replace(
        run,
        reference=f"oci:{HOSTILE}",
        bundle=f"/tmp/{HOSTILE}",
        command=f"vmtailor fit {HOSTILE}",
        image=dataclasses.replace(run.image, entrypoint=(HOSTILE,), user=HOSTILE),
        degraded=(FailedCall(HOSTILE, HOSTILE, "ENOSYS"),),
        calls=(CallSummary(HOSTILE, "read", 1, ((HOSTILE, 1),), 0.0, 0.0, 0.0, ((0, HOSTILE),)),),
        trials=(Trial(1, Purpose.REPAIR, (symbol(HOSTILE, "y"),), False, (HOSTILE,), 1.0, 1.0),),
        ledger=(dataclasses.replace(_folder(HOSTILE, -5, {HOSTILE: -4}), does=HOSTILE),),
        untouched=Untouched(2, 1, (HOSTILE,), (80,)),
        warnings=(Warning(HOSTILE, HOSTILE),),
        unexplained=(HOSTILE,),
        lacks=(Lack(HOSTILE, (HOSTILE,), Nearness.OPENED, (HOSTILE,), (HOSTILE,), HOSTILE),),
        found_kernel=FoundKernel(True, HOSTILE, 2, HOSTILE),
        prices=(MarginPrice((), 1, 1, 1, note=HOSTILE, chosen=True),),
        tailored=dataclasses.replace(
            run.tailored,
            kernel=HOSTILE,
            initcalls=((HOSTILE, 5),),
            subsystems=((HOSTILE, 5),),
            functions=_functions([(HOSTILE, Phase.KERNEL, 5)]),
            loops=(EmulationLoop(HOSTILE, 5, HOSTILE),),
            conditions=((HOSTILE, HOSTILE),),
        ),
        plan=dataclasses.replace(
            run.plan,
            changes=(
                *run.plan.changes,
                symbol("HOSTILE", "y", Reason(Cause.DEMANDED, HOSTILE, HOSTILE)),
                dataclasses.replace(
                    symbol(HOSTILE, "n", before="y"),
                    evidence=(Evidence(EvidenceKind.CODE, HOSTILE, Strength.RAN, HOSTILE),),
                    expected=(exact(Figure.TRACE_INSTRUCTIONS, -5),),
                ),
            ),
        ),
        sources=((HOSTILE, HOSTILE),),
    )
