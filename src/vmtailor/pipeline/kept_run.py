# SPDX-License-Identifier: Apache-2.0
"""The options of `run` that give a machine a name and a folder of its own, and the record that they make."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import read_regular
from vmtailor.drivers.host import machine_folders
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model import kept_machine, option_values
from vmtailor.model.image import HealthCheck
from vmtailor.model.kept_machine import KeptMachine, RestartPolicy, RestartWhen
from vmtailor.model.option import Option, option, rows_of
from vmtailor.model.option_rows import DETACH_KEYS, SIG_PROXY
from vmtailor.pipeline import kept_layer, run_environment, run_ports
from vmtailor.pipeline.machine_run import CONTAINERS, RunOptions, command_of

#: Longest file of labels.
_MOST_LABELS = 1 << 20


@dataclass(frozen=True)
class KeptOptions:
    """The options of a machine that is kept until `rm`. Where one of them is given, it has a name, drawn where none is
    given. Times in seconds; None keeps the image's."""

    detach: bool = option(
        Option(
            name="--detach", short="-d", type=bool, subjects=CONTAINERS,
            help="Start the machine in the background, and print its identifier.",
        ),
        False,
    )  # fmt: skip
    name: str = option(
        Option(
            name="--name", read=machine_folders.require_name, subjects=CONTAINERS,
            help="Give the machine this name. What it writes is kept until vmtailor rm.",
        ),
        "",
    )  # fmt: skip
    labels: tuple[tuple[str, str], ...] = option(
        Option(
            name="--label", short="-l", many=True, read=option_values.parse_labels, subjects=CONTAINERS,
            help="Give the machine a label: NAME=VALUE, or NAME. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    label_files: tuple[Path, ...] = option(
        Option(
            name="--label-file", type=Path, many=True, subjects=CONTAINERS,
            help="Read labels from this file, a line each. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    id_file: Path | None = option(
        Option(
            name="--cidfile", type=Path, subjects=CONTAINERS,
            help="Write the machine's identifier to this file, which must not exist.",
        ),
        None,
    )  # fmt: skip
    restart: RestartPolicy = option(
        Option(
            name="--restart", read=kept_machine.parse_restart, metavar="POLICY", subjects=CONTAINERS,
            suggests=("no", "on-failure", "always", "unless-stopped"),
            help="Start the machine again when it has ended: no, on-failure[:N], always, unless-stopped.",
        ),
        RestartPolicy(),
    )  # fmt: skip
    health_command: str | None = option(
        Option(
            name="--health-cmd", subjects=CONTAINERS, help="Run this command in the container to check its health."
        ),
        None,
    )  # fmt: skip
    health_interval_s: float | None = option(
        Option(
            name="--health-interval", read=option_values.parse_duration, metavar="TIME", subjects=CONTAINERS,
            help="Check the health at this interval (30s).",
        ),
        None,
    )  # fmt: skip
    health_timeout_s: float | None = option(
        Option(
            name="--health-timeout", read=option_values.parse_duration, metavar="TIME", subjects=CONTAINERS,
            help="Count a check that takes longer as failed (30s).",
        ),
        None,
    )  # fmt: skip
    health_retries: int | None = option(
        Option(
            name="--health-retries", type=int, least=0, subjects=CONTAINERS,
            help="Call the container unhealthy after this many failed checks (3).",
        ),
        None,
    )  # fmt: skip
    health_start_s: float | None = option(
        Option(
            name="--health-start-period", read=option_values.parse_duration, metavar="TIME", subjects=CONTAINERS,
            help="Ignore failed checks for this long after the start (0s).",
        ),
        None,
    )  # fmt: skip
    layer_bytes: int | None = option(
        Option(
            name="--storage-opt", read=kept_layer.parse_storage, metavar="size=SIZE", subjects=CONTAINERS,
            help="Let a machine that is kept write this much, such as size=20G (10G). Nothing is taken beforehand.",
        ),
        None,
    )  # fmt: skip
    detach_keys: str | None = option(replace(DETACH_KEYS, subjects=CONTAINERS), None)
    sig_proxy: bool = option(replace(SIG_PROXY, subjects=CONTAINERS), True)
    no_health_check: bool = option(
        Option(name="--no-healthcheck", type=bool, subjects=CONTAINERS, help="Leave the image's health check out."),
        False,
    )

    @property
    def keeps(self) -> bool:
        """Return whether the machine gets a name and a folder."""
        return replace(self, no_health_check=False, layer_bytes=None) != KeptOptions()


def is_kept(options: RunOptions, kept: KeptOptions) -> bool:
    """Return whether a machine gets a name and a folder: also where the command ends before it does."""
    return kept.keeps or options.attach == ("stdin",)


def is_joined(options: RunOptions, kept: KeptOptions) -> bool:
    """Return whether the command joins a machine in the background, which it may leave: by keys that are typed, by a
    signal that is not passed on, or once its standard input has ended."""
    typed = options.terminal and options.interactive
    left = typed or kept.detach_keys is not None or not kept.sig_proxy or options.attach == ("stdin",)
    return left and not kept.detach


def health_of(kept: KeptOptions, of_image: HealthCheck | None) -> HealthCheck | None:
    """Return the health check of a machine; None for none. Raises UserInputError for options that contradict each
    other."""
    given: dict[str, Any] = {
        "interval_s": kept.health_interval_s,
        "timeout_s": kept.health_timeout_s,
        "retries": kept.health_retries or None,
        "start_period_s": kept.health_start_s,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    if kept.no_health_check:
        if changes or kept.health_command is not None:
            raise UserInputError("--no-healthcheck does not go with --health options", hint="leave one of them out")
        return None
    check = of_image
    if kept.health_command:
        defaults = HealthCheck(()) if check is None else check
        check = replace(defaults, argv=("/bin/sh", "-c", kept.health_command))
    return None if check is None else replace(check, **changes)


def require_together(options: RunOptions, kept: KeptOptions) -> None:
    """Raise UserInputError for options that contradict each other."""
    if options.rm and kept.restart.when is not RestartWhen.NO:
        raise UserInputError("--rm does not go with --restart", hint="leave one of them out")
    if kept.detach and options.attach:
        raise UserInputError("--attach does not go with --detach", hint="leave one of them out")
    if options.watched:
        raise UserInputError(
            "--explain-failures and --observed do not go with a machine that has a name", hint="run it without one"
        )


def record_of(options: RunOptions, kept: KeptOptions, files: BundleFolder) -> tuple[KeptMachine, RunOptions]:
    """Return the record of a new machine, and its options as they are now: variables are read, and free ports chosen.
    Raises UserInputError."""
    image, bundle = files.image.config, files.bundle
    variables = run_environment.variables(options.env_files, options.env)
    settled = replace(
        options,
        bundle=files.path.absolute(),
        env=tuple(f"{name}={value}" for name, value in variables),
        env_files=(),
        ports=run_ports.chosen(options.ports),
    )
    grace_s = options.stop_timeout_s
    # One that goes at its end keeps nothing.
    why = "it is removed when it has ended" if options.rm else kept_layer.lacks(files)[0]
    if why and kept.layer_bytes is not None:
        raise UserInputError(
            f"--storage-opt: what this machine writes is in memory: {why}",
            hint=("leave --rm out" if options.rm else kept_layer.lacks(files)[1]),
        )
    record = KeptMachine(
        id=machine_folders.new_id(),
        name=kept.name,
        bundle=str(settled.bundle),
        bundle_digest=f"sha256:{files.record_sha256}",
        image=bundle.image_reference,
        image_digest=bundle.image_digest,
        command=command_of(options, image),
        created=machine_folders.now(),
        labels=labels_of(kept, image.labels),
        ports=settled.ports,
        options=saved_options(settled),
        env=tuple({**dict(image.env), **dict(variables)}.items()),
        user=image.user if options.user is None else options.user,
        cwd=options.cwd or image.working_dir or "/",
        hostname=options.hostname or bundle.image_digest.rpartition(":")[2][:12],
        terminal=options.terminal,
        interactive=options.interactive,
        stop_signal=options.stop_signal or image.stop_signal or "SIGTERM",
        stop_timeout_s=10.0 if grace_s is None else None if math.isinf(grace_s) else grace_s,
        restart=str(kept.restart),
        remove=options.rm,
        health=health_of(kept, image.health_check),
        memory_bytes=options.memory_bytes or bundle.memory_bytes,
        cpus=options.cpus or bundle.cpus,
        layer_bytes=0 if why else kept.layer_bytes or kept_layer.USUAL_BYTES,
        layer_lacks=why,
        volumes=image.volumes,
    )
    return record, settled


def labels_of(kept: KeptOptions, of_image: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the labels of a machine: the image's, then those of files, then those that were given. Raises
    UserInputError."""
    lines = [line for path in kept.label_files for line in _lines(path)]
    return tuple(sorted({**dict(of_image), **dict(option_values.parse_labels(lines)), **dict(kept.labels)}.items()))


def _lines(path: Path) -> list[str]:
    try:
        text = read_regular(path, "the file of labels", _MOST_LABELS, hint="check --label-file").decode()
    except UnicodeDecodeError as error:
        raise UserInputError(f"the file of labels {path} is no UTF-8 text", hint="check --label-file") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def write_id(path: Path, identifier: str) -> None:
    """Write an identifier to a new file. Raises UserInputError where there is one."""
    try:
        with path.open("x") as file:
            file.write(identifier)
    except FileExistsError as error:
        raise UserInputError(f"{path} exists already", hint="remove it, or name another with --cidfile") from error
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise UserInputError(f"{path} cannot be written: {words}", hint="name another with --cidfile") from error


def saved_options(options: RunOptions) -> dict[str, Any]:
    """Return the options that differ from their defaults, as values of a JSON document, by field."""
    saved: dict[str, Any] = {}
    for one, _ in rows_of(options):
        value = getattr(options, one.name)
        if value != one.default:
            value = -1.0 if isinstance(value, float) and math.isinf(value) else value
            saved[one.name] = msgspec.to_builtins(value, enc_hook=os.fspath)
    return saved


def loaded_options(record: KeptMachine) -> RunOptions:
    """Return the options that a record saved. Raises UserInputError for what no option says."""
    known = {one.name for one, _ in rows_of(RunOptions)}
    try:
        options = msgspec.convert(
            {name: value for name, value in record.options.items() if name in known},
            RunOptions,
            strict=False,
            dec_hook=lambda kind, value: kind(value),
        )
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise UserInputError(
            f"the record of {record.name} is damaged: it does not say how to start it",
            hint=f"vmtailor rm {record.name}, and run it again",
        ) from error
    forever = options.stop_timeout_s is not None and options.stop_timeout_s < 0
    return replace(options, stop_timeout_s=math.inf) if forever else options
