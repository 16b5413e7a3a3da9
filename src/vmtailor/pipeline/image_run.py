# SPDX-License-Identifier: Apache-2.0
"""`run IMAGE`: the image is fetched, its root is made, and the best kernel that exists is taken."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base import manual
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.output import note
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.family_kernels import Family
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.model.architecture import named, of_image
from vmtailor.model.image import Image
from vmtailor.pipeline import family_artefact, fit_behind, image_bundle
from vmtailor.pipeline.image_run_options import ImageRunOptions, RunSubject
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.pull_options import PullOptions
from vmtailor.stages import image_fetch


def subject(
    reference: str, options: RunOptions, wanted: ImageRunOptions, store: Store, pull: PullOptions | None = None
) -> RunSubject:
    """Return the bundle of an image: its own fit's, else one on a family kernel."""
    pull = pull or PullOptions()
    settings = image_fetch.ImageOptions(
        architecture=named(pull.architecture).image if pull.architecture else "",
        authfile=pull.authfile,
        limits=None if pull.max_bytes is None else ImageLimits.of_size(pull.max_bytes),
        system=True,
    )
    image = image_fetch.fetch(reference, store, settings)
    image_fetch.require_start(image, store, another=options.entrypoint is not None or bool(options.command))
    row = of_image(image.config.architecture)
    if row is None:
        raise UserInputError(f"there is no support for the architecture {image.config.architecture!r}")
    if before := fit_behind.told(fit_behind.folder_of(image, store)):
        note(before)
    own = None if wanted.family else image_bundle.fitted(image, row.name, store)
    found = family_of(wanted.family, row.name, store, pull.authfile) if own is None else None
    if own is None and found is None:
        if not wanted.fit:
            raise _no_kernel(image, row.name)
        fit_behind.fit_first(image, store)
        own = image_bundle.fitted(image, row.name, store)
    if own is not None:
        return RunSubject(own, of_cache=True)
    if found is None:
        raise _no_kernel(image, row.name)
    if options.watched:
        raise UserInputError(
            "--explain-failures and --observed compare with a trace, and this image was never fitted",
            hint=f"vmtailor fit {reference} -o FOLDER, then run FOLDER with them",
        )
    note(f"{found.phrase}, not fitted: nothing proven for this image")
    bundle = image_bundle.made(image, found, store)
    if not wanted.fit:
        return RunSubject(bundle, of_cache=True)
    behind = fit_behind.begin(image, store)
    if not before:
        note(f"the fit goes on in the background: {behind / fit_behind.LOG} has its progress")
    return RunSubject(bundle, of_cache=True, behind=behind)


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
    """Return the family kernel that a reference or the folder of a bundle names. `architecture`: which one, where there
    are several. Raises UserInputError for anything else, HostError."""
    folder = Path(text)
    if bundle_folder.is_bundle(folder):
        return image_bundle.of_bundle(bundle_folder.load_container(folder, store), store)
    found = family_artefact.fetched(text, architecture, store, authfile)
    if found is None:
        raise UserInputError(
            f"{text} is no family kernel", hint="give oci:DIR, docker://NAME, or the folder of a container's bundle"
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
