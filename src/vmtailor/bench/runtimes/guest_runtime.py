# SPDX-License-Identifier: Apache-2.0
"""A described runtime in a guest that has none of vmtailor. The same tables of commands become a script for its shell,
which makes everything ready, and the words that make one instance. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vmtailor.bench.model.instance import BENCH, BENCH_UNIXBENCH, CALL_BACK, InstanceSpec, Limits, Volume
from vmtailor.bench.runtimes.description import Description, RootForm, fill, filled
from vmtailor.bench.runtimes.host_runtime import groups_of
from vmtailor.bench.runtimes.instance_cgroups import limit_files, no_swap_files
from vmtailor.bench.runtimes.overlay_roots import bundle_config

#: Mount points in a guest of the disk with the image's files, and of the one with ours; neither is written.
TREE, OURS = "/run/vmtailor-tree", "/run/vmtailor-ours"
#: Files on our disk: the program that enters cgroups and roots, and the image as engines load it.
ENTER, ARCHIVE = "enter", "image.tar"
#: A runtime's folder on the system's own disk; the script's log; the file that shows that it started.
FOLDER, LOG, BEGUN = "/var/lib/vmtailor-bench", "/run/vmtailor-bench.log", "/run/vmtailor-bench.begun"
#: Output of the first instance.
FIRST = "/run/vmtailor-bench.first"
#: Prefix of a line of LOG with the reason why a guest cannot be measured.
FAILED = "failed: "
#: Said of a program that a guest lacks.
ABSENT = "is not there"
#: The single instance of the moment; the cgroup of the first one, and that of those that follow. A runtime that passes
#: controllers on in its cgroup leaves it so, and nothing can enter it again.
INSTANCE = "bench1"
_FIRST_CGROUP, _CGROUP = "bench0", INSTANCE
#: Seconds of the guest's time that it rests before counting begins, to finish what it has put off.
REST_S = 30
#: Folder for conducting several instances: their pipes and reports. Each of them sees it as CALL_BACK.
ROUNDS = "/run/vmtailor-bench-rounds"
#: Seconds of the guest's time until all of them must be there.
_THERE_S = 1200
_CGROUPS = "/sys/fs/cgroup"
_READY_TRIES, _UP_TRIES = 600, 120
_REST = ("sync", f"sleep {REST_S}")
_Words = Callable[[Sequence[str]], tuple[str, ...]]

_BEGIN = f"""\
[ -e {BEGUN} ] && exit 0
: >{BEGUN}
exec >{LOG} 2>&1 </dev/null
fail() {{ echo "{FAILED}$*" >&2; exit 0; }}
must() {{ "$@" || fail "$@"; }}
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
up() {{ case "$(systemctl is-system-running 2>/dev/null)" in running|degraded) ;; *) return 1 ;; esac; }}
if command -v systemctl >/dev/null; then
  tries=0  # its own way to wait asks a message bus, which not every system has
  until up || [ $tries -ge {_UP_TRIES} ]; do tries=$((tries + 1)); sleep 1; done
  up || echo "the system is not up after {_UP_TRIES} s: $(systemctl is-system-running 2>&1)"
fi
mount -o remount,rw /
"""


@dataclass(frozen=True)
class InGuest:
    """One command in one runtime of a guest. `prepare`: a shell script, run once; an error in it is a line of LOG that
    begins with FAILED. `run`: makes an instance, runs the command in it, and removes it. `version`: prints the
    runtime's version; empty where nothing does."""

    prepare: str
    run: tuple[str, ...]
    version: tuple[str, ...]


def in_guest(
    one: Description, command: Sequence[str], tag: str, tree: str, ours: str, limits: Limits | None = None
) -> InGuest:
    """Return how a command is run. `tag`: of the image in the archive; `tree`, `ours`: the guest's names of both disks.
    `limits`: of the instance; None: it has none."""
    spec = InstanceSpec(name=INSTANCE, command=tuple(command), limits=limits or Limits())
    guest = Guest(one, tag, entered=one.limits == "cgroup" and (limits is not None or not one.chroot))
    parts = [
        *guest.begin(tree, ours),
        *(must(*guest.words(load, spec)) for load in one.commands.load),
        *guest.placed(spec, (_FIRST_CGROUP, _CGROUP)),
        # The first start is unlike the others, so it does not count.
        f"{must(*guest.words(one.commands.run, spec, _FIRST_CGROUP))} >{FIRST}",
        *(f"{shlex.join(guest.words(gone, spec))} >/dev/null 2>&1" for gone in one.commands.remove),
        *_REST,
    ]
    return InGuest(script(parts), guest.words(one.commands.run, spec), guest.words(one.version, spec))


@dataclass(frozen=True)
class InTurn:
    """Several commands in one runtime of a guest, each in an instance of its own. `prepare`: as of `InGuest`; `run`:
    the words of each."""

    prepare: str
    run: tuple[tuple[str, ...], ...]


def in_turn(
    one: Description,
    commands: Sequence[Sequence[str]],
    first: Sequence[Sequence[str]],
    tag: str,
    tree: str,
    ours: str,
) -> InTurn:
    """Return how several commands are run one after the other. `first`: those that are run before, and do not count;
    `tag`, `tree`, `ours`: as for `in_guest`."""
    guest = Guest(one, tag, entered=one.limits == "cgroup" and not one.chroot)
    specs = [InstanceSpec(name=f"bench{number}", command=tuple(command)) for number, command in enumerate(commands)]
    before = [InstanceSpec(name=f"first{number}", command=tuple(command)) for number, command in enumerate(first)]
    parts = [*guest.begin(tree, ours), *(must(*guest.words(load, specs[0])) for load in one.commands.load)]
    for spec in (*before, *specs):
        parts += guest.placed(spec, (spec.name,))
    for spec in before:
        parts.append(f"{must(*guest.words(one.commands.run, spec, spec.name))} >/dev/null")
        parts += [f"{shlex.join(guest.words(gone, spec))} >/dev/null 2>&1" for gone in one.commands.remove]
    return InTurn(script([*parts, *_REST]), tuple(guest.words(one.commands.run, spec, spec.name) for spec in specs))


def at_once(one: Description, count: int, tag: str, tree: str, ours: str) -> str:
    """Return a shell script that starts so many instances, each of which obeys its conductor (benchmarks/image). It
    ends when all are there. `tag`, `tree`, `ours`: as for `in_guest`."""
    guest = Guest(one, tag, entered=one.limits == "cgroup" and not one.chroot)
    volumes = (Volume(ROUNDS, CALL_BACK),)
    specs = [
        InstanceSpec(
            name=f"bench{number}",
            command=(BENCH_UNIXBENCH, "obey", CALL_BACK, str(number)),
            limits=Limits(),
            volumes=volumes,
        )
        for number in range(count)
    ]
    conduct = conducting(count)
    parts = [
        *guest.begin(tree, ours),
        must("mkdir", "-p", ROUNDS),
        must(*conduct, "make"),
        *(must(*guest.words(load, specs[0])) for load in one.commands.load),
    ]
    for spec in specs:
        parts += guest.placed(spec, (spec.name,))
        parts.append(f"{shlex.join(guest.words(one.commands.run, spec, spec.name))} &")
    return script(
        [*parts, f"timeout {_THERE_S} {shlex.join((*conduct, 'there'))} || fail not all instances came", *_REST]
    )


def conducting(count: int) -> tuple[str, ...]:
    """Return the words that conduct so many instances in a guest, without the order that follows."""
    return f"{TREE}{BENCH}", "conduct", ROUNDS, str(count)


def script(parts: Sequence[str]) -> str:
    """Return a script of these parts, each of whole lines."""
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class Guest:
    """A runtime in a guest. `entered`: its instances are begun in cgroups that we make."""

    one: Description
    tag: str
    entered: bool

    @property
    def folder(self) -> str:
        return f"{FOLDER}/{self.one.name}"

    def words(self, given: Sequence[str], spec: InstanceSpec, cgroup: str = _CGROUP) -> tuple[str, ...]:
        """Return a command's words for an instance. `cgroup`: the name of that in which it is begun."""
        values = self._values(spec)
        procs = ("-c", f"{_CGROUPS}/{cgroup}/cgroup.procs") if self.entered else ()
        lists = {"command": spec.command, "cgroups": procs}
        env = [f"{name}={filled(text, values)}" for name, text in self.one.environment.items()]
        found = fill(given, values, lists, groups_of(spec), self.one.options)
        return ("env", *env, *found) if env and found else found

    def begin(self, tree: str, ours: str) -> list[str]:
        """Return lines before the first instance: what the runtime needs is there, both disks are mounted, its daemon
        runs."""
        none = InstanceSpec(INSTANCE, ())
        values = self._values(none)
        return [
            _BEGIN,
            *(
                f"command -v {shlex.quote(name)} >/dev/null || fail {shlex.quote(name)} {ABSENT}"
                for name in self.one.programs
            ),
            must("mkdir", "-p", TREE, OURS, self.folder),
            must("mount", "-t", "ext4", "-o", "ro", tree, TREE),
            must("mount", "-t", "ext4", "-o", "ro", ours, OURS),
            *(_write(filled(file.path, values), filled(file.content, values)) for file in self.one.file),
            *_daemon(self.one, lambda words: self.words(words, none), f"{self.folder}/daemon.log"),
        ]

    def placed(self, spec: InstanceSpec, cgroups: Sequence[str]) -> list[str]:
        """Return lines that make the instance's cgroups, root directory and bundle, as on a host (host_runtime.py)."""
        found = []
        if self.entered:
            found += [
                f"[ -e {_CGROUPS}/cgroup.controllers ] || fail this system has version 1 of cgroups",
                f"for name in memory cpu pids; do echo +$name >{_CGROUPS}/cgroup.subtree_control; done",
            ]
            for cgroup in (f"{_CGROUPS}/{name}" for name in cgroups):
                found.append(must("mkdir", cgroup))
                for name, text in limit_files(spec.limits, unified=True):
                    found.append(f"echo {shlex.quote(text)} >{cgroup}/{name} || fail {name}")
                for name, text in no_swap_files(spec.limits, unified=True):
                    found.append(f"[ ! -e {cgroup}/{name} ] || echo {shlex.quote(text)} >{cgroup}/{name}")
        if self.one.root is RootForm.IMAGE:
            return found
        own = f"{self.folder}/{spec.name}"
        root = f"{own}/{_root_name(self.one)}"
        options = f"lowerdir={TREE},upperdir={own}/upper,workdir={own}/work"
        found += [
            must("mkdir", "-p", root, f"{own}/upper", f"{own}/work"),
            must("mount", "-t", "overlay", "-o", options, "overlay", root),
        ]
        if self.one.root is RootForm.KERNEL_DIRECTORY:
            inside = [(f"/{name}", f"{root}/{name}") for name in ("proc", "sys", "dev")]
            found.append(must("mkdir", "-p", *(at for _, at in inside)))  # an image may lack them
            found += [must("mount", "--rbind", name, at) for name, at in inside]
            for volume in spec.volumes:  # which nobody else mounts
                found.append(must("mkdir", "-p", f"{root}{volume.target}"))
                found.append(must("mount", "--bind", volume.source, f"{root}{volume.target}"))
        if self.one.root is RootForm.BUNDLE:
            found.append(_write(f"{own}/config.json", json.dumps(bundle_config(spec), indent=1)))
        return found

    def _values(self, spec: InstanceSpec) -> dict[str, str]:
        own = f"{self.folder}/{spec.name}"
        return {
            "folder": self.folder, "enter": f"{OURS}/{ENTER}", "image": self.tag, "archive": f"{OURS}/{ARCHIVE}",
            "name": spec.name, "root": f"{own}/{_root_name(self.one)}", "bundle": own, "cgroup": f"/{spec.name}",
            "command_line": shlex.join(spec.command),
        }  # fmt: skip


def must(*words: str) -> str:
    """Return a line of a script that ends it, with the command as the reason, where the command fails."""
    return f"must {shlex.join(words)}"


def _write(path: str, content: str) -> str:
    folder, named = path.rpartition("/")[0] or "/", shlex.quote(path)
    return f"{must('mkdir', '-p', folder)}\nprintf %s {shlex.quote(content)} >{named} || fail {named}"


def _daemon(one: Description, words: _Words, log: str) -> list[str]:
    if one.daemon is None:
        return []
    start, ready = shlex.join(words(one.daemon.start)), shlex.join(words(one.daemon.ready))
    return [
        f"{start} >{shlex.quote(log)} 2>&1 &",
        f"tries=0\nuntil {ready} >/dev/null 2>&1; do",
        f"  tries=$((tries + 1)); kill -0 $! 2>/dev/null && [ $tries -lt {_READY_TRIES} ] || "
        f"{{ tail -n 20 {shlex.quote(log)}; fail {shlex.quote(one.daemon.start[0])} did not get ready; }}",
        "  sleep 0.1\ndone",
    ]


def _root_name(one: Description) -> str:
    return "rootfs" if one.root is RootForm.BUNDLE else "root"
