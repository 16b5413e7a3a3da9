# SPDX-License-Identifier: Apache-2.0
"""The bundle that `run` starts: the one that was named, by its folder or a reference, or that of an image: its own fit,
or a family kernel."""

from __future__ import annotations

from vmtailor.base.cache.store import Store
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import bundle_reference
from vmtailor.pipeline.image_run_options import ImageRunOptions, RunSubject
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.pull_options import PulledBundle, PullOptions


def subject_of(
    options: RunOptions, wanted: ImageRunOptions, store: Store | None = None, pull: PullOptions | None = None
) -> RunSubject:
    """Return the bundle to start: that of a reference is pulled, and that of an image made, where it is not there.

    Raises UserInputError for what is neither, and where there is no kernel for an image; HostError."""
    pull = pull or PullOptions()
    named = bundle_reference.pulled(options.bundle, pull, store)
    found = named if isinstance(named, PulledBundle) else None
    if options.keep_state:
        bundle_reference.require_own(options.bundle, found, "--keep-state writes the system's disk")
    path = options.bundle if found is None else found.folder
    if bundle_folder.is_bundle(path):
        if wanted != ImageRunOptions():
            system = bundle_folder.load(path).is_system
            refuse(wanted, OptionSubject.SYSTEM if system else OptionSubject.CONTAINER, path)
        return RunSubject(path, of_cache=found is not None, pulled=found)
    # What starts a bundle does without all of it.
    from vmtailor.drivers.image import image_reference
    from vmtailor.pipeline import image_run

    reference = image_reference.in_place_of_bundle(path)
    if reference:
        pinned = None if isinstance(named, PulledBundle) else named
        return image_run.subject(reference, options, wanted, store or Store(), pull, pinned)
    if not path.exists() and (error := image_reference.without_source(path)):
        raise error
    raise bundle_folder.no_bundle(path)
