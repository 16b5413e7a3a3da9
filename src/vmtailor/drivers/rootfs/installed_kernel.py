# SPDX-License-Identifier: Apache-2.0
"""A packaged kernel as its package would install it in a system: image, configuration, and modules with their index.
Files only: no program of the system runs."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.files.temporary import held_folder
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.rootfs.rootfs import Extra
from vmtailor.model.kernel import KernelBaseline

#: Seconds that indexing the modules of one kernel may take.
INDEX_S = 300.0


def entries(kernel: KernelBaseline, lib: str) -> list[Extra]:
    """Return the files to lay over a system's tree. `lib`: the target of /lib in it, such as `usr/lib`.

    Raises HostError where the host has no depmod."""
    release, top = kernel.release, f"{lib}/modules/{kernel.release}"
    modules = Path(kernel.modules_dir)
    found = [
        Extra(f"boot/vmlinuz-{release}", data=Path(kernel.vmlinuz)),
        Extra(f"boot/config-{release}", data=Path(kernel.config)),
        *(
            Extra(f"{top}/{path.relative_to(modules)}", data=path)
            for path in sorted(modules.rglob("*"))
            if path.is_file()
        ),
    ]
    return [*found, *(Extra(f"{top}/{name}", data=data) for name, data in sorted(_index(modules, release).items()))]


def _index(modules: Path, release: str) -> dict[str, bytes]:
    """Return the files by which modules are found, and which a package's installation has this host's depmod write."""
    with held_folder() as held:
        folder = held / "lib" / "modules" / release
        folder.mkdir(parents=True)
        for path in modules.iterdir():
            (folder / path.name).symlink_to(path.absolute())
        run([require_tool("depmod", "kmod"), "-b", str(held), release], timeout_s=INDEX_S)
        return {path.name: path.read_bytes() for path in folder.iterdir() if not path.is_symlink()}
