# SPDX-License-Identifier: Apache-2.0
"""The reach of an image: which files are near to what was opened, and what each of them could ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.reach.c_library import CLibraries
from vmtailor.analysis.reach.contents import Contents, FileKind
from vmtailor.analysis.reach.file_links import Files, Led, Links
from vmtailor.analysis.reach.file_requests import Asks, KernelNames
from vmtailor.model.image import ImageConfig
from vmtailor.model.reach import NEARNESS, Nearness, NotRead, Reach, ReachedFile

#: Files that are looked at in one image, and the size from which on one is not.
MOST_FILES = 50_000
MOST_BYTES = 256 << 20

#: Gives what a file says: read now, or kept from another time.
Read = Callable[[str], Contents]


def candidates(files: Files) -> Iterator[str]:
    """Yield paths of what may be a program, a library or a script, in order."""
    for path in sorted(files.files):
        head = files.content(path, most=4)
        if head == b"\x7fELF" or (head[:2] == b"#!" and files.modes.get(path, 0) & 0o111):
            yield path


def find(
    files: Files, opened: Iterable[str], config: ImageConfig, kernel: KernelNames, rules: Rules, read: Read
) -> Reach:
    """`opened`: paths that were opened or executed in the trace; the entry point is counted with them."""
    contents: dict[str, Contents] = {}
    not_read: list[NotRead] = []
    total = 0
    for path in candidates(files):
        if len(contents) >= MOST_FILES:
            not_read.append(NotRead(path, f"it comes after {MOST_FILES} others"))
            break
        if files.files[path] > MOST_BYTES:
            not_read.append(NotRead(path, "it is too large to be read"))
            continue
        contents[path] = read(path)
        total += files.files[path]
        if contents[path].kind is FileKind.FOREIGN:
            not_read.append(NotRead(path, "it is a program for another processor"))
        elif contents[path].not_read:
            not_read.append(NotRead(path, contents[path].not_read))
    links = Links(files, contents, config)
    near = {files.resolve(path) for path in opened}
    if config.argv and (program := links.program(config.argv[0])):
        near.add(program)
    libraries = CLibraries(links)
    ways = _reached(libraries, sorted(near))
    script = next((path for path, one in contents.items() if one.kind is FileKind.SCRIPT), "")
    asks = Asks(libraries, kernel, rules, script)
    found = []
    for path in contents:
        nearness = Nearness.IN_IMAGE if path not in ways else Nearness.LED_TO if ways[path] else Nearness.OPENED
        found.append(ReachedFile(path, nearness, asks.of(path), ways.get(path, "")))
    found.sort(key=lambda file: (NEARNESS.index(file.nearness), file.path))
    return Reach(tuple(found), tuple(not_read), total)


def _reached(libraries: CLibraries, opened: Iterable[str]) -> dict[str, str]:
    """Return all that what was opened leads to, itself included: path → how, empty for what was opened."""
    links = libraries.links
    found = dict.fromkeys((path for path in opened if path in links.contents), "")
    fresh = list(found)
    while fresh:
        led = [one for path in fresh for one in (*links.leads_to(path), *_started(libraries, path))]
        led += links.plugins(fresh, set(found))
        following = {one.path: one.how for one in reversed(led) if one.path not in found}
        found |= following
        fresh = sorted(following)
    return found


def _started(libraries: CLibraries, path: str) -> Iterator[Led]:
    """Yield programs that functions of the C library name which a file imports: the shell, for system()."""
    if libraries.links.contents[path].kind is FileKind.ELF:
        for name, lead in libraries.ways(path):
            for text in lead.strings:
                if program := libraries.links.program(text):
                    yield Led(program, f"named in {name}, which {path} imports")
