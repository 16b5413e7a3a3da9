# SPDX-License-Identifier: Apache-2.0
"""The interface of a kernel's source to programs: values of constants, and tables of system calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.ksource.make_values import Reader
from vmtailor.base.text import is_number
from vmtailor.model.architecture import Architecture, CallTable

#: Headers outside include/uapi that define what programs use, too: socket families and types.
MORE = ("include/linux/socket.h", "include/linux/net.h")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Z_][A-Z0-9_]*)[ \t]+([^\n]+)$", re.M)
_MEMBER = re.compile(r"^[ \t]*([A-Z_][A-Z0-9_]*)[ \t]*=[ \t]*([^,\n/}]+)", re.M)
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.S)
_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")
_OCTAL = re.compile(r"\b0([0-7]+)\b")
#: Sizes of what ioctl numbers are made of, in bytes.
_SIZES = {"int": 4, "unsigned int": 4, "__u32": 4, "__s32": 4, "__u64": 8, "__u8": 1, "__u16": 2, "char": 1, "long": 8}
_IOCTL = re.compile(r"^_IO(R|W|WR|)\(\s*(?:'(.)'|(\w+))\s*,\s*(\w+)\s*(?:,\s*+([\w ]++)\s*+)?\)$")
_DIRECTION = {"": 0, "W": 1, "R": 2, "WR": 3}
_DEEPEST = 8


def headers(source: Path, architecture: Architecture) -> list[str]:
    """Return the headers that are read, the family's own first."""
    folders = (f"arch/{architecture.kernel.source}/include/uapi", "include/uapi/asm-generic", "include/uapi/linux")
    found = [path.relative_to(source).as_posix() for one in folders for path in sorted((source / one).rglob("*.h"))]
    return [*found, *MORE]


def constants(read: Reader, paths: Iterable[str], wanted: Iterable[str]) -> dict[str, int]:
    """Return name → value of the wanted constants that the headers define. Pure but for what `read` does."""
    texts: dict[str, str] = {}
    for path in paths:
        text = read(path)
        if text is None:
            continue
        text = _COMMENT.sub(" ", text)
        for pattern in (_DEFINE, _MEMBER):
            for name, value in pattern.findall(text):
                if value.strip() != name:  # `#define IPPROTO_TCP IPPROTO_TCP` says that the enum has it
                    texts.setdefault(name, value.strip())
    found = {name: _value(name, texts, 0) for name in wanted}
    return {name: value for name, value in found.items() if value is not None}


def _value(name: str, texts: Mapping[str, str], depth: int) -> int | None:
    text = texts.get(name)
    if text is None or depth > _DEEPEST or len(text) > 200:
        return None
    ioctl = _IOCTL.match(text)
    if ioctl is not None:
        return _ioctl(ioctl, texts, depth)
    text = _OCTAL.sub(r"0o\1", _NUMBER.sub(r"\1", text))
    try:
        return _evaluated(ast.parse(text.strip(), mode="eval").body, texts, depth)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _ioctl(match: re.Match[str], texts: Mapping[str, str], depth: int) -> int | None:
    """Return the number of _IO, _IOR, _IOW and _IOWR, as asm-generic/ioctl.h defines them."""
    direction, letter, name, number_text, kind = match.groups()
    group = ord(letter) if letter else _value(name, texts, depth + 1)
    try:
        number = int(number_text, 0) if is_number(number_text[:1]) else _value(number_text, texts, depth + 1)
    except ValueError:  # 08, or digits that are none
        return None
    size = _SIZES.get(kind.strip()) if kind else 0
    if group is None or number is None or size is None:
        return None
    return _DIRECTION[direction] << 30 | size << 16 | (group & 0xFF) << 8 | number & 0xFF


def _evaluated(node: ast.expr, texts: Mapping[str, str], depth: int) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return _value(node.id, texts, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
        inner = _evaluated(node.operand, texts, depth + 1)
        return None if inner is None else -inner if isinstance(node.op, ast.USub) else ~inner
    if isinstance(node, ast.BinOp) and depth <= _DEEPEST:
        left, right = (_evaluated(side, texts, depth + 1) for side in (node.left, node.right))
        return None if left is None or right is None else _combined(node.op, left, right)
    return None


def _combined(how: ast.operator, left: int, right: int) -> int | None:
    if isinstance(how, ast.LShift):
        return left << right if 0 <= right < 64 else None
    if isinstance(how, ast.BitOr):
        return left | right
    if isinstance(how, ast.Add):
        return left + right
    return left - right if isinstance(how, ast.Sub) else None


_CALL_NUMBER = re.compile(r"^[ \t]*#[ \t]*define[ \t]+__NR(?:3264)?_(\w+)[ \t]+(\d+)[ \t]*(?:/\*.*)?$", re.M)
_ENTRY = re.compile(r"^[ \t]*__(?:SYSCALL|SC_COMP|SC_3264)\(\s*__NR(?:3264)?_(\w+)\s*,\s*sys_(\w+)", re.M)


@dataclass(frozen=True)
class Call:
    """A system call. `entry`: the function in the kernel, without sys_; empty for a number that has none."""

    number: int
    name: str
    entry: str


def of_table(text: str, abis: Iterable[str]) -> tuple[Call, ...]:
    """Return the calls of a `*.tbl`, of these ABIs."""
    wanted, found = set(abis), []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and is_number(words[0]) and len(words[0]) < 10 and words[1] in wanted:
            entry = words[3].removeprefix("sys_") if len(words) > 3 and not words[3].startswith(("#", "-")) else ""
            found.append(Call(int(words[0]), words[2], entry))
    return tuple(found)


def of_header(text: str) -> tuple[Call, ...]:
    """Return the calls of a unistd.h."""
    entries = dict(_ENTRY.findall(text))
    return tuple(Call(int(number), name, entries.get(name, "")) for name, number in _CALL_NUMBER.findall(text))


def read_table(read: Reader, tables: Iterable[CallTable]) -> tuple[Call, ...]:
    """Return the calls of the first table that a tree has; none where it has none."""
    for table in tables:
        text = read(table.file)
        if text is not None:
            return of_table(text, table.abis) if table.file.endswith(".tbl") else of_header(text)
    return ()
