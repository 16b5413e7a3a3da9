# SPDX-License-Identifier: Apache-2.0
"""`export`: a bundle's machine as files that start without vmtailor."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable
from vmtailor.base.text import plain
from vmtailor.booting import fitted_machine
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.targets import targets
from vmtailor.drivers.targets.target import DHCP, Export, ExportFolder, ExportWishes, Guide, TargetRow
from vmtailor.model.architecture import named
from vmtailor.model.kernel_needs import KernelNeed
from vmtailor.model.machine import DiskMode, Machine, PublishedPort
from vmtailor.pipeline import bundle_kernel_forms, run_ports

#: Marks a folder as one that an export wrote, and may write again.
RECORD, SCHEMA = "export.json", "vmtailor/export/1"
README = "README.md"
#: Words of init's (native/init): its console shows no frames; it ends by ACPI.
_PLAIN, _OFF = "VT_CONSOLE=plain", "VT_END=off"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_ADDRESS = re.compile(rf"{DHCP}|[0-9.]{{7,15}}/[0-9]{{1,2}},[0-9.]{{7,15}}(?:,[0-9.]{{7,15}})?\Z")


@dataclass(frozen=True)
class Exported:
    """An export in its place: its folder, its target, the guide for a person, and its files."""

    folder: Path
    target: targets.ChosenTarget
    guide: Guide
    files: tuple[str, ...]


def export(bundle: Path, target: str, out: Path | None, wishes: ExportWishes, store: Store) -> Exported:
    """Write a bundle for a target. Raises UserInputError for a target that the bundle's kernel cannot serve, with the
    command that makes one which can, and for a folder that holds something else."""
    chosen = targets.chosen(target)
    files = bundle_folder.load(bundle, store)
    name = _name(wishes.name or files.bundle.name)
    to = (out or Path(f"{name}-{chosen.row.name}")).absolute()
    _require_place(to)
    made = prepare(files, chosen, replace(wishes, name=name))
    if chosen.kernel_form:
        made = replace(made, form=bundle_kernel_forms.made(files, chosen.kernel_form, store))
    with disk_full_is_a_host_error(to.parent):
        folder = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-"))
        try:
            writing = ExportFolder(folder)
            guide = targets.named(chosen.row.name).write(made, writing)
            writing.text(README, readme(made, chosen.row.of(chosen.variant), guide))
            written = tuple(sorted(writing.written))
            writing.text(RECORD, _record(made, chosen, written))
            folder.chmod(0o755)
            _require_place(to)
            if to.exists():
                durable.exchange(folder, to)
            else:
                durable.place(folder, to)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return Exported(to, chosen, guide, written)


def prepare(files: BundleFolder, chosen: targets.ChosenTarget, wishes: ExportWishes) -> Export:
    """Return a bundle's machine for a target. Raises UserInputError where the target cannot have it."""
    bundle, row = files.bundle, chosen.row.of(chosen.variant)
    laid = [name for name, _ in bundle.patches]
    if strange := [name for name in wishes.patches if name not in laid]:
        raise UserInputError(f"the kernel of {files.path} has no patch {', '.join(plain(one[:64]) for one in strange)}")
    if patched := [name for name in laid if name not in wishes.patches]:
        raise UserInputError(
            f"the kernel of {files.path} has patches of its source, which are unsafe: {', '.join(patched)}",
            hint=" ".join(f"--allow-patched {name}" for name in patched) + " exports it all the same",
        )
    targets.require_architecture(chosen, bundle.architecture)
    if files.is_system and not row.systems:
        raise UserInputError(
            f"{row.title} takes no system with an init of its own from vmtailor",
            hint=f"these do: {', '.join(one.name for one in targets.every() if one.systems)}",
        )
    machine = fitted_machine.machine_of(files, Chosen(memory_bytes=wishes.memory_bytes))
    machine = replace(machine, cpus=wishes.cpus or machine.cpus, ports=_ports(files, wishes, machine))
    if files.is_system:  # the disk is a copy, and the system's own
        machine = replace(machine, disks=tuple(replace(disk, mode=DiskMode.WRITTEN) for disk in machine.disks))
    if wishes.outbound:
        machine = replace(machine, outbound=True, host_loopback=True)
    require_needs(files, chosen, network=machine.network)
    if not files.is_system and not guest_volume.has_plain_console(files.init):
        raise UserInputError(
            f"the init of {files.path} is older than exports: its console would show frames",
            hint="fit the image again; its kernel is in the cache",
        )
    address = _address(machine, wishes, row)
    if address == DHCP and not files.is_system and not guest_volume.has_dhcp(files.init):
        raise UserInputError(
            f"the init of {files.path} is older than its DHCP client", hint="fit the image again, or give --address"
        )
    made = Export(
        bundle=bundle, files=files, machine=machine, variant=chosen.variant, name=wishes.name, wishes=wishes,
        config=files.config, volume=_volume(files, wishes), address=address,
    )  # fmt: skip
    words = machine.words if files.is_system else (*_own_words(machine, row), *_guest_words(made, row))
    made = replace(made, machine=replace(machine, words=words))
    if (refused := targets.named(row.name).refusal(made)) is not None:
        raise refused
    return made


def require_needs(files: BundleFolder, chosen: targets.ChosenTarget, *, network: bool = True) -> None:
    """Raise UserInputError for a kernel that lacks what a target needs, with the command that makes one which has
    it."""
    row = chosen.row.of(chosen.variant)
    lacking = [
        (need, names)
        for need in row.needed(files.bundle.architecture, chosen.variant, network=network)
        if (names := need.lacking(files.config))
    ]
    if lacking:
        raise _lacks(files, chosen, lacking)


def readme(made: Export, row: TargetRow, guide: Guide) -> str:
    """Return an export's README: two commands, what is needed, and what was tried."""
    what = made.bundle.image_reference or "a system"
    unproven = guide.unproven or row.checked
    proof = f"vmtailor's tests {row.tried}." if row.tried else ""
    doubt = (
        f"**vmtailor's tests do not run these commands.** They check this: {unproven}"
        if unproven and not row.tried
        else unproven
    )
    parts = [
        f"# {made.name}: a virtual machine ({row.title})",
        f"It runs `{_code(what)}` on a kernel {made.bundle.kernel_version} that was fitted to it.",
        f"You need {row.needs}. In this folder:",
        f"```sh\n{guide.first}\n{guide.second}\n```",
        *(["\n".join(guide.notes)] if guide.notes else []),
        *[part for part in (proof, doubt) if part],
        "`vmtailor export` wrote this folder from a bundle. Nothing in it is signed.",
    ]
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    return "".join(c if c.isprintable() and c != "`" else "?" for c in text)[:300]


def _record(made: Export, chosen: targets.ChosenTarget, files: Iterable[str]) -> str:
    kernel, bundle = made.files.listed(made.bundle.kernel), made.bundle
    document = {
        "schema": SCHEMA, "target": chosen.text, "name": made.name, "image_digest": bundle.image_digest,
        "kernel_sha256": kernel.sha256, "files": list(files),
    }  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def _require_place(to: Path) -> None:
    """Raise UserInputError for a place that something else has."""
    if not to.parent.is_dir():
        raise UserInputError(f"the folder {to.parent} does not exist", hint="make it, or name another with -o")
    if to.is_symlink() or (to.exists() and not ((to / RECORD).is_file() or (to.is_dir() and not any(to.iterdir())))):
        raise UserInputError(f"{to} exists and is no export", hint="name another folder with -o, or remove it")


def _name(text: str) -> str:
    """Return a name that every target takes. Raises UserInputError for one that the user gave and none takes."""
    found = re.sub(r"[^a-z0-9-]+", "-", text.lower())[:63].strip("-") or "machine"
    if not _NAME.fullmatch(found):
        raise UserInputError(f"'{text[:64]}' is no name of a machine", hint="--name: letters, digits and '-'")
    return found


def _ports(files: BundleFolder, wishes: ExportWishes, machine: Machine) -> tuple[PublishedPort, ...]:
    """Return the ports to publish: the user's, else those that the image exposes, the privileged ones 8000 higher."""
    if not machine.network:
        return ()
    if wishes.ports or files.bundle.image is None:
        return wishes.ports
    exposed = sorted((one.number, one.protocol) for one in files.bundle.image.exposed_ports)
    return tuple(
        PublishedPort(run_ports.LOOPBACK, port if port >= 1024 else port + 8000, port, protocol)
        for port, protocol in exposed
        if protocol in ("tcp", "udp")
    )


def _own_words(machine: Machine, row: TargetRow) -> tuple[str, ...]:
    """Return the machine's words, with the console by the target's name, and without a reset as the end where the
    target would start the machine again."""
    own = f"console={named(machine.architecture).kernel.console}"
    words = [
        row.console and f"console={row.console}" if word == own and row.console else word for word in machine.words
    ]
    return tuple(word for word in words if not (row.power_off and word == "reboot=t"))


def _address(machine: Machine, wishes: ExportWishes, row: TargetRow) -> str:
    """Return the guest's address. Raises UserInputError for one that the user gave and that is none."""
    address = wishes.address or row.address
    if address and not _ADDRESS.fullmatch(address):
        raise UserInputError(
            f"'{address[:64]}' is no address of a machine", hint=f"{DHCP}, or ADDRESS/PREFIX,GATEWAY[,DNS], such as "
            "172.16.0.2/30,172.16.0.1,1.1.1.1",
        )  # fmt: skip
    return address if machine.network else ""


def _guest_words(made: Export, row: TargetRow) -> tuple[str, ...]:
    words = [_PLAIN]
    words += [f"VT_NET={made.address}"] if made.address else []
    words += [_OFF] if row.power_off else []
    words += ["VT_RUN=1"] if made.volume is not None else []
    return tuple(words)


def _volume(files: BundleFolder, wishes: ExportWishes) -> bytes | None:
    """Return the run volume with the user's variables and command; None where there are none."""
    if not wishes.env and not wishes.command and not files.bundle.privileged:
        return None
    if files.is_system:
        raise UserInputError("a system starts its own programs", hint="leave the command and --env out")
    for one in wishes.env:
        if not re.match(r"[^=\0]+=", one):
            raise UserInputError(f"--env '{one[:64]}' is no variable", hint="NAME=VALUE")
    entrypoint = files.bundle.image.entrypoint if files.bundle.image is not None else ()
    argv = (*entrypoint, *wishes.command) if wishes.command else ()
    pairs = [("arg", word) for word in argv] + [("env", one) for one in wishes.env]
    pairs += [("privileged", "1")] if files.bundle.privileged else []
    return guest_volume.volume(pairs)


def _lacks(
    files: BundleFolder, chosen: targets.ChosenTarget, lacking: list[tuple[KernelNeed, tuple[str, ...]]]
) -> UserInputError:
    names = list(dict.fromkeys(name for _, symbols in lacking for name in symbols))
    able = [
        f"{chosen.row.name}:{one}"
        for one in chosen.row.variants
        if one != chosen.variant
        and not any(
            need.lacking(files.config)
            for need in chosen.row.needed(files.bundle.architecture, one, network=files.bundle.network)
        )
    ]
    where = str(files.path)
    fit = f"vmtailor refit {where} --for {chosen.text} -o {where}-{chosen.row.name} keeps what it lacks"
    return UserInputError(
        f"the kernel of {where} cannot start in {chosen.row.title}: it lacks {', '.join(names)}",
        hint=f"{fit}; or --to {able[0]}" if able else fit,
        details="\n".join(f"{', '.join(symbols)}: {need.where}: {need.reason}" for need, symbols in lacking),
    )


def no_target() -> UserInputError:
    """Return the error for an export that names no target."""
    return UserInputError("export needs a target", hint=f"--to {', '.join(targets.names())}")
