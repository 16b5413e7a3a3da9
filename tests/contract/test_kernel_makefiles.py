# SPDX-License-Identifier: Apache-2.0
"""Our reading of the Makefiles against kbuild's own, file by file, for whole configurations; nothing is compiled.

Each configuration gives some 25 000 facts: every file is compiled into the kernel, into a module, or not at all.
`$VMTAILOR_TEST_SEEDS` is how many random configurations are tried a series: one unless it is set, with the
tree's own default configuration beside them where it is.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from pathlib import Path

import pytest
from tests.packaged_series import each_series, packaged_source

from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.expr import UNKNOWN, truth
from vmtailor.analysis.ksource.kbuild import Compiled, compiled_files
from vmtailor.base.files import dot_config
from vmtailor.base.process import run

pytestmark = pytest.mark.contract

MAKEFILES = Path(__file__).parents[1] / "data/kbuild"
FEW = (
    "64BIT",
    "EXPERT",
    "NET",
    "INET",
    "IPV6",
    "BLOCK",
    "PCI",
    "VIRTIO_MENU",
    "VIRTIO_PCI",
    "EXT4_FS",
    "TTY",
    "PRINTK",
)
SEEDS = range(1, 1 + int(os.environ.get("VMTAILOR_TEST_SEEDS", "1")))

#: What cannot be told without a shell, by the files it decides about: certificates that the user may have added.
NOT_KNOWN = {"net/wireless/extra-certs"}


@pytest.fixture(scope="module", params=each_series())
def source(request: pytest.FixtureRequest) -> Path:
    return packaged_source(request.param)


@pytest.fixture(scope="module")
def read(source: Path) -> dict[str, Compiled]:
    return compiled_files(ksource_facts.reader(source), "x86")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """One folder for the results of all configurations of a tree, so that its tools are made once."""
    return tmp_path_factory.mktemp("objects")


def configure(source: Path, objects: Path, target: str, symbols: tuple[str, ...], **env: str) -> dict[str, str]:
    """Make a configuration over `target`, with some symbols y, and say what is set: symbol → y or m."""
    preset = objects / "preset"
    preset.write_text("".join(f"CONFIG_{name}=y\n" for name in symbols))
    (objects / ".config").unlink(missing_ok=True)
    whole = {**os.environ, **({"KCONFIG_ALLCONFIG": str(preset)} if symbols else {}), **env}
    for goal in (target, "syncconfig"):
        run(["make", "-s", "-C", str(source), f"O={objects}", goal], timeout_s=300, env=whole)
    return {n: v for n, v in dot_config.parse((objects / ".config").read_text()).items() if v in ("y", "m")}


def kbuild_says(source: Path, objects: Path) -> dict[str, str]:
    """Source path without ending → y or m, as the tree's own Makefiles have it for the configuration in `objects`."""
    argv = [
        "make", "-s", "-j2", "-rR", "--no-print-directory", f"--include-dir={source}", "-C", str(objects),
        "-f", str(MAKEFILES / "top.mk"),
        "sub_make_done=1", f"abs_srctree={source}", f"abs_objtree={objects}",
        f"build=-f {MAKEFILES / 'says.mk'} obj", "vmtailor-top",
    ]  # fmt: skip
    said = objects / "says"
    shutil.rmtree(said, ignore_errors=True)
    said.mkdir()
    run(argv, timeout_s=300)
    found: dict[str, str] = {}
    for line in (line for one in said.iterdir() for line in one.read_text().splitlines()):
        state, *names = line.split()
        assert state in ("y", "m"), line
        for name in names:
            stem = posixpath.normpath(name).removesuffix(".o").removesuffix(".stub")
            found[stem] = "y" if state == "y" else found.get(stem, "m")
    return found


def we_say(one: Compiled | None, enabled: dict[str, str]) -> str:
    """y, m or n, and ? where that is not known."""
    if one is None:
        return "n"
    builtin, module = truth(one.builtin, enabled), truth(one.module, enabled)
    if builtin is None or (builtin is False and module is None):
        return "?"
    return "y" if builtin else "m" if module else "n"


def compare(source: Path, objects: Path, read: dict[str, Compiled], enabled: dict[str, str], least: int) -> None:
    made = kbuild_says(source, objects)
    assert len(made) > least
    ours = {stem: we_say(read.get(stem), enabled) for stem in read.keys() | made.keys()}
    wrong = {stem: (said, made.get(stem, "n")) for stem, said in ours.items() if said not in ("?", made.get(stem, "n"))}
    assert wrong == {}, "(ours, kbuild's)"
    assert {stem for stem, said in ours.items() if said == "?"} <= NOT_KNOWN


def test_nothing_but_a_few_symbols(source: Path, objects: Path, read: dict[str, Compiled]) -> None:
    compare(source, objects, read, configure(source, objects, "allnoconfig", FEW), 700)


@pytest.mark.skipif(len(SEEDS) == 1, reason="VMTAILOR_TEST_SEEDS asks for more than the fast test")
def test_what_a_default_configuration_builds(source: Path, objects: Path, read: dict[str, Compiled]) -> None:
    compare(source, objects, read, configure(source, objects, "x86_64_defconfig", ()), 2000)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_configuration(source: Path, objects: Path, read: dict[str, Compiled], seed: int) -> None:
    enabled = configure(
        source, objects, "randconfig", ("64BIT", "MODULES"), KCONFIG_SEED=str(100 + seed), KCONFIG_PROBABILITY="20:25"
    )
    assert "m" in enabled.values()
    compare(source, objects, read, enabled, 1500)


def test_nearly_all_conditions_are_known(read: dict[str, Compiled]) -> None:
    assert len(read) > 24_000
    assert [stem for stem, one in read.items() if one.at_all == UNKNOWN] == []
    assert {stem for stem, one in read.items() if "?" in str(one.at_all)} == NOT_KNOWN
