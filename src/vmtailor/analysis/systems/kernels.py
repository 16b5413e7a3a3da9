# SPDX-License-Identifier: Apache-2.0
"""The kernels of a system, by where distributions put them; and which one starts."""

from __future__ import annotations

import re

from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.notation import module_name
from vmtailor.base.text import is_number
from vmtailor.model.systems.system import InstalledKernel, LoaderEntry
from vmtailor.model.systems.tree import NodeKind

_RELEASE = re.compile(r"\d+\.\d+[\w.+~-]{0,100}")
_IMAGES = (
    "/boot/vmlinuz-{r}",
    "/boot/vmlinux-{r}",
    "/usr/lib/modules/{r}/vmlinuz",
    "/boot/kernel-{r}",
    "/boot/Image-{r}",
)
_CONFIGS = ("/boot/config-{r}", "/usr/lib/modules/{r}/config")
_INITRDS = ("/boot/initrd.img-{r}", "/boot/initramfs-{r}.img", "/boot/initrd-{r}", "/usr/lib/modules/{r}/initrd")
_IMAGE_NAME = re.compile(r"(?:vmlinuz|vmlinux|kernel|Image)-(\d.{0,100})")
_MODULE = re.compile(r"\.ko(?:\.(?:gz|xz|zst))?$")
#: Kernels that are looked at; no system keeps a tenth.
MOST_KERNELS = 50


def installed(root: RootTree) -> tuple[InstalledKernel, ...]:
    """Return every kernel that has an image or modules, oldest release first."""
    releases = {name for name, node in root.names("/lib/modules").items() if node.kind is NodeKind.FOLDER}
    releases |= {found[1] for name in root.names("/boot") if (found := _IMAGE_NAME.fullmatch(name))}
    known = sorted((one for one in releases if _RELEASE.fullmatch(one)), key=version_order)[-MOST_KERNELS:]
    return tuple(_kernel(root, release) for release in known)


def _kernel(root: RootTree, release: str) -> InstalledKernel:
    image, image_bytes = _first(root, _IMAGES, release)
    initrd, initrd_bytes = _first(root, _INITRDS, release)
    modules = [node.size for path, node in root.walk(f"/lib/modules/{release}") if _is_module(path, node.kind)]
    config = _first(root, _CONFIGS, release)[0]
    return InstalledKernel(
        release=release,
        image=image,
        image_bytes=image_bytes,
        config=config,
        initrd=initrd,
        initrd_bytes=initrd_bytes,
        modules=len(modules),
        modules_bytes=sum(modules),
    )


def module_paths(root: RootTree, release: str) -> dict[str, str]:
    """Return the modules of a release by name, as the kernel names them, with their paths."""
    top = f"/lib/modules/{release}"
    return {
        module_name(_MODULE.sub("", path.rpartition("/")[2])): f"{top}/kernel/{path}"
        for path, node in root.walk(f"{top}/kernel")
        if _is_module(path, node.kind)
    }


def _is_module(path: str, kind: NodeKind) -> bool:
    return kind is NodeKind.FILE and _MODULE.search(path) is not None


def _first(root: RootTree, places: tuple[str, ...], release: str) -> tuple[str, int]:
    for place in places:
        path = place.format(r=release)
        node = root.node(path)
        if node is not None and node.kind is NodeKind.FILE and node.size:
            return path, node.size
    return "", 0


def starting(root: RootTree, kernels: tuple[InstalledKernel, ...], entries: tuple[LoaderEntry, ...]) -> str:
    """Return the release that starts by default: the loader's entry, or the newest that has an image."""
    bootable = [one for one in kernels if one.image]
    chosen = next((one for one in entries if one.chosen), None)
    if chosen is not None:
        wanted = root.resolve(chosen.kernel)
        for one in bootable:
            if wanted and root.resolve(one.image) == wanted:
                return one.release
        # systemd-boot has a copy of its own: below a folder of the release.
        for one in bootable:
            if wanted and one.release in wanted.split("/"):
                return one.release
    return bootable[-1].release if bootable else ""


def version_order(release: str) -> list[tuple[int, int, str]]:
    """Return the key that sorts releases as people do."""
    return [(1, int(p), "") if is_number(p) else (0, 0, p) for p in re.findall(r"\d{1,18}|\D+", release)]
