# SPDX-License-Identifier: Apache-2.0
"""Check that the program that an image starts can be started: it exists, is executable, and so is its interpreter."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.elf import NoElf, identity, interpreter_of
from vmtailor.drivers.image.layer_tree import LayerNode, LayerTree
from vmtailor.model.architecture import every, of_image
from vmtailor.model.image import DEFAULT_PATH, Image

#: Bytes of a program that are looked at; the kernel itself reads 256 for scripts.
HEAD_BYTES = 8192
#: Kinds of ELF files that are executed or loaded by programs: no object file, no kernel module.
_LOADED = (2, 3)  # ET_EXEC, ET_DYN
#: An ELF file says its machine in these.
_HEADER_BYTES = 20


def check_entry_point(tree: LayerTree, image: Image) -> str:
    """Return the path inside the image of what is executed. `tree` is of the image's flat archive.

    Raises UserInputError: nothing to execute, not there, a directory, not executable, for another processor than the
    image says, or its interpreter is missing."""
    if not image.config.argv:
        raise UserInputError(
            f"{image.reference} has no entry point and no command", hint="give one: --entrypoint PROGRAM"
        )
    name = image.config.argv[0]
    if not name:
        raise UserInputError(
            f"the entry point of {image.reference} is an empty word", hint="give one: --entrypoint PROGRAM"
        )
    candidates = _candidates(name, image)
    problem = "is not in the image"
    for candidate in candidates:
        node = tree.lookup(candidate)
        if node is None:
            continue
        problem = _problem(node)
        if not problem:
            _check_interpreter(tree, image, name, node)
            return candidate
    raise UserInputError(
        f"the entry point '{name[:200]}' of {image.reference} {problem}",
        hint=f"vmtailor looked at {', '.join(candidates)[:400]}; give another entry point with --entrypoint",
    )


def _candidates(name: str, image: Image) -> Sequence[str]:
    if "/" in name:
        return [name if name.startswith("/") else f"{image.config.working_dir}/{name}"]
    search = dict(image.config.env).get("PATH", DEFAULT_PATH)
    return [f"{folder or image.config.working_dir}/{name}" for folder in search.split(":")]


def _problem(node: LayerNode) -> str:
    if node.kind == tarfile.DIRTYPE:
        return "is a directory"
    if node.kind != tarfile.REGTYPE or not node.mode & 0o111:
        return "is not an executable file"
    return ""


def _check_interpreter(tree: LayerTree, image: Image, name: str, node: LayerNode) -> None:
    head = _head(image, node)
    _check_machine(image, name, head)
    interpreter = interpreter_of(head)
    if interpreter is None:
        return
    # A relative one is looked for in the working directory.
    path = interpreter if interpreter.startswith("/") else f"{image.config.working_dir}/{interpreter}"
    found = tree.lookup(path)
    if found is None or _problem(found):
        raise UserInputError(
            f"the entry point '{name[:200]}' of {image.reference} needs '{interpreter[:200]}', which "
            f"{'is not in the image' if found is None else _problem(found)}",
            hint="put it into the image, or link the program statically",
        )
    _check_machine(image, interpreter, _head(image, found))


def _head(image: Image, node: LayerNode) -> bytes:
    with Path(image.archive).open("rb") as file:
        file.seek(node.offset)
        return file.read(min(node.size, HEAD_BYTES))


def _check_machine(image: Image, name: str, head: bytes) -> None:
    """Require a program for the processor of the image. Raises UserInputError with the file."""
    row, number = of_image(image.config.architecture), machine_of(head)
    if row is None or number is None or number in row.elf:
        return
    other = next((one.title for one in every() if number in one.elf), f"machine {number} of ELF")
    raise UserInputError(
        f"'{name[:200]}' of {image.reference} is a program for {other}, in an image for {row.title}",
        hint="build the image for one processor, or say which with --arch",
    )


def strangers(tree: LayerTree, image: Image) -> tuple[tuple[str, str], ...]:
    """Return the programs and libraries of an image for a processor of another family than the image says: path, and
    for which. `tree` is of the image's flat archive. Machines that vmtailor never fits are passed over: firmware of
    devices, programs for the kernel's own machine."""
    architecture = of_image(image.config.architecture)
    if architecture is None:
        return ()
    others = {number: one.title for one in every() for number in one.elf if number not in architecture.elf}
    found = []
    with Path(image.archive).open("rb") as file:
        for path, node in tree.walk():
            if node.kind == tarfile.REGTYPE and node.size >= _HEADER_BYTES:
                file.seek(node.offset)
                head = file.read(_HEADER_BYTES)
                other = others.get(machine_of(head) or 0)
                if other is not None and identity(head).kind in _LOADED:
                    found.append((f"/{path}", other))
    return tuple(found)


def machine_of(head: bytes) -> int | None:
    """Return the number of the machine that a program is for, from its first bytes; None where they do not say it."""
    try:
        return identity(head).machine or None
    except NoElf:
        return None
