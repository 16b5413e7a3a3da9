# SPDX-License-Identifier: Apache-2.0
"""References as people type them: each wrong one has the spelling, or the command, that was meant."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from tests.fakes.registry import folder_registry, has_image
from tests.fakes.started import Start
from tests.fakes.tars import directory, file, tar_of, write_layout

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.image import image_reference, skopeo
from vmtailor.drivers.image.image_reference import Source, parse_reference
from vmtailor.drivers.image.skopeo import Access
from vmtailor.pipeline.systems.subjects import disk_path

DIGEST = f"sha256:{'ab' * 32}"
SAVED = Path(__file__).resolve().parents[1] / "data" / "saved" / "container"


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(text: str) -> UserInputError:
    with pytest.raises(UserInputError) as caught:
        parse_reference(text)
    return caught.value


@pytest.mark.parametrize(
    ("typed", "spellings"),
    [
        ("nginx:1.27", ["docker://nginx:1.27 ", "docker-daemon:nginx:1.27 ", "containers-storage:nginx:1.27 "]),
        ("nginx", ["docker://nginx ", "docker-daemon:nginx:latest "]),
        ("docker.io/library/nginx",
         ["docker://docker.io/library/nginx ", "docker-daemon:docker.io/library/nginx:latest "]),
        (f"ghcr.io/x/y@{DIGEST}", [f"docker://ghcr.io/x/y@{DIGEST} ", f"docker-daemon:ghcr.io/x/y@{DIGEST} "]),
        (f"ghcr.io/x/y:2@{DIGEST}", [f"docker://ghcr.io/x/y@{DIGEST} "]),
        ("ghcr.io/x/y@sha256:…", ["docker://ghcr.io/x/y@sha256:… "]),
        ("registry.example:5000/a/b_c:v1", ["docker://registry.example:5000/a/b_c:v1 "]),
        ("Nginx:1.27-Alpine", ["docker://nginx:1.27-Alpine "]),
    ],
)  # fmt: skip
def test_the_name_of_an_image_has_both_spellings(typed: str, spellings: list[str]) -> None:
    error = refused(typed)
    assert "does not say where the image is" in error.message
    assert all(spelling in f"{error.hint} " for spelling in spellings), error.hint


def test_an_image_that_podman_built_is_looked_for_there_first() -> None:
    assert refused("localhost/mine:1").hint.startswith("containers-storage:localhost/mine:1 ")
    assert refused("localhost:5000/mine:1").hint.startswith("docker://localhost:5000/mine:1 ")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("docker:nginx:1.27", "docker://nginx:1.27 for the image"),
        ("docker:27", "docker://docker:27 for the image docker with the tag 27"),
        ("docker-deamon:nginx:1", "did you mean docker-daemon:nginx:1?"),
        ("oci-archve:x.tar", "did you mean oci-archive:x.tar?"),
        ("podman:nginx", "did you mean containers-storage:nginx?"),
        ("docker-image://nginx", "did you mean docker://nginx?"),
        ("docker-daemon://nginx:1", "docker-daemon:nginx:1"),
        ("oci://layout", "oci:layout"),
        ("https://hub.docker.com/_/nginx", "docker://nginx"),
        ("hub.docker.com/r/grafana/grafana/tags?page=1", "docker://grafana/grafana"),
        ("docker://https://quay.io/a/b", "docker://quay.io/a/b"),
        ("https://ghcr.io/a/b:2", "docker://ghcr.io/a/b:2"),
        ("file:///srv/image.tar", "/srv/image.tar"),
        ("dir:copied", "skopeo copy dir:copied oci:FOLDER"),
        ("dir:x;$(id)", "skopeo copy 'dir:x;$(id)' oci:FOLDER"),
        ("-", "docker-archive:-"),
        ("", "vmtailor help images"),
        ("two words", "vmtailor help images"),
        ("~/image.tar", "without quotes"),
    ],
)
def test_other_spellings_have_ours(typed: str, hint: str) -> None:
    assert hint in refused(typed).hint


def test_a_file_that_is_not_there_is_no_image_of_a_registry(tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(b"x")
    for typed in ("imgae.tar", "./imgae.tar", str(tmp_path / "imgae.tar")):
        error = refused(typed)
        assert "there is no file or folder" in error.message and "did you mean image.tar?" in error.hint


def test_what_container_engines_complete_is_completed() -> None:
    assert parse_reference("docker-daemon:nginx").text == "docker-daemon:nginx:latest"
    assert parse_reference("docker-daemon:host:5000/nginx").text == "docker-daemon:host:5000/nginx:latest"
    assert parse_reference(f"docker-daemon:x@{DIGEST}").text == f"docker-daemon:x@{DIGEST}"
    assert parse_reference(f"docker://host:5000/nginx:1@{DIGEST}").text == f"docker://host:5000/nginx@{DIGEST}"
    assert parse_reference("docker://nginx:1").text == "docker://nginx:1"
    stored = parse_reference("containers-storage:localhost/mine:1")
    assert (stored.source, stored.rest) == (Source.CONTAINERS_STORAGE, "localhost/mine:1")


# ---- folders and files of another kind


@pytest.mark.parametrize(
    ("name", "docker", "podman"),
    [
        ("Dockerfile", "docker build -t my-app my_App,", "podman build -t my-app my_App,"),
        ("Containerfile", "docker build -t my-app -f my_App/Containerfile my_App,", "podman build -t my-app my_App,"),
    ],
)
def test_a_folder_to_build_from(name: str, docker: str, podman: str, tmp_path: Path) -> None:
    folder = tmp_path / "my_App"
    folder.mkdir()
    (folder / name).write_text("FROM scratch\n")
    for typed in ("my_App", f"my_App/{name}"):
        error = refused(typed)
        assert f"holds a {name}" in error.message
        assert docker in error.hint and podman in error.hint
        assert (
            "docker-daemon:my-app:latest" in error.hint and "containers-storage:localhost/my-app:latest" in error.hint
        )
    assert parse_reference("rootfs:my_App").source is Source.ROOTFS


def test_a_root_file_system_is_one_whatever_lies_in_it(tmp_path: Path) -> None:
    for name in ("usr", "etc"):
        (tmp_path / name).mkdir()
    for name in ("Dockerfile", "bundle.json", "manifest.json", "version", "config.json"):
        (tmp_path / name).touch()
    assert parse_reference(str(tmp_path)).source is Source.ROOTFS


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("compose.yaml",), "docker compose build"),
        (("work.json",), "vmtailor plan it"),
        (("index.json", "blobs/sha256/x"), "oci-layout"),
        (("manifest.json", "version"), "skopeo copy dir:it"),
        (("manifest.json", "repositories"), "it.tar"),
        (("config.json", "rootfs/bin/sh"), "rootfs:it/rootfs"),
    ],
)
def test_other_folders(files: tuple[str, ...], words: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / "it" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "it" / name).touch()
    assert words in refused("it").hint


def test_a_layout_and_an_archive_need_no_prefix(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [tar_of(file("x"))], {})
    assert parse_reference("layout").source is Source.OCI and parse_reference("layout:latest").source is Source.OCI
    (tmp_path / "saved.tar").write_bytes(tar_of(file("x.tar"), file("manifest.json", b"[]")))
    assert parse_reference("saved.tar").source is Source.DOCKER_ARCHIVE
    (tmp_path / "oci.tar").write_bytes(tar_of(file("oci-layout", b"{}")))
    assert parse_reference("oci.tar").source is Source.OCI_ARCHIVE


def at(offset: int, magic: bytes) -> bytes:
    return b"\1" * offset + magic + bytes(4096)


@pytest.mark.parametrize(
    ("name", "data", "message", "hint"),
    [
        ("linux", at(510, b"\x55\xaa\xeb\x66HdrS"), "a Linux kernel", "boot --kernel linux"),
        ("cd.iso", at(510, b"\x55\xaa" + b"\1" * (0x8001 - 512) + b"CD001"), "a CD", "disk:FILE"),
        ("x.vmdk", b"KDMV" + bytes(600), "VMDK", "qemu-img convert"),
        ("x.vdi", at(64, b"\x7f\x10\xda\xbe"), "VDI", "qemu-img convert"),
        ("x.vhdx", b"vhdxfile" + bytes(600), "VHDX", "qemu-img convert"),
        ("x.sif", at(32, b"SIF_MAGIC"), "Apptainer", "--sandbox"),
        ("x.squashfs", b"hsqs" + bytes(600), "squashfs", "rootfs:ROOT"),
        ("root.erofs", at(1024, b"\xe2\xe1\xf5\xe0"), "erofs", "rootfs:ROOT"),
        ("initrd", b"070701" + b"0" * 600, "cpio", "--initrd"),
        ("x.zip", b"PK\x03\x04" + bytes(600), "zip", "unpack"),
        ("x.deb", b"!<arch>\n" + bytes(600), "deb", "unpack it to ROOT"),
        ("prog", b"\x7fELF" + bytes(600), "ELF", "--entrypoint"),
        ("disk.img.gz", gzip.compress(at(1080, b"\x53\xef"), mtime=0), "a compressed disk", "disk:FILE"),
        ("other.tar.gz", gzip.compress(at(257, b"ustar" + b"\1" * 818 + b"\x53\xef"), mtime=0), "damaged", "again"),
        ("disk.qcow2.gz", gzip.compress(b"QFI\xfb" + bytes(9000), mtime=0), "a compressed disk", "disk:FILE"),
        ("exported.tar", tar_of(directory("etc"), file("etc/x"), file("bin/sh")), "docker export",
         "rootfs:exported.tar"),
        ("context.tar", tar_of(file("Dockerfile")), "Dockerfile", "docker build"),
        ("more.tar", tar_of(file("a/image.tar")), "a/image.tar", "unpack"),
        ("none.tar", tar_of(file("x")), "holds no image", "docker save"),
        ("boot.log", b"[    0.000000] Linux version 6.1\n", "a boot log", "vmtailor analyze"),
        ("app.toml", b"[ready]\n", "TOML", "-x app.toml"),
        ("app.dockerfile", b"FROM x\n", "app.dockerfile", "-f "),
        ("notes", b"some words\n", "text", "an image"),
        ("nothing", b"", "empty", "command that made it"),
    ],
)  # fmt: skip
def test_other_files(name: str, data: bytes, message: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert disk_path(name) is None
    error = refused(name)
    assert message in error.message and hint in error.hint


def test_a_path_may_begin_with_two_slashes(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [tar_of(file("x"))], {})
    assert parse_reference(f"oci:/{tmp_path}/layout").path == Path(f"/{tmp_path}/layout")


@pytest.mark.attack
def test_of_many_or_long_names_few_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "long.tar").write_bytes(tar_of(file(f"{'d/' * 100}x.tar")))
    assert f"but {'d/' * 50}" in (said := refused("long.tar").message) and "d/" * 51 not in said
    monkeypatch.setattr(image_reference, "_MOST_NAMES", 0)
    assert "did you mean" not in refused("lang.tar").hint


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a named pipe" in refused("pipe").message
    (tmp_path / "gone").symlink_to("nowhere")
    assert "a symbolic link to nothing" in refused("gone").message


def test_a_disk_is_one(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(at(510, b"\x55\xaa"))
    assert disk_path("disk") == Path("disk")


# ---- bundles for images, images for bundles


def test_a_bundle_is_fitted_already(start: Start) -> None:
    for verb in ("fit", "trace", "plan", "show"):
        code, _, err = start(verb, SAVED)
        assert code == 2 and "is a bundle" in err and f"vmtailor run {SAVED}" in err and "vmtailor refit" in err
    assert "is a bundle" in refused(str(SAVED / "run.json")).message


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("docker://nginx:1.27", "vmtailor fit docker://nginx:1.27 -o nginx-vm"),
        ("nginx:1.27", "vmtailor fit docker://nginx:1.27 -o nginx-vm"),
        ("nginx", "vmtailor fit docker://nginx -o nginx-vm"),
        (f"ghcr.io/x/y@{DIGEST}", f"vmtailor fit docker://ghcr.io/x/y@{DIGEST} -o y-vm"),
        ("docker-daemon:mine:1", "vmtailor fit docker-daemon:mine:1 -o mine-vm"),
        ("saved.tar", "vmtailor fit saved.tar -o saved-vm"),
        ("layout", "vmtailor fit layout -o layout-vm"),
        ("disk:d.qcow2", "vmtailor fit disk:d.qcow2 -x EXERCISE -o d-vm"),
        ("d.qcow2", "vmtailor fit disk:d.qcow2 -x EXERCISE -o d-vm"),
    ],
)
def test_an_image_for_a_bundle_has_the_command_that_fits_it(
    typed: str, command: str, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_image(folder_registry(tmp_path, monkeypatch), "1.27")  # which may have bundles, too
    write_layout(tmp_path / "layout", [tar_of(file("x"))], {})
    (tmp_path / "saved.tar").write_bytes(tar_of(file("manifest.json", b"[]")))
    (tmp_path / "d.qcow2").write_bytes(b"QFI\xfb" + bytes(600))
    for verb in ("verify", "measure", "refit", "explain", "report"):
        code, out, err = start(verb, typed)
        assert code == 2 and out == "" and f"{command} " in err, (verb, err)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("nginx:1.27", "vmtailor run docker://nginx:1.27 starts the image of that name"),
        (f"ghcr.io/x/y@{DIGEST}", f"vmtailor run docker://ghcr.io/x/y@{DIGEST} starts the image of that name"),
        ("docker:nginx", "docker://nginx for the image nginx"),
        ("saved.tar", "skopeo cannot read docker-archive:saved.tar"),
        ("layout", "layout has no entry point and no command"),
        ("disk:d.qcow2", "vmtailor fit disk:d.qcow2 -x EXERCISE -o d-vm "),
        ("d.qcow2", "vmtailor fit disk:d.qcow2 -x EXERCISE -o d-vm "),
    ],
)
def test_run_takes_images_and_says_how_a_name_is_one(typed: str, said: str, tmp_path: Path, start: Start) -> None:
    write_layout(tmp_path / "layout", [tar_of(file("x"))], {})
    (tmp_path / "saved.tar").write_bytes(tar_of(file("manifest.json", b"[]")))
    (tmp_path / "d.qcow2").write_bytes(b"QFI\xfb" + bytes(600))
    code, out, err = start("run", typed)
    assert code == 125 and out == "" and said in err


def test_booting_an_image(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_image(folder_registry(tmp_path, monkeypatch), "1")
    assert "vmtailor fit docker://nginx:1 " in start("boot", "docker://nginx:1")[2]


def test_other_folders_are_no_bundles_and_no_images(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    for path in ("some", "/nowhere", "../nowhere"):
        assert bundle_folder.no_bundle(Path(path)).hint == "vmtailor fit IMAGE -o FOLDER makes one"


# ---- podman's store

_FORK = 'time="2026" level=error msg="finding newgidmap: exec: \\"newgidmap\\": executable file not found in $PATH"'
_RANGES = (
    'time="2026" level=warning msg="Reading allowed ID mappings: reading subuid mappings for user \\"x\\" and subgid '
    'mappings for group \\"x\\": no subuid ranges found for user \\"x\\" in /etc/subuid"'
)


@pytest.mark.parametrize(
    ("said", "family", "words", "hint"),
    [
        (f"{_RANGES}\n{_FORK}", HostError, "newuidmap and newgidmap and numbers of users", "uidmap; usermod"),
        (_FORK, HostError, "newuidmap", "uidmap"),
        (_RANGES, HostError, "/etc/subuid", "usermod --add-subuids"),
        ("cannot clone: Operation not permitted", HostError, "user namespaces", "podman save -o image.tar a:1"),
        ('level=fatal msg="The transport \\"containers-storage:\\" is not supported in this build"', HostError,
         "built without", "podman save"),
        ('level=fatal msg="reference \\"a\\" does not resolve to an image ID: identifier is not an image"',
         UserInputError, "not in podman's store", "podman images"),
        ('level=fatal msg="mkdir /var/lib/containers: permission denied"', HostError, "cannot be opened",
         "podman info"),
    ],
)  # fmt: skip
def test_what_podmans_store_lacks_is_said(said: str, family: type[Exception], words: str, hint: str) -> None:
    error = skopeo.explain("containers-storage:a:1", said, Access(None, "amd64"))
    assert isinstance(error, family) and words in error.message and hint in error.hint and error.details


@pytest.mark.attack
def test_the_name_of_an_image_in_a_command_is_one_word() -> None:
    error = skopeo.explain("containers-storage:a;$(id)", "cannot clone: Operation not permitted", Access(None, "amd64"))
    assert "podman save -o image.tar 'a;$(id)', then" in error.hint
