# SPDX-License-Identifier: Apache-2.0
"""`run IMAGE`: which kernel an image starts on, and what is said of it. Nothing is fetched, and nothing boots."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import bundle, write_bundle
from tests.fakes.fit_run_data import fit_run

from vmtailor.base import process
from vmtailor.base.cache import lock_holder, store
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder, family_kernels
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.image import image_reference
from vmtailor.drivers.shares import file_servers
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.margin import Margin
from vmtailor.pipeline import fit, fit_behind, image_bundle, image_run, mount_words
from vmtailor.pipeline.fit_behind import FitBehind
from vmtailor.pipeline.image_run_options import ImageRunOptions, RunSubject
from vmtailor.pipeline.machine_run import RunOptions, require_meant
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.pull_options import PullOptions
from vmtailor.pipeline.run_subject import subject_of
from vmtailor.stages import image_fetch

pytestmark = pytest.mark.usefixtures("own_cache")

CONFIG = ImageConfig("amd64", entrypoint=("/bin/own",))
IMAGE = Image(
    reference="oci:mine", digest="sha256:" + "1a" * 32, config=CONFIG, archive="", archive_sha256="2b" * 32, entries=1,
    unpacked_bytes=1,
)  # fmt: skip
SERVER = (Margin.REACHABLE, Margin.SERVER)
UNFITTED = "family kernel, not fitted: nothing proven for this image\n"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A reference to an image that is fetched already, and whose root is made."""
    folder = tmp_path / "layout"
    folder.mkdir()
    (folder / "oci-layout").touch()
    reference = f"oci:{folder}"
    root = tmp_path / "root" / "root.erofs"
    root.parent.mkdir()
    root.write_bytes(b"own root" * 64)
    monkeypatch.setattr(image_fetch, "fetch", lambda name, *_: replace(IMAGE, reference=name))
    monkeypatch.setattr(image_fetch, "require_start", lambda *_, **__: None)
    monkeypatch.setattr(image_bundle, "build_root", lambda *_: root)
    return reference


def fit_in_cache(name: str, margins: tuple[Margin, ...], when: int, **record: Any) -> Path:
    """A fitted bundle in the cache, as a fit leaves it, last changed at this second."""
    folder = Store().root / image_bundle.FITTED / name
    write_bundle(folder, architecture="x86_64")
    (folder / "vmlinux").write_text(f"kernel of {name}")
    records.save(replace(fit_run().plan, margins=margins), folder / "plan.json")
    seal(folder, bundle(architecture="x86_64", image_reference=f"oci:{name}", **record))
    os.utime(folder / "bundle.json", (when, when))
    return folder


def start(reference: str, **wanted: Any) -> RunSubject:
    return subject_of(RunOptions(Path(reference)), ImageRunOptions(**wanted))


def test_the_newest_fit_of_the_same_image_is_taken(layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"image_digest": IMAGE.digest, "image": CONFIG}
    fit_in_cache("older", (), 1000, **own)
    newer = fit_in_cache("newer", (), 2000, **own)
    fit_in_cache("another-image", SERVER, 3000)
    fit_in_cache("another-start", SERVER, 3000, **(own | {"image": replace(CONFIG, entrypoint=("/bin/else",))}))
    for folder in newer.parent.iterdir():
        os.utime(folder, (1, 1))
    assert start(layout) == RunSubject(newer, of_cache=True)
    used = {folder.name for folder in newer.parent.iterdir() if folder.stat().st_mtime > 1}
    assert used == {"newer"}, "what is only looked at may be pruned as before"
    assert capsys.readouterr().err == ""
    (newer / "vmlinux").unlink()  # what is damaged is passed over
    assert start(layout).bundle.name == "older"


def test_without_one_the_newest_kernel_with_the_margin_server_is_taken_and_it_is_said(
    layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_in_cache("server", SERVER, 2000)
    fit_in_cache("old-server", SERVER, 1000)
    fit_in_cache("small", (Margin.REACHABLE,), 3000)
    found = start(layout)
    assert capsys.readouterr().err == UNFITTED
    files = bundle_folder.load(found.bundle)
    assert files.data("vmlinux") == b"kernel of server" and files.data("root.erofs") == b"own root" * 64
    assert files.image.config == CONFIG and files.image.digest == IMAGE.digest
    assert not files.lists(RUN) and not files.lists("exercise.json"), "nothing is proven for it"
    assert start(layout) == found
    shutil.rmtree(Store().root / image_bundle.FITTED)
    assert start(layout) == found, "the kernel is kept as a family kernel"


def test_without_any_kernel_it_says_how_to_get_one(layout: str) -> None:
    fit_in_cache("small", (Margin.REACHABLE,), 3000)
    with pytest.raises(UserInputError, match="there is no kernel for oci:") as error:
        start(layout)
    for command in ("vmtailor family build", "--family", f"vmtailor run --fit {layout}"):
        assert command in error.value.hint
    assert not (Store().root / image_bundle.KIND).exists()


def test_a_bundle_gives_its_kernel_and_another_processors_does_not(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = write_bundle(tmp_path / "given", architecture="x86_64", image_reference="oci:y")
    found = start(layout, family=str(given))
    assert (found.bundle / "vmlinux").read_text() == "kernel"
    assert capsys.readouterr().err.startswith("kernel of oci:y with the margin ")
    seal(given, bundle(architecture="arm64", machine="virt", image_reference="oci:y"))
    with pytest.raises(UserInputError, match="is for arm64, and the image for x86_64"):
        start(layout, family=str(given))
    seal(given, bundle(architecture="x86_64", image_reference="oci:z"))
    (given / "vmlinux").write_text("changed since")
    with pytest.raises(UserInputError, match="the file vmlinux of the family kernel is damaged"):
        start(layout, family=str(given))


@pytest.fixture
def has_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_servers, "place", lambda: "/usr/libexec/virtiofsd")


@pytest.mark.usefixtures("has_server")
def test_what_a_family_kernel_lacks_is_said_with_what_makes_one(layout: str) -> None:
    fit_in_cache("server", SERVER, 2000)
    found = bundle_folder.load(start(layout).bundle)
    (mount,) = mount_words.parse_volumes(("/tmp:/x",))
    for options, said, hint in (
        (RunOptions(found.path, volumes=(mount,)), "cannot mount folders of the host", "vmtailor family build makes"),
        (RunOptions(found.path, cpus=2), "this family kernel is for 1 CPU", "vmtailor family build --cpus 2 makes"),
    ):
        with pytest.raises(UserInputError, match=said) as error:
            require_meant(options, found)
        assert hint in error.value.hint
    with pytest.raises(UserInputError, match="compare with a trace, and nothing was traced for this kernel"):
        subject_of(RunOptions(Path(layout), explain_failures=True), ImageRunOptions())


@pytest.mark.usefixtures("has_server")
def test_a_family_kernel_mounts_what_the_images_own_cannot(layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = fit_in_cache("own", (), 3000, image_digest=IMAGE.digest, image=CONFIG)
    options = RunOptions(Path(layout), volumes=mount_words.parse_volumes(("/tmp:/x",)))
    with pytest.raises(UserInputError, match="cannot mount folders of the host, and no family kernel") as error:
        subject_of(options, ImageRunOptions())
    assert f"vmtailor fit {layout} --keep folders makes one" in error.value.hint
    assert "vmtailor family build" in error.value.hint
    server = fit_in_cache("server", SERVER, 2000)
    with pytest.raises(UserInputError, match="cannot mount folders of the host, and no family kernel that can"):
        subject_of(options, ImageRunOptions())
    (server / "config").write_text("CONFIG_FUSE_FS=y\nCONFIG_VIRTIO_FS=y\n")
    seal(server, bundle(architecture="x86_64", image_reference="oci:server", memory_bytes=1 << 28))
    os.utime(server / "bundle.json", (4000, 4000))
    shutil.rmtree(Store().root / family_kernels.KIND)
    capsys.readouterr()
    found = bundle_folder.load(subject_of(options, ImageRunOptions()).bundle)
    assert found.data("vmlinux") == b"kernel of server"
    with pytest.raises(UserInputError, match="nothing was traced for this kernel"):
        subject_of(replace(options, explain_failures=True), ImageRunOptions())
    assert capsys.readouterr().err.endswith("whose own kernel cannot mount folders of the host\n")
    assert start(layout).bundle == own, "without a mount it is the image's own"


def test_a_family_kernel_by_the_name_that_is_listed(layout: str) -> None:
    fit_in_cache("server", SERVER, 2000)
    found = start(layout).bundle
    (listed,) = family_kernels.every(Store())
    assert start(layout, family=listed.key[:12]).bundle == found
    assert start(layout, family=listed.key).bundle == found
    for other in ("0" * 12, listed.key[:11]):
        with pytest.raises(UserInputError, match=f"{other} is no family kernel") as error:
            start(layout, family=other)
        assert "vmtailor family ls" in error.value.hint


def test_a_bundle_needs_neither_option_and_a_name_alone_says_no_source(tmp_path: Path) -> None:
    given = write_bundle(tmp_path / "given")
    assert start(str(given)) == RunSubject(given)
    for wanted in ({"fit": True}, {"family": "oci:x"}):
        with pytest.raises(UserInputError, match=r"does not go with .*, the bundle of a container"):
            start(str(given), **wanted)
    for text, hint in {
        "nginx": "vmtailor run docker://nginx starts", "ghcr.io/x/y:1": "vmtailor run docker://ghcr.io/x/y:1 starts",
        "docker:nginx": "docker://nginx for the image",
    }.items():  # fmt: skip
        with pytest.raises(UserInputError) as error:
            start(text)
        assert hint in error.value.hint


def test_what_stands_for_an_image(tmp_path: Path) -> None:
    plain, root = tmp_path / "plain", tmp_path / "root"
    plain.mkdir()
    (root / "usr").mkdir(parents=True)
    for text, wanted in {
        "docker://nginx": "docker://nginx", "oci:x": "oci:x", str(root): str(root), str(plain): "", "nginx": "",
        str(tmp_path / "missing"): "", "disk:x.raw": "",
    }.items():  # fmt: skip
        assert image_reference.in_place_of_bundle(Path(text)) == wanted


def test_a_bundle_beside_what_a_machine_keeps_outlives_the_cache(layout: str, tmp_path: Path) -> None:
    fit_in_cache("server", SERVER, 2000)
    found, kept = start(layout).bundle, tmp_path / "kept"
    image_bundle.placed(found, kept)
    assert (kept / "root.erofs").stat().st_ino == (found / "root.erofs").stat().st_ino
    shutil.rmtree(Store().root)
    assert bundle_folder.load(kept).file("vmlinux").read_text() == "kernel of server"


def _changed(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document.update(values)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_changed(architecture="vax"), "vax"),
        (_changed(machine="toaster"), "toaster"),
        (_changed(cpus=4096), "4096 CPUs"),
        (_changed(memory_bytes=1), "1 bytes of memory"),
        (_changed(words=["quiet\x1b[31m"]), "no word of a kernel command line"),
        (_changed(words=["x" * 500] * 20), "longer than"),
        (_changed(kernel_version="6.12; rm"), "not a kernel version"),
        (_changed(kernel="../vmlinux"), "as its kernel"),
        (_changed(margins=["all"]), "damaged"),
        (_changed(schema="vmtailor/family/9"), "vmtailor/family/9"),
        (_changed(files=[]), "lists no files"),
        (lambda document: document["files"].append(dict(document["files"][0])), "has others"),
        (lambda document: document["files"].append({"name": "../x", "bytes": 1, "sha256": "0" * 64}), "has others"),
        (lambda document: document["files"][0].update(bytes=1 << 40), "no size and digest"),
        (lambda document: document["files"][0].update(sha256="0"), "no size and digest"),
    ],
)
def test_a_record_that_nobody_makes_is_refused(
    layout: str, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    fit_in_cache("server", SERVER, 2000)
    start(layout)
    family = family_kernels.newest(Store(), "x86_64")
    assert family is not None
    document = json.loads(records.to_bytes(family.record))
    change(document)
    with pytest.raises(UserInputError) as error:
        family_kernels.parsed(json.dumps(document).encode(), "family.json")
    assert said in error.value.message and "\x1b" not in error.value.message
    for data in (b"", b"{", b"[" * 100_000, b"x" * (family_kernels.MOST_RECORD_BYTES + 1), records.to_bytes(IMAGE)):
        with pytest.raises(UserInputError):
            family_kernels.parsed(data, "family.json")


def test_a_family_kernel_in_the_cache_that_was_changed_is_passed_over(layout: str) -> None:
    fit_in_cache("server", SERVER, 2000)
    start(layout)
    (folder,) = (Store().root / family_kernels.KIND).iterdir()
    record = folder / "family.json"
    record.write_text(record.read_text().replace("made-up", "other").replace("6.12.7", "6.12.8"))
    assert family_kernels.every(Store()) == []


def test_the_fit_behind_a_run_is_begun_once_and_told_of_once(
    layout: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_in_cache("server", SERVER, 2000)
    begun: list[int] = []

    def leave(argv: list[str], log: Path, *, nice: int, pass_fds: tuple[int, ...]) -> int:
        assert layout in argv and log.name == fit_behind.LOG and nice > 0
        log.touch()
        begun.append(os.dup(pass_fds[0]))  # as the program that inherits it does
        return 1

    monkeypatch.setattr(process, "leave", leave)
    behind = start(layout, fit=True).behind
    assert behind is not None and fit_behind.goes_on(behind)
    assert f"{behind / 'log'} has its progress" in capsys.readouterr().err
    assert start(layout, fit=True).behind == behind and len(begun) == 1
    assert capsys.readouterr().err.splitlines()[0].startswith("the fit goes on in the background: ")
    (behind / fit_behind.BUNDLE).mkdir()
    fit_behind.ended(behind, FitBehind(layout, False, "no compiler"))
    os.close(begun[0])
    assert not fit_behind.goes_on(behind) and not (behind / fit_behind.BUNDLE).exists()
    start(layout)
    assert f"the fit of {layout} failed: no compiler" in capsys.readouterr().err
    start(layout)
    assert capsys.readouterr().err == UNFITTED
    fit_behind.ended(behind, FitBehind(layout, True))
    assert "is done: runs of it take its own kernel" in fit_behind.told(behind)


def test_with_no_kernel_at_all_the_fit_comes_first(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(reference: str, folder: Path, store: Store, _: PullOptions) -> FitBehind:
        fit_in_cache("own", (), 1000, image_digest=IMAGE.digest, image=CONFIG)
        return FitBehind(reference, True)

    monkeypatch.setattr(fit_behind, "fit_of", fit)
    assert start(layout, fit=True).bundle.name == "own"


def test_a_second_run_that_would_fit_first_waits_and_takes_what_the_first_made(
    layout: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, second_waits, fits = threading.Event(), threading.Event(), []

    def fit(reference: str, folder: Path, store: Store, _: PullOptions) -> FitBehind:
        fits.append(folder)
        folder.mkdir()  # as a fit does, whose work folder nobody else may have
        begun.set()
        assert second_waits.wait(30)
        fit_in_cache("own", (), 1000, image_digest=IMAGE.digest, image=CONFIG)
        return FitBehind(reference, True)

    monkeypatch.setattr(fit_behind, "fit_of", fit)
    monkeypatch.setattr(store, "_LOOK_S", 0.01)
    monkeypatch.setattr(store, "FIRST_SAY_S", 0.0)
    monkeypatch.setattr(lock_holder, "read", lambda _: second_waits.set())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(start, layout, fit=True)
        assert begun.wait(30)
        second = pool.submit(start, layout, fit=True)
        assert second.result(60) == first.result(60) and len(fits) == 1
    said = capsys.readouterr().err
    assert "the fit goes on in another run of this image" in said
    assert f"waiting for the fit of {layout}, which another vmtailor has under way" in said


def test_a_second_run_fits_where_the_first_failed(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def fit(reference: str, folder: Path, store: Store, _: PullOptions) -> FitBehind:
        tries.append(folder)
        if len(tries) == 1:
            raise UserInputError("no compiler")
        fit_in_cache("own", (), 1000, image_digest=IMAGE.digest, image=CONFIG)
        return FitBehind(reference, True)

    monkeypatch.setattr(fit_behind, "fit_of", fit)
    with pytest.raises(UserInputError, match="no compiler"):
        start(layout, fit=True)
    assert start(layout, fit=True).bundle.name == "own" and len(tries) == 2


def test_the_fit_behind_a_run_gets_the_image_as_the_run_did(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_in_cache("server", SERVER, 2000)
    monkeypatch.chdir(tmp_path)
    Path("auth.json").write_text('{"auths": {"x": {"auth": "c2VjcmV0"}}}')
    words: list[str] = []
    monkeypatch.setattr(process, "leave", lambda argv, *_, **__: words.extend(argv))
    wanted = PullOptions(architecture="x86_64", authfile=Path("auth.json"), max_bytes=1 << 30)
    behind = subject_of(RunOptions(Path(layout)), ImageRunOptions(fit=True), pull=wanted).behind
    assert behind is not None and words[4:6] == [str(behind), layout]
    asked: list[FitOptions] = []

    def run_fit(options: FitOptions) -> FitRun:
        asked.append(options)
        return replace(fit_run(), verified=True)

    monkeypatch.setattr(fit, "run_fit", run_fit)
    fit_behind.fit_of(layout, tmp_path / "out", Store(), fit_behind.of_words(words[6:]))
    (options,) = asked
    assert (options.authfile, options.max_image_bytes) == (tmp_path / "auth.json", 1 << 30)
    assert options.architecture == "x86_64" and options.command == f"vmtailor fit {layout} --arch x86_64"
    for file in (one for one in behind.rglob("*") if one.is_file()):
        assert b"auth" not in file.read_bytes(), file
    assert fit_behind.of_words(fit_behind.words_of(PullOptions())) == PullOptions()


def test_an_image_that_does_not_work_when_it_is_fitted_first_is_an_error(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_behind, "fit_of", lambda reference, *_: FitBehind(reference, False, "it does not work"))
    with pytest.raises(UserInputError, match="does not work in the machine that was made for it"):
        start(layout, fit=True)


def test_a_text_that_is_no_family_kernel(layout: str, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="is no family kernel"):
        image_run.family_of(str(tmp_path), "x86_64", Store())
