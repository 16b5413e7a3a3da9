# SPDX-License-Identifier: Apache-2.0
"""What real compilers make of small programs, and what is read of it. About ten seconds."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.reach import contents, file_requests
from vmtailor.analysis.reach.contents import Contents, FileKind
from vmtailor.analysis.reach.elf_file import ElfFile
from vmtailor.base.files.elf import NoElf
from vmtailor.model import architecture

pytestmark = pytest.mark.contract
CODE = architecture.of_host().code
WANTED = file_requests.wanted(demand_rules.load(), {"AF_UNIX", "AF_INET6"})

#: A system call, as each processor makes it.
CALLS = {
    "x86_64": """
static long call(long number, long one) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one) : "rcx", "r11", "memory");
    return result;
}
""",
    "arm64": """
static long call(long number, long one) {
    register long at asm("x8") = number;
    register long first asm("x0") = one;
    __asm__ volatile("svc #0" : "+r"(first) : "r"(at) : "memory");
    return first;
}
""",
}
LIBRARY = """
long raw(long number, long one) { return call(number, one); }
long c20(void) { return call(20, 0); }
long c21(void) { return call(21, 0); }
long c22(void) { return c21() + 1; }
long c23(void) { return call(23, 0); }
long c24(void) { return call(24, 0); }
long c25(void) { return call(25, 0); }
long c26(void) { return call(26, 0); }
long c27(void) { return call(27, 0); }
static long hidden(void) { return call(28, 0); }
long (*const table[])(void) = {hidden, c27};
long through_table(int at) { return table[at](); }
long c29(void) { return raw(29, 1); }
const char *where(void) { return "/proc/self/status"; }
"""
PROGRAM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
const char *names[] = {"AF_UNIX", "MY AF_INET6", "/proc/meminfo"};
int main(int argc, char **argv) {
    struct flock lock = {0};
    (void)names;
    if (argc > 1) { fcntl(argc, F_SETLK, &lock); socket(AF_INET6, SOCK_STREAM, 0); }
    return FLOCK(argc, LOCK_EX) + (int)syscall(289, argc);
}
"""


@pytest.fixture(params=sorted(CALLS))
def compiler(request: pytest.FixtureRequest) -> tuple[architecture.Architecture, str]:
    """A processor, and what compiles for it here."""
    row = architecture.named(request.param)
    program = "gcc" if row.is_host else f"{row.kernel.cross}gcc"
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")
    return row, program


def built(folder: Path, source: str, *options: str, compiler: str = "gcc") -> bytes:
    (folder / "a.c").write_text(source)
    subprocess.run([compiler, "-O2", "-o", "a.out", "a.c", *options], cwd=folder, check=True)
    return (folder / "a.out").read_bytes()


def read(data: bytes, row: architecture.Architecture | None = None) -> Contents:
    return contents.read(data, CODE if row is None else row.code, WANTED)


def numbers(found: Contents, name: str) -> set[int]:
    assert found.functions is not None
    return {number for number, _ in found.called[found.functions[name]].numbers}


def test_a_library_is_told_function_by_function(
    tmp_path: Path, compiler: tuple[architecture.Architecture, str]
) -> None:
    row, program = compiler
    options = ("-shared", "-fPIC", "-Wl,-soname,libtiny.so")
    library = read(built(tmp_path, CALLS[row.name] + LIBRARY, *options, compiler=program), row)
    assert library.soname == "libtiny.so" and library.library
    assert numbers(library, "c20") == {20} and numbers(library, "c22") == {21}
    assert numbers(library, "c29") == {29}, "through a function that takes the number"
    assert numbers(library, "through_table") == {27, 28}, "through a table of pointers"
    assert library.takers == (("raw", 0),)
    assert library.functions is not None
    assert library.called[library.functions["where"]].strings == ("/proc/self/status",)


def test_a_program_s_imports_arguments_and_strings_are_told(
    tmp_path: Path, compiler: tuple[architecture.Architecture, str]
) -> None:
    row, program = compiler
    found = read(built(tmp_path, PROGRAM, "-DFLOCK=flock", compiler=program), row)
    assert found.kind is FileKind.ELF and found.functions is None and "libc.so.6" in found.needed
    assert {"flock", "syscall", "socket"} <= set(found.imports)
    assert found.interpreter.startswith("/") and found.paths == ("/proc/meminfo",) and found.words == ("AF_UNIX",)
    given = {one.name.removesuffix("64"): dict(one.constants) for one in found.given}
    assert given["fcntl"][1] == 6 and given["socket"][0] == 10 and given["syscall"][0] == 289


def test_removing_an_import_removes_it_and_nothing_else(tmp_path: Path) -> None:
    both = read(built(tmp_path, PROGRAM, "-DFLOCK=flock"))
    one = read(built(tmp_path, PROGRAM, "-DFLOCK(a,b)=(a)"))
    assert set(both.imports) - set(one.imports) == {"flock"}


@pytest.mark.parametrize("stripped", [False, True])
def test_a_static_program_is_told_from_its_entry_on(tmp_path: Path, stripped: bool) -> None:
    source = '#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n'
    found = read(built(tmp_path, source, "-static", *(["-s"] if stripped else []), compiler="musl-gcc"))
    own = {number for number, _ in found.own.numbers}
    assert {1, 20, 231} & own and not {41, 56, 57, 59} & own, "no socket, no clone, no fork, no execve"
    assert not found.imports and not found.paths


def test_the_c_library_of_this_host_leads_where_its_functions_say() -> None:
    path = next(p for p in (Path("/lib/x86_64-linux-gnu/libc.so.6"), Path("/lib64/libc.so.6")) if p.exists())
    found = read(path.read_bytes())
    assert numbers(found, "flock") == {73} and numbers(found, "alarm") == {37}
    assert {41, 42, 59} & numbers(found, "qsort") == set(), "sorting neither connects nor executes"
    assert 41 in numbers(found, "getaddrinfo") and 59 in numbers(found, "system")
    assert ("syscall", 0) in found.takers
    assert found.functions is not None
    assert "/bin/sh" in found.called[found.functions["system"]].strings


# ---- files of strangers


@pytest.mark.attack
def test_no_damage_of_an_elf_file_hurts(tmp_path: Path) -> None:
    seeds = [
        built(tmp_path, LIBRARY, "-shared", "-fPIC"),
        built(tmp_path, PROGRAM, "-DFLOCK=flock"),
        built(tmp_path, "int main(void) { return 0; }", "-static", compiler="musl-gcc"),
    ]
    rng = random.Random(11)
    for _ in range(400):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 12)):
            # Headers and tables are what is believed: most of the damage goes there.
            at = rng.randrange(min(len(data), 1024)) if rng.random() < 0.6 else rng.randrange(len(data))
            width = rng.choice([1, 2, 4, 8])
            value = rng.choice([0, 0xFF, 0x7F, 1, 0x80])
            data[at : at + width] = bytes([value] * min(width, len(data) - at))
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        begin = time.process_time()
        found = read(bytes(data))
        assert time.process_time() - begin < 5
        assert isinstance(found, Contents)


@pytest.mark.attack
def test_tables_that_say_too_much_are_cut(tmp_path: Path) -> None:
    good = built(tmp_path, PROGRAM, "-DFLOCK=flock")
    for at, value in ((54, b"\x38\x00\xff\xff"), (58, b"\x40\x00\xff\xff"), (40, b"\xf0" * 8), (32, b"\xff" * 8)):
        data = bytearray(good)
        data[at : at + len(value)] = value
        assert read(bytes(data)).kind is FileKind.ELF
    with pytest.raises(NoElf):
        ElfFile(b"\x7fELF\x02\x01" + bytes(8))
    begin = time.process_time()
    read(b"\x7fELF\x02\x01" + b"A" * (4 << 20))
    assert time.process_time() - begin < 5
