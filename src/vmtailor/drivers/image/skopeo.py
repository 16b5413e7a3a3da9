# SPDX-License-Identifier: Apache-2.0
"""skopeo, which fetches images. It copies into its `dir:` form, which alone leaves manifest and configuration as they
are: converting a Docker image to an OCI layout would lose the health check, and the digest with it."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.disk_full import no_space, says_full
from vmtailor.base.errors import HostError, UserInputError, VmtailorError
from vmtailor.base.package_manager import install_command
from vmtailor.base.process import CommandFailed, Meanwhile, require_tool, run
from vmtailor.drivers.image import manifests
from vmtailor.drivers.image.allowance import ImageLimits, WrittenByTool, too_much

COPY_TIMEOUT_S = 3600.0
INSPECT_TIMEOUT_S = 120.0
#: Options of usermod that give a user numbers for user namespaces.
_SUBIDS = "--add-subuids 100000-165535 --add-subgids 100000-165535"
#: Prefix of images in podman's store.
STORE = "containers-storage:"
#: Seconds between two looks at how much has been copied.
LOOK_S = 0.05

_MESSAGE = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_EXPECTED = re.compile(r"expected (sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Access:
    """The way to a registry. `authfile`: a file with credentials; without one skopeo finds the user's own.
    `architecture`: as images name it."""

    authfile: Path | None
    architecture: str


def is_loopback(reference: str) -> bool:
    """Return whether a `docker://` reference names a registry on this host, which may do without TLS."""
    host = reference.removeprefix("docker://").split("/", 1)[0]
    name = host[1:].split("]", 1)[0] if host.startswith("[") else host.rsplit(":", 1)[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def copy_command(source: str, destination: Path, temporary: Path, access: Access) -> list[str]:
    """Return the command that copies one image of the wanted architecture into a folder."""
    options = ["--src-tls-verify=false"] if source.startswith("docker://") and is_loopback(source) else []
    if access.authfile is not None:
        options.append(f"--src-authfile={access.authfile}")
    return [
        require_tool("skopeo"), "--tmpdir", str(temporary), "--override-os", "linux", "--override-arch",
        access.architecture, "copy", "--quiet", "--remove-signatures", *options, source, f"dir:{destination}",
    ]  # fmt: skip


def copy(
    source: str,
    destination: Path,
    temporary: Path,
    access: Access,
    *,
    name: str = "",
    limits: ImageLimits | None = None,
) -> None:
    """Fetch an image; messages call it `name`. Raises UserInputError (damaged, not there, not allowed), TooLarge as
    soon as more was written than an image may have, or HostError (no network, disk full)."""
    # These are written twice: as the daemon or the store gives them, and in the form that is asked for.
    times = 2 if source.startswith(("docker-daemon:", STORE)) else 1
    name, limits, before = name or source, limits or ImageLimits(), occupied(temporary)
    # A registry may send without end.
    written = WrittenByTool(
        temporary, times * limits.unpacked_bytes, lambda: occupied(temporary) - before, lambda: too_much(name, limits)
    )
    argv = copy_command(source, destination, temporary, access)
    try:
        run(argv, timeout_s=COPY_TIMEOUT_S, meanwhile=Meanwhile(LOOK_S, written.look))
    except CommandFailed as failure:
        raise explain(name, failure.finished.error_text, access) from failure


def copy_artefact(source: str, destination: Path, temporary: Path, access: Access, written: WrittenByTool) -> None:
    """Fetch the blobs of one manifest, which `source` names by its digest, as they are. Raises as `copy` does, and the
    error of `written` for more than is announced."""
    argv = copy_command(source, destination, temporary, access)
    argv.insert(argv.index("copy") + 1, "--preserve-digests")
    try:
        run(argv, timeout_s=COPY_TIMEOUT_S, meanwhile=Meanwhile(LOOK_S, written.look))
    except CommandFailed as failure:
        raise explain(source, failure.finished.error_text, access) from failure


def send_command(layout: Path, destination: str, temporary: Path, access: Access) -> list[str]:
    """Return the command that copies the only entry of a layout, all processors of it, to a registry as it is."""
    options = ["--dest-tls-verify=false"] if is_loopback(destination) else []
    if access.authfile is not None:
        options.append(f"--dest-authfile={access.authfile}")
    return [
        require_tool("skopeo"), "--tmpdir", str(temporary), "copy", "--quiet", "--all", "--preserve-digests",
        *options, f"oci:{layout}", destination,
    ]  # fmt: skip


def send_artefact(layout: Path, destination: str, temporary: Path, access: Access) -> None:
    """Send a layout's only entry to a registry. Raises UserInputError (not allowed), HostError (no network)."""
    try:
        run(send_command(layout, destination, temporary, access), timeout_s=COPY_TIMEOUT_S)
    except CommandFailed as failure:
        raise explain(destination, failure.finished.error_text, access) from failure


def occupied(folder: Path) -> int:
    """Return bytes in the files below a folder, those that just vanish not counted."""
    total = 0
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except OSError:
            continue
        total += status.st_size
    return total


@dataclass(frozen=True)
class Pinned:
    """The manifest, or list of manifests, that a name in a registry means just now, as bytes."""

    reference: str
    manifest: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"

    @property
    def exact(self) -> str:
        """Return the reference by digest, so that the image that was checked is copied."""
        return by_digest(self.reference, self.digest)


def by_digest(reference: str, digest: str) -> str:
    """Return a `docker://` reference of the same name, with a digest instead of its tag or digest."""
    base = reference.partition("@")[0]
    head, slash, last = base.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def pin(source: str, access: Access) -> Pinned:
    """Ask a registry what a reference names just now. Raises as `copy` does."""
    return Pinned(source, _raw(source, access))


def check(pinned: Pinned, access: Access, limits: ImageLimits) -> str:
    """Refuse an image whose layers lie elsewhere, or that announces too much, before anything of it is fetched. Returns
    the architecture as its lists spell it."""

    def read(digest: str) -> bytes | None:
        return _raw(by_digest(pinned.reference, digest), access) if _DIGEST.fullmatch(digest) else None

    return manifests.check(pinned.manifest, pinned.reference, read, access.architecture, limits).architecture


def _raw(source: str, access: Access) -> bytes:
    options = ["--tls-verify=false"] if is_loopback(source) else []
    if access.authfile is not None:
        options.append(f"--authfile={access.authfile}")
    try:
        return run([require_tool("skopeo"), "inspect", "--raw", *options, source], timeout_s=INSPECT_TIMEOUT_S).stdout
    except CommandFailed as failure:
        raise explain(source, failure.finished.error_text, access) from failure


def _without_name(message: str, source: str) -> str:
    """A message without what its image is called: a port, a folder or a tag may spell what registries say, as 40111
    does 401. Parts that are single words stay, since the registry may mean them."""
    name = source.partition("://")[2] or source
    untagged = by_digest(name, "").removesuffix("@")
    authority, _, path = untagged.partition("/")
    for part in sorted({source, name, untagged, authority, path}, key=len, reverse=True):
        if any(mark in part for mark in "/:"):
            message = message.replace(part, "")
    tag = name.removeprefix(untagged).lstrip(":@")
    return message.replace(f"manifest {tag} in", "manifest in")


def _of_store(source: str, low: str) -> VmtailorError | None:
    """Return the error about podman's store, which an ordinary user reads in a user namespace; None where `low` is
    about something else."""
    name = source.removeprefix(STORE)
    otherwise = f"podman save -o image.tar {shlex.quote(name)}, then give image.tar"
    lacking = [
        *(["the programs newuidmap and newgidmap"] if "executable file not found" in low else []),
        *(["numbers of users in /etc/subuid and /etc/subgid"] if "no subuid ranges found" in low else []),
    ]
    if lacking:
        means = [
            *([install_command("uidmap")] if "executable file not found" in low else []),
            *([f"usermod {_SUBIDS} $USER"] if "no subuid ranges found" in low else []),
        ]
        return HostError(
            f"podman's store cannot be read without root: this host lacks {' and '.join(lacking)}",
            hint=f"as root: {'; '.join(means)}. Or: {otherwise}",
        )
    if any(word in low for word in ("cannot clone", "error creating new namespace", "unshare", "re-exec", "setgroups")):
        return HostError(
            "podman's store cannot be read without root: this host refuses user namespaces",
            hint=f"sysctl kernel.unprivileged_userns_clone user.max_user_namespaces shows why. Or: {otherwise}",
        )
    if "not supported in this build" in low or "unknown transport" in low:
        return HostError("this skopeo was built without podman's store", hint=otherwise)
    if "does not resolve to an image" in low or "is not an image" in low or "image not known" in low:
        return UserInputError(
            f"{source} is not in podman's store of this user",
            hint="podman images lists what is there; root and each user have stores of their own",
        )
    if "permission denied" in low or "graph driver" in low or "storage.conf" in low or "read-only file system" in low:
        return HostError("podman's store cannot be opened", hint=f"podman info shows where it is. Or: {otherwise}")
    return None


def explain(source: str, said: str, access: Access) -> VmtailorError:
    """Return skopeo's message as an error of the right family, with the next step."""
    found = _MESSAGE.findall(said)
    message = (found[-1] if found else said.strip()).replace('\\"', '"')[:2000]
    low = _without_name(message, source).lower()
    digest = _EXPECTED.search(message) or _DIGEST.search(message)
    blob = digest.group(digest.lastindex or 0) if digest else "a part"
    if says_full(low):
        return no_space(f"to fetch {source}", details=message)
    if source.startswith(STORE) and (error := _of_store(source, low)) is not None:
        error.details = message
        return error
    families: tuple[tuple[tuple[str, ...], VmtailorError], ...] = (
        (("digest did not match", "digest mismatch", "does not match expected"), UserInputError(
            f"{source} is damaged: the content of {blob} does not match its digest", hint="fetch or build it again")),
        (("reading blob", "unexpected eof", "invalid tar header", "invalid header"), UserInputError(
            f"{source} is damaged or incomplete: {blob} cannot be read", hint="fetch or build it again")),
        (("no image found in manifest list", "no image found in image index"), UserInputError(
            f"{source} has no image for the architecture {access.architecture}",
            hint="name one that it has with --arch, or choose an image that is built for it")),
        (("unauthorized", "authentication required", "denied", "no basic auth", "401"), UserInputError(
            f"the registry refuses {source}", hint="log in with `skopeo login`, and check the name")),
        (("docker daemon", "docker engine"), HostError(
            f"the Docker engine does not answer for {source}", hint="start it, or give a `docker save` archive")),
        (("connection refused", "no such host", "i/o timeout", "network is unreachable", "connection reset"), HostError(
            f"the registry of {source} cannot be reached", hint="check the name and the network")),
        (("server gave http response to https",), UserInputError(
            f"the registry of {source} does not use TLS",
            hint="serve it over TLS: only registries on this host may do without")),
        (("no descriptor found", "manifest unknown", "name unknown", "no such file", "not found"), UserInputError(
            f"{source} is not there", hint="check the name and the tag")),
    )  # fmt: skip
    for words, error in families:
        if any(word in low for word in words):
            error.details = message
            return error
    return UserInputError(
        f"skopeo cannot read {source}", hint="check that its prefix fits the kind of image", details=message
    )
