# SPDX-License-Identifier: Apache-2.0
"""libvirt as a target: a domain of a q35 board that starts a kernel directly, and a script that defines it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.targets import kvm_trial, targets
from vmtailor.drivers.targets.target import DHCP, Export, ExportFolder, ExportTarget, Guide, TargetRow
from vmtailor.model.architecture import named
from vmtailor.model.machine import Clock, Devices, Disk, DiskMode, Machine

_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
ElementTree.register_namespace("qemu", _QEMU)
#: The slot of a network device of QEMU's own: libvirt gives its devices the lower ones.
_SLOT = "bus=pcie.0,addr=0x1e"
#: Of the identifiers that domains get by their name and image.
_SPACE = uuid.UUID("766d7461-696c-4f72-8000-000000000002")
#: libvirt's own network, and the connection of each variant.
_NETWORK = "default"
_CONNECTIONS = {"session": "qemu:///session", "passt": "qemu:///session", "system": "qemu:///system"}
_ENDS = {"on_poweroff": "destroy", "on_reboot": "destroy", "on_crash": "destroy"}

_SCRIPT = """\
#!/bin/sh
# Defines the machine {name} in libvirt ({connection}), with the files of this folder.
# TYPE=kvm or TYPE=qemu (emulation): choose; by default KVM where it works.
set -eu
cd "$(dirname "$0")"
here=$(pwd)
case $here in
*[!A-Za-z0-9/._+-]*) echo "put this folder where its path has letters, digits and /._+- alone" >&2 && exit 1 ;;
esac
{trial}
type=qemu
if [ -z "${{TYPE:-}}" ] && kvm_works; then type=kvm; fi
sed -e "1s|type=\\"kvm\\"|type=\\"${{TYPE:-$type}}\\"|" -e "s|{place}|$here|g" {name}.xml |
    virsh --connect {connection} define /dev/stdin
"""


class LibvirtTarget(ExportTarget):
    """Writes the domain, `define`, kernel and disks."""

    def refusal(self, export: Export) -> UserInputError | None:
        """Return the error for words that XML cannot hold."""
        if not all(word.isprintable() for word in export.machine.words):
            return self.refuse("its kernel's command line has characters that XML cannot hold", "fit the image again")
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        place = f"/var/lib/libvirt/images/{export.name}"
        folder.copy(export.kernel, export.kernel_name)
        machine = replace(export.machine, kernel=export.kernel_name, disks=folder.disks(export), mac=_mac(export))
        if machine.initrd is not None:
            folder.copy(Path(machine.initrd), "initrd")
            machine = replace(machine, initrd="initrd")
        folder.text(f"{export.name}.xml", domain(export, machine, place))
        connection = _CONNECTIONS[export.variant]
        program = named(machine.architecture).emulator.program
        trial = kvm_trial.write(export, folder, program, others=export.variant == "system")
        script = _SCRIPT.format(name=export.name, place=place, connection=connection, trial=trial)
        folder.text("define", script, executable=True)
        return Guide(
            "./define", f"virsh --connect {connection} start {export.name} --console",
            (*_network_notes(export), *_notes(export, connection)),
        )  # fmt: skip


def _row() -> TargetRow:
    """Return the row of this target."""
    return targets.chosen("libvirt").row


def domain(export: Export, machine: Machine, place: str) -> bytes:
    """Return the domain of a machine whose files, by their names, are in a folder."""
    top = Element("domain", {"type": "kvm"})
    _text(top, "name", export.name)
    _text(top, "uuid", str(uuid.uuid5(_SPACE, f"{export.name} {export.bundle.image_digest}")))
    _text(top, "memory", str(machine.memory_bytes >> 10), unit="KiB")
    _text(top, "vcpu", str(machine.cpus))
    system = SubElement(top, "os")
    _text(system, "type", "hvm", arch=machine.architecture, machine=_row().board)
    for name, path in machine.files.items():
        _text(system, name, f"{place}/{path}")
    _text(system, "cmdline", " ".join(machine.words))
    _nested(top, "features", {name: {} for name in _row().features})
    SubElement(top, "cpu", {"mode": "maximum"})
    clock = SubElement(top, "clock", {"offset": "utc"})
    for name in _row().absent_timers:
        SubElement(clock, "timer", {"name": name, "present": "no"})
    for name, does in _ENDS.items():
        _text(top, name, does)
    devices = SubElement(top, "devices")
    for number, disk in enumerate(machine.disks):
        _disk(devices, number, disk, place)
    SubElement(devices, "controller", {"type": "usb", "model": "none"})
    if machine.network and export.variant != "session":
        _interface(devices, export, machine)
    serial = SubElement(devices, "serial", {"type": "pty"})
    SubElement(serial, "log", {"file": f"{place}/console.log", "append": "off"})
    SubElement(serial, "target", {"port": "0"})
    _nested(devices, "console", {"target": {"type": "serial", "port": "0"}}, type="pty")
    _nested(devices, "video", {"model": {"type": "none"}})
    SubElement(devices, "memballoon", {"model": "none"})
    if machine.network and export.variant == "session":
        commandline = SubElement(top, f"{{{_QEMU}}}commandline")
        for word in _user_network(machine):
            SubElement(commandline, f"{{{_QEMU}}}arg", {"value": word})
    ElementTree.indent(top)
    return ElementTree.tostring(top) + b"\n"


def _text(parent: Element, name: str, text: str, **attributes: str) -> None:
    SubElement(parent, name, attributes).text = text


def _nested(parent: Element, name: str, children: Mapping[str, Mapping[str, str]], **attributes: str) -> None:
    made = SubElement(parent, name, attributes)
    for child, its in children.items():
        SubElement(made, child, dict(its))


def _disk(devices: Element, number: int, disk: Disk, place: str) -> None:
    """Add a disk. One that QEMU would overlay is written: it is the export's own copy."""
    made = SubElement(devices, "disk", {"type": "file", "device": "disk"})
    SubElement(made, "driver", {"name": "qemu", "type": str(disk.format)})
    SubElement(made, "source", {"file": f"{place}/{disk.path}"})
    SubElement(made, "target", {"dev": f"vd{chr(ord('a') + number)}", "bus": "virtio"})
    if disk.mode is DiskMode.READ_ONLY:
        SubElement(made, "readonly")


def _interface(devices: Element, export: Export, machine: Machine) -> None:
    """Add libvirt's own network device: on its network, or behind passt with the published ports."""
    passt = export.variant == "passt"
    made = SubElement(devices, "interface", {"type": "user" if passt else "network"})
    SubElement(made, "mac", {"address": machine.mac})
    if not passt:
        SubElement(made, "source", {"network": _NETWORK})
    if passt and export.address not in ("", DHCP):
        address, _, prefix = export.address.partition(",")[0].partition("/")
        SubElement(made, "ip", {"family": "ipv4", "address": address, "prefix": prefix})
    SubElement(made, "model", {"type": "virtio"})
    if passt:
        SubElement(made, "backend", {"type": "passt"})
        for port in machine.ports:
            forward = SubElement(made, "portForward", {"proto": port.protocol, "address": port.host_address})
            SubElement(forward, "range", {"start": str(port.host_port), "to": str(port.guest_port)})


def _user_network(machine: Machine) -> tuple[str, ...]:
    """Return the words by which QEMU gives a machine its own network, with the published ports."""
    bare = replace(
        machine,
        board=_row().board,
        disks=(),
        devices=Devices.BARE,
        clock=Clock.WALL,
        kernel=None,
        initrd=None,
        words=(),
    )
    argv = monitors.of(bare).command(bare)
    at = argv.index("-netdev")
    netdev, device = argv[at + 1], argv[at + 3]
    return ("-netdev", netdev, "-device", f"{device},{_SLOT}")


def _mac(export: Export) -> str:
    """Return an address of its own for each name: machines may share a network."""
    found = hashlib.sha256(f"{export.name} {export.bundle.image_digest}".encode()).hexdigest()
    return f"52:54:00:{found[:2]}:{found[2:4]}:{found[4:6]}"


def _network_notes(export: Export) -> list[str]:
    if not export.machine.network:
        return []
    if export.variant != "system":
        return [f"- `{port.host_place}` on this host leads to port {port.guest_port} of the machine."
                for port in export.machine.ports]  # fmt: skip
    found = [f"- It is on libvirt's network `{_NETWORK}`: `virsh --connect qemu:///system net-start {_NETWORK}`."]
    if export.address == DHCP:
        tells = f"virsh --connect qemu:///system domifaddr {export.name}"
        found += [f"- `{tells}` tells the address that it got. No port is published."]
    elif export.address:
        found += [f"- Its address is {export.address.partition('/')[0]}, always; `--address` of `vmtailor export` "
                  "chooses. No port is published."]  # fmt: skip
    return found


def _notes(export: Export, connection: str) -> list[str]:
    virsh, name = f"virsh --connect {connection}", export.name
    found = [
        "- `console.log` has what its console showed, too. Ctrl-] leaves the console.",
        f"- `{virsh} destroy {name}` ends it, `{virsh} undefine {name}` forgets it.",
    ]
    if export.variant == "system":
        found += [f"- Put this folder where libvirt's QEMU may read it, such as /var/lib/libvirt/images/{name}."]
    return found
