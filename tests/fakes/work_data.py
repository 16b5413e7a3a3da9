# SPDX-License-Identifier: Apache-2.0
"""A made-up trace of the tiny kernel tree, and a cache with all that a work folder leaves there."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from pathlib import Path

import pytest
from tests.fakes import kernel_tree
from tests.fakes.bundle_data import EXERCISE, trace_record

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Catalogue
from vmtailor.analysis.cost.attribution import AttributedCost, Attribution
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import dot_config, records
from vmtailor.base.natives import Natives
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Phase
from vmtailor.model.change import Cause
from vmtailor.model.image import Image, ImageConfig, Port
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.trace import Trace
from vmtailor.pipeline import code_cost
from vmtailor.pipeline import image_subject as fit_inputs
from vmtailor.pipeline.image_subject import ImageSubject
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import kernel_plan as planning

LOG = b"""\
100 1000.000001 epoll_create1(0) = 3 <0.000002>
100 1000.000002 socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP) = 4 <0.000003>
"""
BOOK = Catalogue(
    tuple(
        symbol_catalogue.parse(
            '[[entry]]\nid = "base"\nreason = "the machine"\nsymbols = { 64BIT = "y", EXPERT = "y", DISK = "y" }\n'
            'words = ["quiet"]\n',
            Cause.PLATFORM,
            "platform",
        )
    )
)
IMAGE = ImageConfig("amd64", exposed_ports=(Port(80),))
BASELINE = Machine("microvm", 64 << 20, "k")


def play(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing is booted, and the tiny tree is what is read."""
    tree = kernel_tree.read_tree()
    monkeypatch.setattr(symbol_catalogue, "load", lambda **_: BOOK)
    monkeypatch.setattr(planning, "read_tree", lambda *_, **__: tree)
    monkeypatch.setattr(code_cost, "attributed", _attributed)
    monkeypatch.setattr(fit_inputs, "baseline_of", lambda *_: BASELINE)
    monkeypatch.setattr(fit_inputs, "build_root", lambda *_: folder / "root.erofs")
    monkeypatch.setattr(fit_inputs, "tools_volume", lambda *_: folder / "tools.erofs")


def _attributed(_inputs: ImageSubject, record: Trace, folder: Path, _tree: object) -> Attribution:
    """What the coverage says is what it costs."""
    cost = int((folder / record.coverage_file).read_text())
    return Attribution((AttributedCost(Phase.KERNEL, "f", "f.c", "SHADOW", cost),), {}, {})


def inputs(folder: Path, store: Store) -> ImageSubject:
    """What a fit of the made-up image begins with; its parts are in the cache."""

    def image(made: Path) -> None:
        with tarfile.open(made / "rootfs.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("server"), io.BytesIO())
        records.save(Image("oci:x", "sha256:0", IMAGE, "rootfs.tar", "ab" * 32, 1, 0), made / "image.json")

    def kernel(made: Path) -> None:
        (made / "modules").mkdir()
        (made / "vmlinuz").write_bytes(b"kernel")
        tree = kernel_tree.read_kconfig()
        switches = {name: "y" for name in tree.symbols if tree.is_switch(name)}
        (made / "config").write_text(dot_config.render(switches))

    def debug(made: Path) -> None:
        (made / "vmlinux").write_bytes(b"debug")
        (made / "System.map").write_text("ffffffff81000000 T _text\n")

    def source(made: Path) -> None:
        shutil.copytree(kernel_tree.SOURCE, made, dirs_exist_ok=True)

    key = digest("made up")
    at, symbols = store.get("kernel-image", key, kernel), store.get("kernel-debug", key, debug)
    modules, tree = store.get("kernel-debug-modules", key, lambda _: None), store.get("kernel-source", key, source)
    archive = store.get("image", key, image) / "rootfs.tar"
    baseline = KernelBaseline(
        kernel_tree.VERSION, kernel_tree.VERSION, str(at / "vmlinuz"), str(at / "config"),
        str(symbols / "System.map"), str(at / "modules"), str(symbols / "vmlinux"), str(modules), str(tree), key,
        ("package",),
    )  # fmt: skip
    options = FitOptions(
        "oci:x", folder, architecture="x86_64", machine="microvm", memory_bytes=64 << 20, cpu_model="max", store=store
    )
    return ImageSubject(
        options=options,
        architecture=named("x86_64"),
        image=Image("oci:x", "sha256:0", IMAGE, str(archive), "ab" * 32, 1, 0),
        exercise=EXERCISE,
        kernel=baseline,
        source=SourceTree(tree, key),
        natives=Natives(folder),
        root=folder / "root.erofs",
        tools=folder / "tools.erofs",
        baseline=BASELINE,
        table=SymbolTable.parse((symbols / "System.map").read_text(), "x86_64"),
        config=dot_config.parse((at / "config").read_text()),
    )


def traced(folder: Path) -> Trace:
    """The files of a trace."""
    folder.mkdir()
    record = trace_record()
    (folder / record.coverage_file).write_text("1234")
    (folder / record.requests_file).write_bytes(LOG)
    records.save(record, folder / "trace.json")
    return record


def kernel_files(folder: Path) -> KernelFiles:
    """A kernel that is none, as the build stage gives it."""
    folder.mkdir(exist_ok=True)
    for name in ("vmlinux", "config", "System.map"):
        (folder / name).write_text(name)
    sha256 = hashlib.sha256(b"vmlinux").hexdigest()
    return KernelFiles(
        "6.12.7", str(folder / "vmlinux"), 7, None, 7, str(folder / "config"), str(folder / "System.map"), sha256,
        "cc", 1, 1.0,
    )  # fmt: skip
