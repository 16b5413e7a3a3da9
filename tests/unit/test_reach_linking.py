# SPDX-License-Identifier: Apache-2.0
"""Which file leads to which, and what each asks for: on an image of made-up contents."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.reach.contents import Called, Contents, FileKind, Given
from vmtailor.analysis.reach.file_requests import KernelNames
from vmtailor.analysis.reach.image_reach import find
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.image import ImageConfig
from vmtailor.model.reach import Nearness, Reach, ReachedFile

CALLS = {72: "fcntl", 73: "flock", 38: "setitimer", 37: "alarm", 41: "socket", 59: "execve", 202: "futex", 56: "clone",
         105: "setuid", 9: "mmap", 54: "setsockopt"}  # fmt: skip
WORDS = {"F_SETLK": 6, "AF_UNIX": 1, "AF_LOCAL": 1, "AF_INET": 2, "AF_INET6": 10, "SOCK_STREAM": 1, "IPPROTO_TCP": 6,
         "MAP_HUGETLB": 0x40000, "SOL_SOCKET": 1, "SO_BUSY_POLL": 46, "TCP_ULP": 31, "SO_PEERSEC": 31}  # fmt: skip
KERNEL = KernelNames(CALLS, WORDS, frozenset({"AF_UNIX", "AF_LOCAL", "AF_INET", "AF_INET6"}), frozenset({"STREAM/TCP"}))
LIBC = Contents(
    FileKind.ELF,
    library=True,
    soname="libc.so.6",
    exports=("alarm", "flock", "fcntl", "system", "execve", "socket", "posix_openpt", "syscall", "_dl_more"),
    functions={
        "alarm": 0, "flock": 1, "fcntl": 2, "system": 3, "execve": 4, "socket": 5, "posix_openpt": 6, "syscall": 7,
    },
    called=(
        Called(((37, 1),)), Called(((73, 2),)), Called(((72, 3),)), Called(((59, 4),), (), ("/bin/sh",)),
        Called(((59, 4),)), Called(((41, 5),)), Called((), (), ("/dev/ptmx",)), Called((), ("_dl_more",)),
    ),
    takers=(("syscall", 0),),
)  # fmt: skip
LOADER = Contents(FileKind.ELF, library=True, soname="ld.so", functions={"_dl_more": 0}, called=(Called(((9, 1),)),))
PLAIN = ImageConfig("amd64")
PROGRAM = Contents(FileKind.ELF, interpreter="/lib/ld.so", needed=("libc.so.6",), imports=("flock",))


@dataclass
class Image:
    """Files that say what they are made to say."""

    contents: dict[str, Contents]
    links: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    capable: frozenset[str] = frozenset()

    @property
    def files(self) -> dict[str, int]:
        return dict.fromkeys((*self.contents, *self.texts), 1)

    def resolve(self, path: str) -> str:
        return self.links.get(posixpath.normpath(path), posixpath.normpath(path))

    def content(self, path: str, start: int = 0, most: int | None = None) -> bytes:
        path = self.resolve(path)
        if path in self.contents:
            return b"#!/x" if self.contents[path].kind is FileKind.SCRIPT else b"\x7fELF"
        return self.texts.get(path, b"")[start:][:most]

    def reach(self, *opened: str, config: ImageConfig = PLAIN) -> Reach:
        image = replace(self, modes={**dict.fromkeys(self.contents, 0o755), **self.modes})
        return find(image, opened, config, KERNEL, demand_rules.load(), self.contents.__getitem__)


def image(**more: Contents) -> Image:
    """`usr_bin_x` stands for /usr/bin/x."""
    named = {"/" + name.replace("__", ".").replace("_", "/"): one for name, one in more.items()}
    return Image({"/usr/lib/libc.so.6": LIBC, "/lib/ld.so": LOADER, **named})


def at(reach: Reach, path: str) -> ReachedFile:
    return next(file for file in reach.files if file.path == path)


def keys(file: ReachedFile) -> set[str]:
    return {ask.key for ask in file.asks}


def test_an_import_asks_for_what_the_c_library_does_in_its_name() -> None:
    reach = image(bin_x=PROGRAM).reach("/bin/x")
    assert [(ask.kind, ask.key, ask.by) for ask in at(reach, "/bin/x").asks] == [
        (EvidenceKind.SYSCALL, "flock", "imports flock")
    ]
    assert [(file.path, file.nearness, file.via) for file in reach.files] == [
        ("/bin/x", Nearness.OPENED, ""),
        ("/lib/ld.so", Nearness.LED_TO, "interpreter of /bin/x"),
        ("/usr/lib/libc.so.6", Nearness.LED_TO, "needed by /bin/x"),
    ]


def test_removing_one_import_removes_its_ask() -> None:
    both = image(bin_x=replace(PROGRAM, imports=("alarm", "flock"))).reach("/bin/x")
    one = image(bin_x=replace(PROGRAM, imports=("alarm",))).reach("/bin/x")
    assert keys(at(both, "/bin/x")) - keys(at(one, "/bin/x")) == {"flock"}


def test_the_entry_point_counts_as_opened_and_the_rest_as_there() -> None:
    reach = image(usr_bin_x=PROGRAM, usr_bin_y=PROGRAM).reach(config=ImageConfig("amd64", cmd=("x",)))
    assert at(reach, "/usr/bin/x").nearness is Nearness.OPENED
    assert at(reach, "/usr/bin/y").nearness is Nearness.IN_IMAGE and keys(at(reach, "/usr/bin/y")) == {"flock"}


def test_libraries_are_found_as_the_loader_finds_them() -> None:
    library = Contents(FileKind.ELF, library=True)
    program = replace(PROGRAM, needed=("liba.so", "libb.so", "libc1.so"), runpath=("$ORIGIN/../own",))
    files = image(opt_bin_x=program, opt_own_liba__so=library, srv_libb__so=library, usr_lib_liba__so=library)
    files.contents["/elsewhere/libc1.so"] = library
    files.texts = {"/etc/ld.so.conf": b"# here\ninclude /etc/more/*.conf\n", "/etc/more/a.conf": b"/srv\n"}
    reach = files.reach("/opt/bin/x")
    near = {file.path for file in reach.files if file.via == "needed by /opt/bin/x"}
    assert near == {"/opt/own/liba.so", "/srv/libb.so", "/elsewhere/libc1.so"}


def test_circles_of_libraries_and_interpreters_end() -> None:
    a = Contents(FileKind.ELF, library=True, needed=("libb.so",), interpreter="/usr/lib/liba.so")
    b = Contents(FileKind.ELF, library=True, needed=("liba.so",), interpreter="/usr/lib/libb.so")
    reach = image(usr_lib_liba__so=a, usr_lib_libb__so=b).reach("/usr/lib/liba.so")
    assert at(reach, "/usr/lib/libb.so").nearness is Nearness.LED_TO


def test_scripts_lead_to_their_interpreter_and_to_programs_that_they_name() -> None:
    script = Contents(
        FileKind.SCRIPT, "/usr/bin/env", ("-S", "A=1", "python3"), programs=("tool", "absent", "/opt/other")
    )
    files = image(start=script, usr_bin_env=PROGRAM, usr_bin_python3=PROGRAM, usr_bin_tool=PROGRAM, opt_other=PROGRAM)
    reach = files.reach("/start")
    ways = {file.path: file.via for file in reach.files if file.nearness is Nearness.LED_TO}
    assert ways["/usr/bin/python3"] == "interpreter of /start" == ways["/usr/bin/env"]
    assert ways["/usr/bin/tool"] == "named in /start" == ways["/opt/other"]
    assert [(ask.key, ask.by) for ask in at(reach, "/start").asks] == [("#!", "is a script")]


def test_what_imports_from_a_reached_program_can_be_loaded_into_it() -> None:
    host = replace(PROGRAM, exports=("PyModule_Create2",))
    plugin = Contents(FileKind.ELF, library=True, imports=("PyModule_Create2", "fcntl"), words=("F_SETLK",))
    other = Contents(FileKind.ELF, library=True, imports=("perl_call",))
    reach = image(usr_bin_python=host, usr_lib_fcntl__so=plugin, usr_lib_perl__so=other).reach("/usr/bin/python")
    found = at(reach, "/usr/lib/fcntl.so")
    assert (found.nearness, found.via) == (Nearness.LED_TO, "loadable into /usr/bin/python")
    assert [(a.key, a.argument, a.by) for a in found.asks][1:] == [("fcntl(F_SETLK)", "F_SETLK", 'names "F_SETLK"')]
    assert at(reach, "/usr/lib/perl.so").nearness is Nearness.IN_IMAGE


def test_a_function_that_starts_a_shell_leads_to_it() -> None:
    files = image(bin_x=replace(PROGRAM, imports=("system",)), bin_sh=PROGRAM)
    reach = files.reach("/bin/x")
    assert at(reach, "/bin/sh").via == "named in system, which /bin/x imports"
    assert keys(at(reach, "/bin/x")) == {"execve"}


def test_who_executes_can_execute_a_script_if_there_is_one() -> None:
    files = image(bin_x=replace(PROGRAM, imports=("execve",)), opt_run=Contents(FileKind.SCRIPT, "/bin/x"))
    assert keys(at(files.reach("/bin/x"), "/bin/x")) == {"execve", "#!"}


def test_paths_of_the_c_library_belong_to_who_imports_the_function() -> None:
    reach = image(bin_x=replace(PROGRAM, imports=("posix_openpt",), paths=("/proc/%d/stat", "/sys/fs/%s/x"))).reach()
    asked = {ask.key: ask.by for ask in at(reach, "/bin/x").asks}
    assert asked == {
        "/dev/ptmx": "imports posix_openpt",
        "/proc/self/stat": 'names "/proc/%d/stat"',
        "/sys/fs": 'names "/sys/fs/%s/x"',
    }
    assert keys(at(reach, "/usr/lib/libc.so.6")) == set()


def test_numbers_given_to_a_function_that_takes_one() -> None:
    program = replace(PROGRAM, imports=("syscall",), given=(Given("syscall", ((0, 38),), 0x40),))
    found = {ask.key: ask.by for ask in at(image(bin_x=program).reach(), "/bin/x").asks}
    assert found == {"mmap": "imports syscall", "setitimer": "calls syscall at 0x40"}


def test_constants_become_words_where_they_stand() -> None:
    given = (
        Given("fcntl64", ((1, 6),), 0x10),
        Given("fcntl64", ((1, 2), (2, 6)), 0x11),
        Given("mmap", ((3, 0x40022),), 0x12),
        Given("setsockopt", ((1, 1), (2, 46)), 0x13),
        Given("setsockopt", ((1, 6), (2, 31)), 0x14),
        Given("socket", ((0, 10), (1, 0x80001), (2, 6)), 0x15),
    )
    found = [
        (a.key, a.argument) for a in at(image(bin_x=replace(PROGRAM, imports=(), given=given)).reach(), "/bin/x").asks
    ]
    assert found == [
        ("fcntl(F_SETLK)", "F_SETLK"),
        ("mmap(MAP_HUGETLB)", "MAP_HUGETLB"),
        ("setsockopt(SO_BUSY_POLL)", "SO_BUSY_POLL"),
        ("setsockopt(TCP_ULP)", "TCP_ULP"),
        ("AF_INET6", "AF_INET6"),
        ("AF_INET6/STREAM/TCP", "AF_INET6, STREAM/TCP"),
    ]


def test_a_family_that_is_not_told_is_each_of_the_usual_ones() -> None:
    program = replace(PROGRAM, imports=("socket",), given=(Given("socket", ((1, 1),), 0x10),))
    assert keys(at(image(bin_x=program).reach(), "/bin/x")) == {"socket", "AF_INET", "AF_INET6", "AF_UNIX"}


def test_a_futex_of_a_program_that_starts_nobody_says_nothing() -> None:
    alone = Contents(FileKind.ELF, own=Called(((202, 0x1),)))
    threads = Contents(FileKind.ELF, own=Called(((202, 0x1), (56, 0x2))))
    reach = image(alone=alone, threads=threads).reach("/alone", "/threads")
    assert keys(at(reach, "/alone")) == set() and keys(at(reach, "/threads")) == {"futex", "clone"}


def test_credentials_and_formats() -> None:
    files = image(
        bin_su=replace(PROGRAM, imports=()), bin_ping=replace(PROGRAM, imports=()), old=Contents(FileKind.ELF32)
    )
    files.contents["/alien"] = Contents(FileKind.FOREIGN)
    files.modes, files.capable = {"/bin/su": 0o4755}, frozenset({"/bin/ping"})
    reach = files.reach()
    asked = {(file.path, ask.kind, ask.key) for file in reach.files for ask in file.asks}
    assert asked == {
        ("/bin/su", EvidenceKind.CREDENTIAL, "setuid"),
        ("/bin/ping", EvidenceKind.CREDENTIAL, "file capabilities"),
        ("/old", EvidenceKind.BINARY_FORMAT, "ELF32"),
    }
    assert [(one.path, one.why) for one in reach.not_read] == [("/alien", "it is a program for another processor")]
