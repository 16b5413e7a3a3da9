# SPDX-License-Identifier: Apache-2.0
"""Trees of published programs are built as users have them: a checkout, with the real autotools; sources that define
one name in several files, with today's linker. The trees are small, with the same build systems; they are not the real
ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmtailor.base.errors import HostError
from vmtailor.bench.suites import published_sets
from vmtailor.bench.suites.bench_run import BenchRun
from vmtailor.bench.suites.published_sets import IOZONE, NETPERF, built, check, flags_of, tree_facts

CONFIGURE_AC = """\
AC_INIT([netperf], [1])
AM_INIT_AUTOMAKE([foreign subdir-objects])
AC_PROG_CC
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""
MAKEFILE_AM = """\
bin_PROGRAMS = src/netperf src/netserver
src_netperf_SOURCES = src/netperf.c src/nettest.c
src_netserver_SOURCES = src/netserver.c src/nettest.c
"""
#: As the published makefile has them: a target for each system, the user's flags last.
MAKEFILE = """\
linux: iozone.o libbif.o
\tcc -O3 iozone.o libbif.o -o iozone
iozone.o: iozone.c
\tcc -c -O3 -Dlinux $(CFLAGS) iozone.c -o iozone.o
libbif.o: libbif.c
\tcc -c -O3 -Dlinux $(CFLAGS) libbif.c -o libbif.o
"""
#: A variable in a header, which each file that includes it then defines: a linker took that once.
HEADER, FILE = "int debug_level;\n", '#include "shared.h"\nint {name}(void) {{ return debug_level; }}\n'


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def a_run(folder: Path) -> BenchRun:
    folder.mkdir()
    return cast(BenchRun, SimpleNamespace(folder=folder, built={}))


def checkout(folder: Path) -> Path:
    return written(
        folder,
        {
            "configure.ac": CONFIGURE_AC, "Makefile.am": MAKEFILE_AM, "src/shared.h": HEADER,
            "src/netperf.c": FILE.format(name="main"), "src/netserver.c": FILE.format(name="main"),
            "src/nettest.c": FILE.format(name="test"),
        },
    )  # fmt: skip


def iozone(folder: Path, second: str = FILE.format(name="second")) -> Path:
    files = {"makefile": MAKEFILE, "shared.h": HEADER, "iozone.c": FILE.format(name="main"), "libbif.c": second}
    return written(folder, files)


def test_a_checkout_of_netperf_is_configured_and_linked(tmp_path: Path) -> None:
    tree, run = checkout(tmp_path / "tree"), a_run(tmp_path / "scope")
    assert check(NETPERF, tree) == tree
    made = built(NETPERF, str(tree), run)
    assert (made.folder / "src/netperf").is_file() and (made.folder / "src/netserver").is_file()
    assert "-fcommon" in made.flags and not (tree / "configure").exists()  # it was made in a copy
    assert built(NETPERF, str(tree), run) is made


def test_a_checkout_is_named_as_such_where_autotools_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_sets, "on_path", lambda name: None if "auto" in name else f"/usr/bin/{name}")
    with pytest.raises(HostError, match=r"checkout without configure, which autoconf and automake would make") as found:
        built(NETPERF, str(checkout(tmp_path / "tree")), a_run(tmp_path / "scope"))
    assert "autoconf" in found.value.hint


def test_iozone_links_with_todays_compilers_and_says_by_which_flag(tmp_path: Path) -> None:
    tree, run = iozone(tmp_path / "src/current"), a_run(tmp_path / "scope")
    facts = dict(tree_facts(IOZONE, str(tree), run, "IOzone"))
    assert facts["IOzone flags"] == "-O3 -Dlinux -O2 -fcommon"  # the first build said the same without the last two


def test_what_cannot_be_built_says_why_each_time(tmp_path: Path) -> None:
    broken = '#include "shared.h"\nint second(void) { return absent(); }\nint main(void) { return 0; }\n'
    tree, run = iozone(tmp_path / "tree", broken), a_run(tmp_path / "scope")
    said = []
    for _ in range(2):  # each trial asks again: the first one's reason, not that a folder exists
        with pytest.raises(HostError, match=r"IOzone could not be built: .*multiple definition of `main'") as found:
            built(IOZONE, str(tree), run)
        said.append(found.value)
    assert said[0] is said[1] and "by hand" in said[0].hint


def test_flags_are_those_of_the_first_compilation() -> None:
    said = (
        "mkdir -p pgms\n/usr/bin/gcc -o ./pgms/dhry2reg -Wall -O3 -march=native -DREG=register ./src/dhry_1.c\ncc -O1 x"
    )
    assert flags_of(said) == "-Wall -O3 -march=native -DREG=register"
    assert flags_of("copied\n") == "" and flags_of("gcc\n") == ""
    any_: Any = "\x1b]0;x\x07"
    assert "\x1b" not in flags_of(f"gcc -O2{any_}")
