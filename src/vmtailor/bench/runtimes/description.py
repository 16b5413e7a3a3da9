# SPDX-License-Identifier: Apache-2.0
"""A runtime as a TOML file of commands (docs/reference/bench-runtimes.md): read, checked, and filled in."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base import manual, near_names
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.base.files.regular_files import read_regular
from vmtailor.base.text import plain

LONGEST = 64 << 10
_FIELD = re.compile(r"\{([a-z_]+)\}")
_GROUP = re.compile(r"\[([a-z_]+)\]")
#: Fields that stand for several words, so each must stand alone: `{command}` becomes as many words as it has.
LISTS = ("command", "cgroups")
VALUES = (
    "folder", "name", "image", "archive", "root", "bundle", "memory_bytes", "cpus", "cpu_quota_us", "cpu_percent",
    "cpuset", "pids", "network", "network_name", "device", "write_bytes_s", "source", "target", "target_relative",
    "volume", "enter", "command_line", "cgroup",
)  # fmt: skip
LIMITS = ("memory", "cpus", "cpuset", "pids", "write")
GROUPS = (*LIMITS, "network", "enter_network", "no_network", "volume")


class RootForm(StrEnum):
    """The form in which a runtime takes the image."""

    IMAGE = "image"  # it loads the archive itself
    BUNDLE = "bundle"  # a folder with config.json and rootfs, as the OCI runtime specification has it
    DIRECTORY = "directory"  # a root directory
    KERNEL_DIRECTORY = "kernel-directory"  # the same, with the host's /proc, /sys and /dev in it


@dataclass(frozen=True)
class DescribedFile:
    """A file written before the runtime's first command."""

    path: str
    content: str


@dataclass(frozen=True)
class Daemon:
    """A program that must run; it is up when `ready` ends with 0."""

    start: tuple[str, ...]
    ready: tuple[str, ...]


@dataclass(frozen=True)
class Commands:
    """Argument lists with fields and groups. `run` makes an instance, runs its command in the foreground, and removes
    it. `create` (each in turn), `start` and `stop` do so in steps; `stays`: `start` runs as long as the instance does,
    otherwise it returns when the instance runs. `network`: starts what holds a network namespace for instances to join,
    where the runtime takes none that is there; `network_pid` prints a process of it."""

    run: tuple[str, ...]
    start: tuple[str, ...]
    create: tuple[tuple[str, ...], ...] = ()
    stop: tuple[tuple[str, ...], ...] = ()
    remove: tuple[tuple[str, ...], ...] = ()
    load: tuple[tuple[str, ...], ...] = ()
    stays: bool = False
    network: tuple[str, ...] = ()
    network_pid: tuple[str, ...] = ()
    network_remove: tuple[str, ...] = ()


@dataclass(frozen=True)
class Description:
    """A runtime. `own_kernel`: its instances do not run on the host's kernel; `chroot`: it isolates nothing, and says
    so. `limits`: "own" (set by its options) or "cgroup" (it starts in cgroups that have them). `private`: folders of
    the host that it gets copies of, since it writes there regardless of its options."""

    name: str
    title: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    root: RootForm
    commands: Commands
    version: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    file: tuple[DescribedFile, ...] = ()
    daemon: Daemon | None = None
    own_kernel: bool = False
    chroot: bool = False
    limits: str = "own"
    private: tuple[str, ...] = ()

    def sets(self, limit: str) -> bool:
        """Return whether its instances can have such a limit, one of LIMITS."""
        if self.limits == "cgroup" or self.root is RootForm.BUNDLE:
            return True
        return bool(self.options.get(limit)) and f"[{limit}]" in self.commands.run


def known() -> tuple[str, ...]:
    """Return the names of the runtimes that come with the program, in the order of tables."""
    folder = resources.files("vmtailor").joinpath("bench", "data")
    names = [item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")]
    return tuple(sorted(names, key=lambda name: (name != "native", name)))


def load(name: str) -> Description:
    """Return a known runtime by its name, or one described in a file. Raises UserInputError."""
    if name in known():
        text = resources.files("vmtailor").joinpath("bench", "data", f"{name}.toml").read_bytes()
        return parse(text, f"{name}.toml")
    path = Path(name)
    if path.suffix != ".toml":
        raise UserInputError(
            f"no runtime {plain(name)[:64]!r} is known", hint=f"known: {', '.join(known())}; or a file NAME.toml"
        )
    return parse(read_regular(path, "the runtime's description", LONGEST), str(path))


def parse(data: bytes, origin: str) -> Description:
    """Read a description, strictly. Raises UserInputError, naming what is wrong."""
    try:
        table: dict[str, Any] = tomllib.loads(data.decode())
        strange = toml_files.unknown_fields(Description, table)
        if not strange:
            found = msgspec.convert(table, Description)
            strange = {f"options.{one}": meant for one, meant in _unknown_groups(found).items()}
    except (RecursionError, ValueError) as error:  # of TOML, of UTF-8, of a record, or a number of thousands of digits
        why = "it is nested too deep" if isinstance(error, RecursionError) else plain(str(error))[:300]
        raise UserInputError(f"{origin} describes no runtime: {why}", hint=_HINT) from error
    if strange:
        raise toml_files.unknown(f"{origin} has unknown keys:", strange, _HINT)
    if not re.fullmatch(r"[a-z][a-z0-9+-]{0,31}", found.name):
        raise UserInputError(f"{origin}: the name is lower-case letters, digits, + and -, 32 at most", hint=_HINT)
    if found.limits not in ("own", "cgroup"):
        raise UserInputError(f"{origin}: limits is 'own' or 'cgroup'", hint=_HINT)
    if found.limits == "cgroup" and not {"{cgroups}", "{cgroup}"} & {*found.commands.run}:
        raise UserInputError(
            f"{origin}: limits is 'cgroup', and run names neither {{cgroups}} nor {{cgroup}}", hint=_HINT
        )
    if any(not place.startswith("/") or ".." in Path(place).parts or place.count("/") < 2 for place in found.private):
        raise UserInputError(f"{origin}: private has folders by their whole paths, and none of the root's", hint=_HINT)
    for words in _of_instances(found):
        _check(words, origin, lists=True)
    for words in _of_all(found):
        _check(words, origin, lists=False)
    return found


def _unknown_groups(found: Description) -> dict[str, str]:
    return toml_files.misspelt(set(found.options) - set(GROUPS), GROUPS)


_HINT = f"{manual.command('bench-runtimes')} describes every key"


def _of_instances(found: Description) -> list[Sequence[str]]:
    """Return the commands about one instance."""
    commands = found.commands
    return [
        commands.run, commands.start, *commands.create, *commands.stop, *commands.remove, *found.options.values()
    ]  # fmt: skip


def _of_all(found: Description) -> list[Sequence[str]]:
    """Return the words that are about no instance."""
    commands = found.commands
    lists = [*commands.load, commands.network, commands.network_pid, commands.network_remove, found.version]
    if found.daemon is not None:
        lists += [found.daemon.start, found.daemon.ready]
    return [*lists, [*found.environment.values()], *([file.path, file.content] for file in found.file)]


def _check(words: Sequence[str], origin: str, *, lists: bool) -> None:
    for word in words:
        group = _GROUP.fullmatch(word)
        if group and group[1] not in GROUPS:
            raise UserInputError(
                f"{origin}: no group {word} is known",
                hint=near_names.or_else(group[1], GROUPS, f"known: {', '.join(GROUPS)}"),
            )
        for name in _FIELD.findall(word):
            if name not in (*VALUES, *LISTS):
                raise UserInputError(
                    f"{origin}: no field {{{name}}} is known",
                    hint=near_names.or_else(name, (*VALUES, *LISTS), f"known: {', '.join(VALUES)}"),
                )
            if name in LISTS and not lists:
                raise UserInputError(
                    f"{origin}: {{{name}}} is an instance's, and stands where there is none", hint=_HINT
                )
            if name in LISTS and word != f"{{{name}}}":
                raise UserInputError(f"{origin}: {{{name}}} is several words, and stands alone", hint=_HINT)


def fill(
    words: Sequence[str],
    values: Mapping[str, str],
    lists: Mapping[str, Sequence[str]],
    groups: Mapping[str, Sequence[Mapping[str, str]]],
    options: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """Return the words of a command. A group `[x]` becomes the words of option x, once for each entry of `groups[x]`,
    whose values are added; without entries, nothing."""
    done: list[str] = []
    for word in words:
        group = _GROUP.fullmatch(word)
        if group:
            for more in groups.get(group[1], ()):
                done += fill(options.get(group[1], ()), {**values, **more}, lists, {}, {})
        elif (named := _FIELD.fullmatch(word)) and named[1] in LISTS:
            done += lists[named[1]]
        else:
            done.append(filled(word, values))
    return tuple(done)


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its fields replaced. Fields within the values stay as they are."""
    return _FIELD.sub(lambda named: values.get(named[1], ""), text)
