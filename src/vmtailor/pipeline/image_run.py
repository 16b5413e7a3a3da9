# SPDX-License-Identifier: Apache-2.0
"""`run IMAGE`: the image is fetched, its root is made, and the best kernel that exists is taken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base import manual
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.output import note
from vmtailor.drivers.host import bundle_folder, family_kernels
from vmtailor.drivers.host.family_kernels import Family
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.drivers.image.skopeo import Pinned
from vmtailor.model.architecture import named, of_image
from vmtailor.model.image import Image
from vmtailor.pipeline import family_artefact, fit_behind, image_bundle, run_mounts
from vmtailor.pipeline.image_run_options import ImageRunOptions, RunSubject
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.pull_options import PullOptions
from vmtailor.stages import image_fetch

#: A kernel as `family ls` lists it: the first digits of its key, or all.
_KEY = re.compile(r"[0-9a-f]{12,64}")


def subject(
    reference: str,
    options: RunOptions,
    wanted: ImageRunOptions,
    store: Store,
    pull: PullOptions | None = None,
    pinned: Pinned | None = None,
) -> RunSubject:
    """Return the bundle of an image: its own fit's, else one on a family kernel. `pinned`: what its registry just
    answered."""
    pull = pull or PullOptions()
    settings = image_fetch.ImageOptions(
        architecture=named(pull.architecture).image if pull.architecture else "",
        authfile=pull.authfile,
        limits=None if pull.max_bytes is None else ImageLimits.of_size(pull.max_bytes),
        system=True,
        pinned=pinned,
    )
    image = image_fetch.fetch(reference, store, settings)
    image_fetch.require_start(image, store, another=options.entrypoint is not None or bool(options.command))
    row = of_image(image.config.architecture)
    if row is None:
        raise UserInputError(f"there is no support for the architecture {image.config.architecture!r}")
    if before := fit_behind.told(fit_behind.folder_of(image, store)):
        note(before)
    own = None if wanted.family else image_bundle.fitted(image, row.name, store)
    if own is not None and (groups := run_mounts.lacking(options.wanted_mounts, bundle_folder.load(own))):
        return _on_a_wider_kernel(image, row.name, groups, options, store)
    found = family_of(wanted.family, row.name, store, pull.authfile) if own is None else None
    if own is None and found is None:
        if not wanted.fit:
            raise _no_kernel(image, row.name)
        fit_behind.fit_first(image, row.name, store, pull)
        own = image_bundle.fitted(image, row.name, store)
    if own is not None:
        return RunSubject(own, of_cache=True)
    if found is None:
        raise _no_kernel(image, row.name)
    _require_unwatched(image, options)
    note(f"{found.phrase}, not fitted: nothing proven for this image")
    bundle = image_bundle.made(image, found, store)
    if not wanted.fit:
        return RunSubject(bundle, of_cache=True)
    behind = fit_behind.begin(image, store, pull)
    if not before:
        note(fit_behind.under_way(behind))
    return RunSubject(bundle, of_cache=True, behind=behind)


def _on_a_wider_kernel(
    image: Image, architecture: str, groups: Sequence[str], options: RunOptions, store: Store
) -> RunSubject:
    """Return the bundle of an image on the family kernel of the cache, where that has what its own kernel lacks."""
    mounts = run_mounts.words(groups)
    _require_unwatched(image, options)
    found = image_bundle.family(architecture, store)
    bundle = None if found is None else image_bundle.made(image, found, store)
    if found is None or bundle is None or run_mounts.lacking(options.wanted_mounts, bundle_folder.load(bundle)):
        raise UserInputError(
            f"the kernel of {image.reference} cannot mount {mounts}, and no family kernel that can is here",
            hint=f"vmtailor fit {image.reference} --keep {','.join(groups)} makes one for this image, and "
            f"{run_mounts.family_command(groups)} one for any image; both take minutes, once",
        )
    note(f"{found.phrase}, not fitted: nothing proven for this image, whose own kernel cannot mount {mounts}")
    return RunSubject(bundle, of_cache=True)


def _require_unwatched(image: Image, options: RunOptions) -> None:
    if options.watched:
        raise UserInputError(
            "--explain-failures and --observed compare with a trace, and nothing was traced for this kernel",
            hint=f"vmtailor fit {image.reference} -o FOLDER, then run FOLDER with them",
        )


def family_of(named: str, architecture: str, store: Store, authfile: Path | None = None) -> Family | None:
    """Return the family kernel that was named, or the one that the cache has; None where there is none. `authfile`:
    credentials for its registry. Raises UserInputError for one of another processor, and for what is none."""
    if not named:
        return image_bundle.family(architecture, store)
    found = named_family(named, architecture, store, authfile)
    if found.record.architecture != architecture:
        raise UserInputError(
            f"the family kernel {named} is for {found.record.architecture}, and the image for {architecture}",
            hint=f"vmtailor family build --arch {architecture} -o oci:DIR makes one",
        )
    return found


def named_family(text: str, architecture: str, store: Store, authfile: Path | None = None) -> Family:
    """Return the family kernel that a reference, the folder of a bundle, or a key of `family ls` names. `architecture`:
    which one, where there are several. Raises UserInputError for anything else, HostError."""
    if _KEY.fullmatch(text):
        for one in family_kernels.every(store):
            if one.key.startswith(text):
                return one
    folder = Path(text)
    if bundle_folder.is_bundle(folder):
        return image_bundle.of_bundle(bundle_folder.load_container(folder, store), store)
    found = family_artefact.fetched(text, architecture, store, authfile)
    if found is None:
        raise UserInputError(
            f"{text} is no family kernel",
            hint="give oci:DIR, docker://NAME, a container's bundle, or one that vmtailor family ls lists",
        )
    return found


def _no_kernel(image: Image, architecture: str) -> UserInputError:
    return UserInputError(
        f"there is no kernel for {image.reference} yet: it was never fitted, and no family kernel for {architecture} "
        "is here",
        hint="vmtailor family build makes one, which starts any image (some minutes, once); "
        f"--family takes one from elsewhere; vmtailor run --fit {image.reference} fits the image first. "
        f"{manual.command('run-an-image')} explains it",
    )
