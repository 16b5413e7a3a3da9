#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build an example image as an OCI layout: from the distribution's packages, without a registry and without root.

    examples/build.py FOLDER OUT [--arch NAME] [--with FILE]

FOLDER holds `image.toml`, or `system.toml` for the disk of a whole system (both described in examples/README.md). apt
chooses and verifies the packages, `dpkg-deb` reads them as streams; nothing is unpacked, so that every file keeps its
owner whoever builds. The same packages give the same bytes. With --arch the packages are those of another processor,
and programs are compiled for it: none of them is run. --with adds the lists of a further description, and takes its
other values.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import disk

#: Time stamp of everything that we make ourselves; packages keep their own.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1735689600"))
#: Top directories that Debian has merged into /usr.
MERGED = ("bin", "sbin", "lib", "lib64")
#: Left out of every image: documentation (licences stay), translations, unit files, maintainers' material.
DROPPED = (
    "usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/lintian/*",
    "usr/share/bug/*", "usr/lib/systemd/*", "etc/init.d/*", "etc/cron.*", "etc/logrotate.d/*",
    "usr/lib/*/gconv/*", "usr/lib/*/audit/*",
)  # fmt: skip
KEPT = ("usr/share/doc/*/copyright",)
#: What a folder is described in.
SYSTEM = "system.toml"
NAMES = ("image.toml", SYSTEM)


@dataclass(frozen=True)
class Target:
    """What an image is built for. `image`: as images call it, `packages`: as the distribution does, `apt`: what apt is
    told so that it reads that architecture's lists, `cross`: what its compiler's name begins with. `flavour`: how the
    releases of its packaged kernels end, for `{flavour}` in a package's name."""

    image: str
    packages: str = ""
    apt: tuple[str, ...] = ()
    cross: str = ""
    flavour: str = ""


def target_of(name: str | None) -> Target:
    """This host's own, or another by the name that `vmtailor fit --arch` takes."""
    machine = os.uname().machine
    if name is None:
        own = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
        return Target(own, flavour=f"cloud-{own}")
    # Only here: for this host's own images nothing of vmtailor is needed.
    from vmtailor.base.errors import VmtailorError
    from vmtailor.drivers.distribution import apt_lists
    from vmtailor.model.architecture import named

    try:
        row = named(name)
        if row.is_host:
            return Target(row.image, flavour=row.packages.flavour)
        lists = apt_lists.of(row)
    except VmtailorError as error:
        raise SystemExit(f"{error} ({error.hint})") from error
    return Target(row.image, row.packages.architecture, tuple(lists.options), row.kernel.cross, row.packages.flavour)


@dataclass
class Layer:
    """Entries of one layer by path. Later entries of the same path win; directories merge."""

    entries: dict[str, tuple[tarfile.TarInfo, bytes]] = field(default_factory=dict)

    def add(self, info: tarfile.TarInfo, data: bytes = b"") -> None:
        """Add an entry and the directories above it that are missing."""
        for parent in reversed(PurePosixPath(info.name).parents[:-1]):
            if str(parent) not in self.entries:
                self.entries[str(parent)] = (directory(str(parent)), b"")
        self.entries[info.name] = (info, data)

    def tar(self) -> bytes:
        """The layer as a tar, sorted by path, hard links last."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(self.entries, key=lambda n: (self.entries[n][0].islnk(), n)):
                info, data = self.entries[name]
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()


def directory(name: str, mode: int = 0o755, uid: int = 0, gid: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid, info.mtime = tarfile.DIRTYPE, mode, uid, gid, EPOCH
    return info


def regular(name: str, size: int, mode: int = 0o644, uid: int = 0, gid: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.uid, info.gid, info.mtime = size, mode, uid, gid, EPOCH
    return info


def symlink(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = tarfile.SYMTYPE, target, 0o777, EPOCH
    return info


def output_of(*argv: str) -> bytes:
    """Run a program and return what it prints; its errors go to ours."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout


def download(packages: list[str], assumed: list[str], cache: Path, scratch: Path, target: Target) -> list[Path]:
    """Have apt fetch the packages and what they depend on. `assumed` count as installed: neither they nor what only
    they need is fetched. Returns the .deb files, in the order of their names."""
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "partial").mkdir(exist_ok=True)
    architecture = target.packages or output_of("dpkg", "--print-architecture").decode().strip()
    status = scratch / "status"
    status.write_text(
        "".join(
            f"Package: {name}\nStatus: install ok installed\nVersion: 9999:9999\nArchitecture: {architecture}\n"
            "Multi-Arch: allowed\nMaintainer: nobody\nDescription: assumed\n\n"
            for name in assumed
        )
    )
    options = {
        "Dir::State::status": status,
        "Dir::State::extended_states": scratch / "extended_states",
        "Dir::Cache": scratch,
        "Dir::Cache::archives": cache,
        "Dir::Log": scratch,
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
    }
    apt = [
        "apt-get",
        *target.apt,
        *(word for key, value in options.items() for word in ("-o", f"{key}={value}")),
        "-qq",
        "--yes",
    ]
    # A line is: 'URI' file size hash. With an empty cache all are listed, also those that were fetched before.
    (scratch / "empty" / "partial").mkdir(parents=True)
    listed = output_of(*apt, "-o", f"Dir::Cache::archives={scratch}/empty", "--print-uris", "install", *packages)
    names = [line.split()[1] for line in listed.decode().splitlines() if line.startswith("'")]
    subprocess.run([*apt, "--download-only", "install", *packages], check=True, stdout=subprocess.DEVNULL)
    return [cache / name for name in sorted(names)]


def merged(name: str) -> str:
    """The path in a file system whose /bin, /sbin and /lib are links into /usr."""
    name = name.lstrip("./")
    return f"usr/{name}" if name.split("/")[0] in MERGED else name


def is_dropped(name: str, dropped: tuple[str, ...]) -> bool:
    return not any(fnmatch.fnmatch(name, p) for p in KEPT) and any(fnmatch.fnmatch(name, p) for p in dropped)


def add_package(layer: Layer, package: Path, dropped: tuple[str, ...]) -> str:
    """Add the files of one package; returns its stanza for dpkg's status file."""
    content = output_of("dpkg-deb", "--fsys-tarfile", str(package))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for info in archive:
            info.name = merged(info.name)
            if info.islnk():
                info.linkname = merged(info.linkname)
            info.uname = info.gname = ""
            present = layer.entries.get(info.name)
            if not info.name or is_dropped(info.name, dropped) or info.name in MERGED or (present and info.isdir()):
                continue
            if present and info.issym() and not present[0].issym():
                continue  # a compatibility link from before /usr was merged
            file = archive.extractfile(info) if info.isreg() else None
            layer.add(info, file.read() if file else b"")
    control = output_of("dpkg-deb", "--field", str(package)).decode().rstrip("\n")
    first, rest = control.split("\n", 1)
    return f"{first}\nStatus: install ok installed\n{rest}\n"


def packages_of(spec: dict[str, Any], target: Target) -> list[str]:
    """Names of the packages that a description asks for on one processor, patterns among them."""
    only = spec.get("only", {}).get(target.image, ())
    return [name.replace("{flavour}", target.flavour) for name in (*spec["packages"], *only)]


def package_layer(spec: dict[str, Any], cache: Path, scratch: Path, target: Target) -> Layer:
    """The lower layer: everything that comes from packages, with the accounts of the distribution."""
    layer = Layer()
    kept = set(spec.get("keep", ()))
    dropped = (*(pattern for pattern in DROPPED if pattern not in kept), *spec.get("drop", ()))
    for name in MERGED:
        layer.add(directory(f"usr/{name}"))
        layer.add(symlink(name, f"usr/{name}"))
    for name, mode in (
        ("tmp", 0o1777),
        ("root", 0o700),
        ("run", 0o755),
        ("proc", 0o555),
        ("sys", 0o555),
        ("dev", 0o755),
    ):
        layer.add(directory(name, mode))
    layer.add(directory("var/tmp", 0o1777))
    layer.add(symlink("var/run", "/run"))
    names = [disk.newest(name, target.apt) if "*" in name else name for name in packages_of(spec, target)]
    packages = download(names, list(spec.get("assume", ())), cache, scratch, target)
    stanzas = [add_package(layer, package, dropped) for package in packages]
    for account in ("passwd", "group"):
        master = layer.entries.get(f"usr/share/base-passwd/{account}.master")
        text = master[1] if master else b"root:x:0:0:root:/root:/bin/sh\n" if account == "passwd" else b"root:x:0:\n"
        for user in spec.get("user", ()):
            more = (
                f"{user['name']}:x:{user['uid']}:{user['uid']}::{user.get('home', '/')}:/usr/sbin/nologin\n"
                if account == "passwd"
                else f"{user['name']}:x:{user['uid']}:\n"
            )
            text += more.encode()
        layer.add(regular(f"etc/{account}", len(text)), text)
    status = "\n".join(stanzas).encode()
    layer.add(regular("var/lib/dpkg/status", len(status)), status)
    return layer


def compiled(
    source: Path, scratch: Path, target: Target, options: tuple[str, ...] = (), *, static: bool = True
) -> bytes:
    """A program as bytes, without anything that differs between two builds: a C file as a static program, a Go file as
    the one program that Go makes of it, a Java file as an archive of its classes. `options`: further ones of the C
    compiler; with a library among them, of the distribution's C library, which libraries are made for."""
    if source.suffix == ".c":
        return compiled_c(source, scratch, target, options, static=static)
    return COMPILERS[source.suffix](source, scratch, target)


def program(names: tuple[str, ...], package: str) -> str:
    """The first of these programs that is there."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"no {names[-1]}: apt-get install {package}")
    return found


def c_compiler(target: Target, options: tuple[str, ...]) -> str:
    """Libraries are made for the distribution's C library; without one, musl makes the smaller program."""
    if target.cross:
        return program((f"{target.cross}gcc",), f"gcc-{target.cross}".rstrip("-"))
    if any(option.startswith("-l") for option in options):
        return program(("cc",), "gcc")
    return program(("musl-gcc", "cc"), "musl-tools")


def compiled_c(
    source: Path, scratch: Path, target: Target, options: tuple[str, ...] = (), *, static: bool = True
) -> bytes:
    out = scratch / source.stem
    subprocess.run(
        [c_compiler(target, options), "-std=c11", "-O2", "-Wall", "-Wextra", *(["-static"] if static else []), "-s",
         "-Wl,--build-id=none", "-o", str(out), source.name, *options],
        check=True, cwd=source.parent,
    )  # fmt: skip
    return out.read_bytes()


def lacking(target: Target, libraries: list[str]) -> list[str]:
    """Those of these libraries that there are none of for another processor; this host's own have to be there."""
    if not target.cross:
        return []
    compiler = c_compiler(target, ())
    # A compiler that has none says the name alone.
    return [name for name in libraries if b"/" not in output_of(compiler, f"-print-file-name=lib{name}.a")]


def compiled_go(source: Path, scratch: Path, target: Target) -> bytes:
    out = scratch / source.stem
    own = {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "GOCACHE": f"{scratch}/go",
        "GOARCH": target.image,
    }
    subprocess.run(
        [program(("go",), "golang-go"), "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", str(out), source.name],
        check=True, cwd=source.parent, env={**os.environ, **own},
    )  # fmt: skip
    return out.read_bytes()


def compiled_java(source: Path, scratch: Path, target: Target) -> bytes:
    folder = scratch / source.stem
    folder.mkdir()
    compiler = program(("javac",), "openjdk-17-jdk-headless")
    subprocess.run(
        [compiler, "--release", "17", "-g:none", "-nowarn", "-XDignore.symbol.file", "-d", str(folder), source.name],
        check=True, cwd=source.parent,
    )  # fmt: skip
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # stored: an image's layers are compressed anyway
        for path in sorted(folder.rglob("*.class")):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
    return out.getvalue()


COMPILERS = {".go": compiled_go, ".java": compiled_java}


def file_layer(spec: dict[str, Any], folder: Path, scratch: Path, target: Target) -> Layer:
    """The upper layer: the example's own files."""
    layer = Layer()
    for name in spec.get("directory", ()):
        layer.add(
            directory(
                name["path"].lstrip("/"), int(name.get("mode", "0755"), 8), name.get("uid", 0), name.get("gid", 0)
            )
        )
    for item in spec.get("file", ()):
        if absent := lacking(target, item.get("libraries", [])):
            print(f"left out: {item['path']}: no {', '.join(absent)} for {target.image}", file=sys.stderr)
            continue
        mode = int(item.get("mode", "0644"), 8)
        if "compile" in item:
            data = compiled(
                folder / item["compile"],
                scratch,
                target,
                tuple(item.get("options", ())),
                static=item.get("static", True),
            )
            mode = int(item.get("mode", "0755"), 8)
        elif "random_bytes" in item:
            data = random.Random(item.get("seed", 1)).randbytes(item["random_bytes"])
        elif "source" in item:
            data = (folder / item["source"]).read_bytes()
        else:
            data = item["content"].encode()
        path = item["path"].lstrip("/")
        layer.add(regular(path, len(data), mode, item.get("uid", 0), item.get("gid", 0)), data)
    for item in spec.get("link", ()):
        layer.add(symlink(item["path"].lstrip("/"), item["target"]))
    return layer


def write_layout(out: Path, layers: list[Layer], config: dict[str, Any], tag: str, architecture: str) -> str:
    """Write an OCI layout with one image; returns the digest of its manifest."""
    blobs = out / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, Any]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"digest": f"sha256:{name}", "size": len(data)}

    def described(kind: str, document: Any) -> dict[str, Any]:
        return {"mediaType": kind, **blob(json.dumps(document, sort_keys=True).encode())}

    tars = [layer.tar() for layer in layers if layer.entries]
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
    }
    vnd = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{vnd}.manifest.v1+json",
        "config": described(f"{vnd}.config.v1+json", document),
        "layers": [{"mediaType": f"{vnd}.layer.v1.tar+gzip", **blob(gzip.compress(tar, 6, mtime=0))} for tar in tars],
    }
    entry = described(f"{vnd}.manifest.v1+json", manifest)
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (out / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (out / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}, sort_keys=True))
    return str(entry["digest"])


def find(folder: Path) -> Path | None:
    """The description in a folder, named from here or from the examples."""
    places = (folder, Path(__file__).parent / folder)
    return next((place / name for place in places for name in NAMES if (place / name).is_file()), None)


def read(description: Path, further: list[Path]) -> dict[str, Any]:
    """The description, with the further ones added. A file that theirs name stands beside theirs."""
    spec = tomllib.loads(description.read_text())
    for path in further:
        for key, value in tomllib.loads(path.read_text()).items():
            if key == "file":
                for item in value:
                    item |= {
                        name: path.absolute().parent / item[name] for name in ("source", "compile") if name in item
                    }
            spec[key] = [*spec.get(key, ()), *value] if isinstance(value, list) else value
    return spec


def build_image(out: Path, layers: list[Layer], spec: dict[str, Any], target: Target) -> None:
    """Write the image, in place of what is there."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as partial:
        built = Path(partial) / "layout"
        digest = write_layout(built, layers, spec["config"], "latest", target.image)
        if out.exists():
            shutil.rmtree(out)
        built.rename(out)
    size = sum(path.stat().st_size for path in (out / "blobs" / "sha256").iterdir())
    print(f"{out}: {digest}, {size / 1e6:.1f} MB", file=sys.stderr)


def build_disk(out: Path, layers: list[Layer], spec: dict[str, Any], scratch: Path) -> None:
    """Write the disk of a whole system, in place of what is there."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as partial:
        built = Path(partial) / "disk"
        disk.write(built, [layer.tar() for layer in layers if layer.entries], spec, scratch)
        built.replace(out)
    print(f"{out}: {out.stat().st_blocks * 512 / 1e6:.1f} MB", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="an example's folder, with image.toml or system.toml in it")
    parser.add_argument("out", type=Path, help="the OCI layout, or the disk, to write; replaced when it is there")
    parser.add_argument("--cache", type=Path, help="where downloaded packages are kept")
    parser.add_argument(
        "--with", dest="further", type=Path, action="append", default=[], metavar="FILE", help="a further description"
    )
    parser.add_argument("--arch", help="the processor that it is for, as vmtailor names it; this host's by default")
    arguments = parser.parse_args()
    target = target_of(arguments.arch)
    description = find(arguments.folder)
    if description is None:
        parser.error(f"no {' and no '.join(NAMES)} in {arguments.folder}")
    spec = read(description, arguments.further)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = (arguments.cache or home / "vmtailor" / "packages").absolute()
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vmtailor-example-") as name:
        scratch = Path(name)
        lower = package_layer(spec, cache, scratch, target) if spec.get("packages") else Layer()
        layers = [lower, file_layer(spec, description.parent, scratch, target)]
        if description.name == SYSTEM:
            build_disk(out, layers, spec, scratch)
        else:
            build_image(out, layers, spec, target)


if __name__ == "__main__":
    main()
