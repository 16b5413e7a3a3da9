# SPDX-License-Identifier: Apache-2.0
"""A runtime on this host, driven as its description says."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TypedDict

from vmtailor.base import package_manager
from vmtailor.base.errors import HostError
from vmtailor.base.process import CommandFailed, ProgramResult, on_path, run, spawn
from vmtailor.base.text import is_number
from vmtailor.bench.model.instance import InstanceSpec, Limits
from vmtailor.bench.runtimes.description import Commands, Description, RootForm, fill, filled
from vmtailor.bench.runtimes.instance_cgroups import PERIOD_US, Cgroups
from vmtailor.bench.runtimes.networks import Link, link
from vmtailor.bench.runtimes.overlay_roots import Overlay, write_bundle
from vmtailor.bench.runtimes.private_places import hide

READY_S, LOAD_S, STEP_S, VERSION_S = 60.0, 600.0, 60.0, 20.0
_POLL_S = 0.05


@dataclass(frozen=True)
class BenchImage:
    """The image, in the forms that runtimes take. `tree`: its files, unpacked and never written; `archive`: as
    `docker save` writes it, with `tag`."""

    tree: Path
    archive: Path
    tag: str


class Surroundings(TypedDict):
    """The environment and working folder of a runtime's commands (base/process.py). `env`: None where it is ours;
    `cwd`: a folder in the scope, since podman's monitor leaves a file there when an instance runs out of memory."""

    env: dict[str, str] | None
    cwd: Path


def missing(description: Description) -> str:
    """Return which of a runtime's programs are missing, and how to get them; empty when all are there."""
    absent = [name for name in description.programs if on_path(name) is None]
    if not absent:
        return ""
    how = (
        package_manager.install_command(" ".join(description.packages))
        if description.packages
        else "see its own documentation"
    )
    return f"{', '.join(absent)} not found; to get it: {how} (make setup-bench installs all that are packaged)"


class DescribedRuntime:
    """One runtime of `bench/data/`, or of a user's file. When its `with` block is left, nothing of it runs. `folder`:
    its own in the scope. `enter`: the program that starts others in cgroups and roots. `instances`: the common folder
    of all runtimes for the roots of their instances, by default its own. It is common because a cold start reads the
    path to it, and one more read of a disk is a tenth of native's."""

    def __init__(
        self, description: Description, folder: Path, enter: Path, cgroups: Cgroups, instances: Path | None = None
    ) -> None:
        self.description = description
        self._folder = folder
        self._instances = instances or folder
        self._enter = enter
        self._cgroups = cgroups
        self._image: BenchImage | None = None
        self._placed: dict[str, Overlay] = {}
        self._entries: dict[str, list[Path]] = {}
        self._held = contextlib.ExitStack()

    @property
    def name(self) -> str:
        return self.description.name

    def __enter__(self) -> DescribedRuntime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def surroundings(self) -> Surroundings:
        """Return the environment and working folder of its commands, once it is prepared."""
        more = {name: filled(text, self._values()) for name, text in self.description.environment.items()}
        return {"env": {**os.environ, **more} if more else None, "cwd": self._folder}

    def version(self) -> str:
        """Return the first line that its version command prints; empty when it prints nothing."""
        if not self.description.version:
            return ""
        with contextlib.suppress(CommandFailed, HostError):
            found = self._do(self.description.version, VERSION_S)
            return next(iter((found.text or found.error_text).strip().splitlines()), "")[:120]
        return ""

    def prepare(self, image: BenchImage) -> None:
        """Write its files, start its daemon, load the image. Raises HostError, CommandFailed, OSError."""
        self._image = image
        self._folder.mkdir(parents=True, exist_ok=True)
        hide([Path(place) for place in self.description.private], self._folder / "private", self._folder.parent)
        for file in self.description.file:
            Path(filled(file.path, self._values())).write_text(filled(file.content, self._values()))
        if self.description.daemon is not None:
            self._start_daemon(self.description.daemon.start, self.description.daemon.ready)
        for words in self.description.commands.load:
            self._do(words, LOAD_S)

    def _start_daemon(self, start: Sequence[str], ready: Sequence[str]) -> None:
        log = self._held.enter_context((self._folder / "daemon.log").open("wb"))
        daemon = self._held.enter_context(
            spawn(fill(start, self._values(), {}, {}, {}), stdout=log, stderr=subprocess.STDOUT, **self.surroundings())
        )
        deadline = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(CommandFailed, HostError):  # one that is stuck does not answer, either
                self._do(ready, max(_POLL_S, deadline - time.monotonic()))
                return
            if daemon.poll() is not None or time.monotonic() > deadline:
                tail = (self._folder / "daemon.log").read_bytes()[-4000:].decode("utf-8", "replace")
                raise HostError(f"{start[0]} of {self.name} did not get ready", hint="see its words", details=tail)
            time.sleep(_POLL_S)

    def _do(self, words: Sequence[str], timeout_s: float) -> ProgramResult:
        return run(fill(words, self._values(), {}, {}, {}), timeout_s=timeout_s, **self.surroundings())

    def place(self, spec: InstanceSpec) -> None:
        """Make an instance's files, cgroups and mounts, before its time is taken. Raises HostError."""
        if (lacking := unable(self.description, spec.limits)) != []:
            raise HostError(
                f"{self.name} sets no limit to {', '.join(lacking)}", hint="its description has no words for that"
            )
        # Without limits, native has no cgroup of its own: entering one takes milliseconds, and isolates something. The
        # others have one under version 2, where they make their own below it.
        if self.description.limits == "cgroup" and (
            spec.limits != Limits() or (self._cgroups.unified and not self.description.chroot)
        ):
            self._entries[spec.name] = self._cgroups.make(spec.name, spec.limits)
        if self.description.root is RootForm.IMAGE:
            return
        assert self._image is not None
        folder = self._instances / spec.name
        bundle = self.description.root is RootForm.BUNDLE
        self._placed[spec.name] = overlay = Overlay(folder, self._image.tree, bundle=bundle)
        overlay.mount(spec, kernel=self.description.root is RootForm.KERNEL_DIRECTORY)
        if bundle:
            write_bundle(folder, spec)
        (self._folder / spec.name).mkdir(exist_ok=True)  # LXC looks for a container's folder among its own

    @contextlib.contextmanager
    def network(self, number: int, *, peer: bool = False) -> Iterator[Link]:
        """Hold a network for one instance until the block is left: its path goes into `InstanceSpec.network`. Raises
        HostError, CommandFailed."""
        commands = self.description.commands
        if not commands.network:
            with link(number, peer=peer) as found:
                yield found
            return
        values = {**self._values(), "network_name": f"bench{number}"}
        words, asked, removed = (
            fill(one, values, {}, {}, {}) for one in (commands.network, commands.network_pid, commands.network_remove)
        )
        run(words, timeout_s=STEP_S, **self.surroundings())
        try:
            said = run(asked, timeout_s=STEP_S, **self.surroundings()).text.strip()
            if not is_number(said) or int(said) < 1:
                raise HostError(f"{self.name} does not say which process holds the network", details=said[:200])
            with link(number, peer=peer, of=int(said)) as found:
                yield found
        finally:
            with contextlib.suppress(CommandFailed):
                run(removed, timeout_s=STEP_S, **self.surroundings())

    def commands(self, spec: InstanceSpec) -> Commands:
        """Return the commands about one instance, filled in."""
        given = self.description.commands
        return replace(
            given,
            run=self._filled(given.run, spec),
            start=self._filled(given.start, spec),
            create=tuple(self._filled(words, spec) for words in given.create),
            stop=tuple(self._filled(words, spec) for words in given.stop),
            remove=tuple(self._filled(words, spec) for words in given.remove),
        )

    def run_words(self, spec: InstanceSpec) -> tuple[str, ...]:
        """Return the one command that makes an instance, runs its command in the foreground, and removes it."""
        return self.commands(spec).run

    def clear(self, spec: InstanceSpec) -> None:
        """Remove what is left of an instance, in whatever state it is. Never raises for what is not there."""
        for words in self.commands(spec).remove:
            with contextlib.suppress(CommandFailed, HostError):
                run(words, timeout_s=STEP_S, **self.surroundings())
        self._cgroups.remove(spec.name)
        self._entries.pop(spec.name, None)
        overlay = self._placed.pop(spec.name, None)
        if overlay is not None:
            overlay.unmount()
            shutil.rmtree(self._folder / spec.name, ignore_errors=True)

    def _filled(self, words: Sequence[str], spec: InstanceSpec) -> tuple[str, ...]:
        overlay = self._placed.get(spec.name)
        values = {
            **self._values(),
            "name": spec.name,
            "root": str(overlay.root) if overlay else "",
            "bundle": str(self._instances / spec.name),
            "cgroup": f"/{spec.name}",
            "command_line": shlex.join(spec.command),
        }
        lists = {
            "command": spec.command,
            "cgroups": [word for file in self._entries.get(spec.name, ()) for word in ("-c", str(file))],
        }
        return fill(words, values, lists, groups_of(spec), self.description.options)

    def _values(self) -> dict[str, str]:
        return {
            "folder": str(self._folder),
            "enter": str(self._enter),
            "image": self._image.tag if self._image else "",
            "archive": str(self._image.archive) if self._image else "",
        }


#: Each limit by its name in descriptions, with its field.
_LIMITED = {
    "memory": ("memory", "memory_bytes"), "cpus": ("processor time", "cpus"), "cpuset": ("processors", "cpuset"),
    "pids": ("processes", "pids"), "write": ("what is written to disks", "write"),
}  # fmt: skip


def unable(one: Description, limits: Limits) -> list[str]:
    """Return, in words, the limits that a runtime's instances cannot have."""
    return [words for name, (words, key) in _LIMITED.items() if getattr(limits, key) is not None and not one.sets(name)]


def able(one: Description, limits: Limits) -> Limits:
    """Return the limits without those that a runtime's instances cannot have."""
    return replace(limits, **{key: None for name, (_, key) in _LIMITED.items() if not one.sets(name)})


def groups_of(spec: InstanceSpec) -> dict[str, list[dict[str, str]]]:
    """Return the groups of words that an instance needs, each with its values."""
    limits = spec.limits
    found: dict[str, list[dict[str, str]]] = {}
    if limits.memory_bytes is not None:
        found["memory"] = [{"memory_bytes": str(limits.memory_bytes)}]
    if limits.cpus is not None:
        found["cpus"] = [
            {
                "cpus": f"{limits.cpus:g}",
                "cpu_quota_us": str(round(limits.cpus * PERIOD_US)),
                "cpu_percent": str(round(limits.cpus * 100)),
            }
        ]
    if limits.cpuset is not None:
        found["cpuset"] = [{"cpuset": limits.cpuset}]
    if limits.pids is not None:
        found["pids"] = [{"pids": str(limits.pids)}]
    if limits.write is not None:
        found["write"] = [{"device": limits.write.path, "write_bytes_s": str(limits.write.bytes_s)}]
    if spec.network:
        found["network"] = [{"network": spec.network, "network_name": Path(spec.network).name}]
        found["enter_network"] = found["network"]
    else:
        found["no_network"] = [{}]
    found["volume"] = [
        {
            "source": volume.source,
            "target": volume.target,
            "target_relative": volume.target.lstrip("/"),
            "volume": f"volume{number}",
        }
        for number, volume in enumerate(spec.volumes)
    ]
    return found
