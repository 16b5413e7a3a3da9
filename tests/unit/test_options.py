# SPDX-License-Identifier: Apache-2.0
"""The table of options: each one is refused where it does not apply, is in the key where a result depends on it, and
has one name, one type and a help text of two lines in every verb."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.cli import run
from vmtailor.cli.signature import of_verb
from vmtailor.cli.verbs import VERBS
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.model import option_rows
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.margin import Margin
from vmtailor.model.option import Option, OptionSubject, given, refusal, refuse, result_key, rows_of, unkeyed
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import fit, kept_run, kept_start, keys, machine_run
from vmtailor.pipeline.image_run_options import ImageRunOptions
from vmtailor.pipeline.kept_run import KeptOptions
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.machine_watches import WatchOptions
from vmtailor.pipeline.options import BootOptions, FitOptions
from vmtailor.pipeline.pull_options import PullOptions
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.second_fit import RefitRequest

FIT_FIELDS = pytest.mark.parametrize("one", fields(FitOptions), ids=lambda one: one.name)
KINDS = OptionSubject
#: Each record of options, with the kinds of subjects that its verbs take.
RECORDS: dict[type[Any], tuple[OptionSubject, ...]] = {
    FitOptions: (
        *(KINDS.IMAGE, KINDS.TREE, KINDS.DISK),
        *(KINDS.TRACED_FOLDER, KINDS.PLANNED_FOLDER, KINDS.BUILT_FOLDER, KINDS.CONTAINER, KINDS.SYSTEM),
    ),
    RunOptions: (KINDS.CONTAINER, KINDS.SYSTEM),
    KeptOptions: (KINDS.CONTAINER, KINDS.SYSTEM),
    PullOptions: (KINDS.CONTAINER, KINDS.SYSTEM),
    ImageRunOptions: (KINDS.IMAGE,),
    VerifyRequest: (KINDS.CONTAINER, KINDS.SYSTEM),
    RefitRequest: (KINDS.CONTAINER, KINDS.SYSTEM),
    WatchOptions: (KINDS.MACHINE, KINDS.DISK, KINDS.CONTAINER, KINDS.SYSTEM),
    BootOptions: (KINDS.MACHINE, KINDS.FITTED, KINDS.EXERCISED, KINDS.WATCHED),
}


def options(tmp_path: Path) -> FitOptions:
    return FitOptions("oci:x", tmp_path, store=Store(tmp_path / "cache"))


def another(record: type[Any], one: Field[Any], value: Any) -> Any:
    """Return a value of the field's type that is not this one."""
    hint = get_type_hints(record)[one.name]
    kinds = {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}
    simple: dict[type, Any] = {str: "another", Path: Path("/another"), Store: Store(Path("/another"))}
    if kinds & {bool, int, float}:
        return not value if bool in kinds else (value or 0) + 1
    if found := kinds & simple.keys():
        return simple[found.pop()]
    if one.name == "distribution":
        return SimpleNamespace(name="none")
    if enums := [kind for kind in kinds if issubclass(kind, Enum)]:
        return next(member for member in enums[0] if member is not value)
    return ("another",)


def changed(record: Any, one: Field[Any]) -> Any:
    """Return the record with another value of one field."""
    return replace(record, **{one.name: another(type(record), one, getattr(record, one.name))})


# ---- what a result depends on


@FIT_FIELDS
def test_a_result_of_fit_depends_on_an_option_or_the_table_says_why_not(one: Field[Any], tmp_path: Path) -> None:
    assert "option" in one.metadata or "unkeyed" in one.metadata, "made by `option` or `internal`"
    reason = unkeyed(one)
    assert reason == "" or len(reason.split()) >= 4
    before = options(tmp_path)
    assert (result_key(changed(before, one)) != result_key(before)) is (reason == "")


@pytest.fixture
def key_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[FitOptions], str]:
    """The key of a fit with these options, with everything else as it was."""
    monkeypatch.setattr(keys, "code", lambda: "same")
    monkeypatch.setattr(Toolchain, "of", lambda *_: SimpleNamespace(describe=lambda: "same"))

    def key(asked: FitOptions) -> str:
        source = SimpleNamespace(digest="same")
        more = {"trace_key": lambda: "same", "identity": "same", "description": b"same", "architecture": "same"}
        subject: Any = SimpleNamespace(options=asked, source=source, **more)
        return fit.fit_key(subject)

    return key


@pytest.mark.parametrize("one", [one for one in fields(FitOptions) if not unkeyed(one)], ids=lambda o: o.name)
def test_the_key_of_a_fit_has_every_option_that_it_depends_on(
    one: Field[Any], key_of: Callable[[FitOptions], str], tmp_path: Path
) -> None:
    before = options(tmp_path)
    assert key_of(changed(before, one)) != key_of(before)
    assert key_of(before) == key_of(options(tmp_path))


def test_what_no_result_of_fit_depends_on_is_what_it_was() -> None:
    assert {one.name for one in fields(FitOptions) if unkeyed(one)} == {
        *(
            "reference",
            "out",
            "exercise_file",
            "memory_asked",
            "asked",
            "kernel",
            "source",
            "baseline_config",
            "partition",
        ),
        *("authfile", "max_image_bytes", "command", "store", "distribution"),
    }


# ---- what goes with what


def plain(record: type[Any]) -> Any:
    """Return the record with nothing given."""
    return record(*(Path("subject") for one in fields(record) if one.default is one.default_factory is MISSING))


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        pytest.param(record, kind, id=f"{record.__name__}-{kind.name}")
        for record, kinds in RECORDS.items()
        for kind in kinds
    ],
)
def test_every_option_is_accepted_or_refused_by_its_name(record: type[Any], kind: OptionSubject) -> None:
    nothing = plain(record)
    for one, row in rows_of(record):
        if one.default is MISSING:
            continue
        asked = changed(nothing, one)
        spelled = f"--no-{row.name[2:]}" if getattr(asked, one.name) is False else row.name
        assert [words.split()[0] for _, words in given(asked)] == [spelled]
        if kind in row.subjects:
            refuse(asked, kind, "oci:x")
            continue
        words = re.escape(kind.phrase("oci:x"))
        with pytest.raises(UserInputError, match=rf"^{spelled}( \w+)? does not go with {words}$") as error:
            refuse(asked, kind, "oci:x")
        assert error.value.hint


def refused(record: type[Any], kind: OptionSubject) -> set[str]:
    return {row.name for _, row in rows_of(record) if kind not in row.subjects}


def test_what_is_refused_is_what_it_was() -> None:
    """The table's own words, once more: what an option applies to changes on purpose, and here too."""
    images = {"--kernel", "--baseline-config", "--root", "--margin", "--price-margins", "--terminal", "--entrypoint"}
    tree = {*images, "--cmd", "--privileged", "--partition", "--env", "--secret-env"}
    assert refused(FitOptions, KINDS.TREE) == tree
    assert refused(FitOptions, KINDS.DISK) == {*tree, "--authfile", "--max-image-size"} - {"--partition"}
    assert refused(FitOptions, KINDS.IMAGE) == {"--units", "--mask", "--try-file", "--partition"}
    folder = refused(FitOptions, KINDS.TRACED_FOLDER)
    assert {row.name for _, row in rows_of(FitOptions)} - folder == {"IMAGE", "--out"}
    assert folder - refused(FitOptions, KINDS.BUILT_FOLDER) == {"--source"}
    planned = {"--keep", "--for", "--drop", "--margin", "--terminal", "--source"}
    assert folder - refused(FitOptions, KINDS.PLANNED_FOLDER) == planned
    again = {"--keep", "--for", "--drop", "--repeat", "--budget"}
    assert folder - refused(FitOptions, KINDS.SYSTEM) == again
    assert folder - refused(FitOptions, KINDS.CONTAINER) == {*again, "--kernel", "--margin"}
    assert refused(RefitRequest, KINDS.SYSTEM) == {"--observed"} and refused(RefitRequest, KINDS.CONTAINER) == set()
    assert refused(VerifyRequest, KINDS.SYSTEM) == {"--on", "--lab", "--program", "--env", "--secret-env"}
    assert refused(VerifyRequest, KINDS.CONTAINER) == {"--disk"}
    assert refused(RunOptions, KINDS.CONTAINER) == {"--keep-state"}
    assert refused(RunOptions, KINDS.SYSTEM) == {
        *("COMMAND", "--entrypoint", "--env", "--env-file", "--user", "--workdir", "--hostname", "--stop-signal"),
        *("--stop-timeout", "--privileged", "--explain-failures", "--observed", "--pid", "--read-only", "--tmpfs"),
        *("--volume", "--mount", "--attach"),
        *("--shm-size", "--add-host", "--dns", "--dns-search", "--dns-option", "--cap-add", "--cap-drop"),
        *("--group-add", "--ulimit", "--sysctl", "--oom-score-adj", "--domainname", "--security-opt"),
        *("--publish-all", "--expose", "--network", "--ip", "--ip6"),
    }
    every = {row.name for _, row in rows_of(BootOptions)} - {"SUBJECT", "--out", "--json"}
    assert every - refused(BootOptions, KINDS.FITTED) == {
        *("--append", "--repeat", "--timeout", "--clock", "--memory", "--cpu-model", "--accelerator"),
        *("--debug-initcalls", "--try", "--attribute", "--under", "--judge", "--on", "--lab", "--program"),
        *("--exercise", "--clients"),
    }
    assert every - refused(BootOptions, KINDS.EXERCISED) == {
        *("--exercise", "--kernel", "--initrd", "--append", "--repeat", "--timeout", "--clock", "--machine"),
        *("--memory", "--cpus", "--cpu-model", "--accelerator"),
    }
    assert every - refused(BootOptions, KINDS.WATCHED) == {
        *("--requests", "--ready", "--also", "--mark", "--timeout", "--memory", "--cpus")
    }
    on_bundles = {"--under", "--on", "--lab", "--program", "--clients"}
    assert refused(BootOptions, KINDS.MACHINE) == {"--exercise", "--requests", *on_bundles}


def test_a_refusal_names_all_options_and_what_to_do_instead() -> None:
    one = refusal(("--keep",), KINDS.DISK, "x.img")
    assert one.message == "--keep does not go with x.img, a disk of a system with an init of its own"
    assert one.hint == KINDS.DISK.hint
    two = refusal(("--keep", "--no-terminal"), KINDS.CONTAINER, "b", "leave them out")
    assert (two.message, two.hint) == (
        "--keep, --no-terminal do not go with b, the bundle of a container",
        "leave them out",
    )
    with pytest.raises(UserInputError) as error:
        refuse(BootOptions(cpus=2, sample=True, accelerator=Accelerator.KVM, arch="arm64"), KINDS.FITTED, "b")
    assert error.value.message.startswith("--cpus, --arch, --sample do not go with b, a bundle")
    with pytest.raises(UserInputError) as error:
        refuse(FitOptions("x", files=(("/a", None),), units=UnitsMode.ASK), KINDS.IMAGE, "oci:x")
    assert error.value.message == "--units ask, --try-file do not go with the image oci:x"
    assert error.value.hint.startswith("vmtailor boot BUNDLE --try CHANGE")


def test_a_command_that_is_no_unicode_is_recorded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/vmtailor", "fit", "a b\udcff"])
    asked = FitOptions.as_asked(reference="x", memory_bytes=5)
    assert asked.command == "vmtailor fit 'a b?'"
    assert asked.memory_asked and asked.asked == {"reference", "memory_bytes"}
    assert not FitOptions.as_asked(reference="x").memory_asked
    plain = FitOptions("x")
    assert plain.memory_asked and plain.command == "" and plain.asked == frozenset()
    known = replace(plain, architecture="x86_64")
    assert known.root_format is RootFormat.EROFS and replace(known, root=RootFormat.EXT4).root_format is RootFormat.EXT4


def test_a_machine_is_known_by_its_processor() -> None:
    assert FitOptions.as_asked(reference="x", architecture="arm64", machine="virt").machine == "virt"
    assert FitOptions.as_asked(reference="x", machine="virt").machine == "virt"
    for wrong in ({"architecture": "arm64", "machine": "microvm"}, {"architecture": "vax"}, {"machine": "vax"}):
        with pytest.raises(UserInputError):
            FitOptions.as_asked(reference="x", **wrong)


# ---- the whole table


def sheet(one: Option, default: Any) -> str:
    """Return everything of an option that a user can notice, but the words of its help and hints."""
    words = [*([one.short] if one.short else []), *(f"formerly {name}" for name in one.former), one.type.__name__]
    if one.least is not None or one.most is not None:
        words.append(f"{one.least} to {one.most}")
    words += ["repeated"] if one.many else []
    words += ["split at commas"] if one.commas else []
    words += [f"read by {one.read.__name__}"] if one.read is not None else []
    words.append("required" if default in (MISSING, inspect.Parameter.empty) else f"default {default}")
    words += [f"of {' '.join(sorted(one.verbs))}"] if one.verbs else []
    kinds = sorted(kind.name.lower() for kind in one.subjects)
    words += [f"for {' '.join(kinds)}"] if one.subjects != frozenset(KINDS) else []
    words += ["in no key"] if one.unkeyed else []
    return "; ".join(words)


def whole_table() -> dict[str, dict[str, str]]:
    """Return each record's options, and those that only one verb's function has, each as one line."""
    found = {record.__name__: {row.name: sheet(row, one.default) for one, row in rows_of(record)} for record in RECORDS}
    for verb in VERBS:
        function = inspect.unwrap(verb.function())
        declared = inspect.signature(function).parameters
        own = {
            row.name: sheet(row, declared[name].default)
            for name, hint in get_type_hints(function, include_extras=True).items()
            if get_origin(hint) is Annotated
            for row in get_args(hint)
            if isinstance(row, Option)
        }
        found |= {f"vmtailor {verb.name}": own} if own else {}
    return found


TABLE = Path(__file__).parent.parent / "data" / "options.json"


def test_the_command_line_is_what_it_was() -> None:
    """Scripts depend on each of these: a change is made on purpose, here too, and has a line in the changelog."""
    expected, found = json.loads(TABLE.read_text()), whole_table()
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name


# ---- the command line


def info_of(parameter: inspect.Parameter) -> Any:
    """Return what the library is told of a parameter."""
    return get_args(parameter.annotation)[1]


def declared() -> Iterator[tuple[str, Option]]:
    """Every row that a verb takes, with the verb."""
    for verb in VERBS:
        function = inspect.unwrap(verb.function())
        for hint in get_type_hints(function, include_extras=True).values():
            if get_origin(hint) is Annotated:
                yield from ((verb.name, row) for row in get_args(hint) if isinstance(row, Option))
            elif hint in RECORDS:
                yield from ((verb.name, row) for _, row in rows_of(hint) if not row.verbs or verb.name in row.verbs)


ROWS = tuple(declared())
#: Names that stand for different things, with the reason.
UNLIKE = {
    "--arch": "`family` makes kernels for several processors",
    "--kernel": "`boot` starts a file, as QEMU's -kernel does; elsewhere it is a version",
    "--ready": "`boot` waits for a signal, `analyze` reads a log",
    "--disk": "`boot` takes several, `verify` one",
    "--cpus": "`run` reads decimals, as docker does",
    "--entrypoint": "`run` takes one program, as docker does",
    "--observed": "`run` writes one file, `refit` reads several",
    "--on": "`bench` takes several runtimes, `verify` one monitor",
    "--image": "`bench` compares several, `export` names one",
    "--repeat": "`bench` has no -n, which would read like its --n",
    "--for": "`explain` asks for one processor, `fit` names targets",
    "--sample": "`boot` samples a machine, `fleet audit` takes a share of the kernels",
    "--env-file": "`exec` is docker's",
    "--format": "`inspect` has docker's -f, which is `--filter` of `ps`",
    "--all": "`ps` has docker's -a",
    "--attach": "`start` stays in the foreground, as docker's does",
    "--timeout": "`stop` has docker's -t, and whole seconds",
    "--signal": "`kill` and `stop` are docker's",
    "--quiet": "`ps` prints identifiers alone, `cp` says nothing",
    "--force": "`rm` has docker's -f",
    "--size": "`ps` shows sizes, as docker's does",
    "--label": "`run` has docker's -l, which `volume` of docker has not",
}
#: Short names that stand for several, since docker's verbs have them so.
DOCKERS_SHORT = {
    "-s": {"--signal", "--size"},
    "-a": {"--all", "--archive", "--attach"},
    "-f": {"--budgets", "--filter", "--follow", "--force", "--format"},
    "-n": {"--repeat", "--tail"},
    "-t": {"--timeout", "--timestamps", "--tty"},
    "-v": {"--volume", "--volumes"},
}
#: No help text begins with one of these: it begins with an imperative.
NO_VERBS = {"a", "an", "the", "of", "what", "which", "where", "how", "who", "when", "whether", "its", "one", "another"}


def test_every_verb_takes_its_options_from_the_table() -> None:
    assert {verb for verb, _ in ROWS} == {verb.name for verb in VERBS}
    for verb in VERBS:
        made = inspect.signature(verb.function()).parameters
        shown = [one for name, one in made.items() if name != "verb_context" and not info_of(one).hidden]
        assert len(shown) == len([row for name, row in ROWS if name == verb.name])


def test_one_thing_has_one_name_one_short_name_and_one_type() -> None:
    found: dict[str, set[tuple[Any, ...]]] = {}
    for _, row in ROWS:
        if not row.is_argument:
            found.setdefault(row.name, set()).add((row.short, row.type, row.many))
    assert {name for name, kinds in found.items() if len(kinds) > 1} <= UNLIKE.keys()
    for short in {row.short for _, row in ROWS if row.short}:
        names = {row.name for _, row in ROWS if row.short == short}
        assert len(names) == 1 or names == DOCKERS_SHORT[short], short
    for verb in {verb for verb, _ in ROWS}:
        shorts = [row.short for name, row in ROWS if name == verb and row.short]
        assert len(shorts) == len(set(shorts)), verb
    former = {old for _, row in ROWS for old in row.former}
    assert {*former} == {"--accel", "--cpu", "--times", "--boots", "--output", "--init", "--csv", "--time"}


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in ROWS}))
def test_help_begins_with_an_imperative_and_fits_in_two_lines(verb: str) -> None:
    for row in (row for name, row in ROWS if name == verb):
        first, *_ = row.help.split()
        assert first[0].isupper() and first.lower() not in NO_VERBS and row.help.endswith("."), row.name
        assert len(row.help) <= 160, row.name
        assert not row.many or row.is_argument or re.search(r"Repeat it|Default: reachable", row.help), row.name


def command_line(record: type[Any], verb: str = "") -> Callable[..., Any]:
    """Return a verb's function that returns its record."""

    def function(asked: Any) -> Any:
        return asked

    function.__annotations__ = {"asked": record}
    return of_verb(verb, function)


def made(function: Callable[..., Any], **values: Any) -> Any:
    names = inspect.signature(function).parameters
    return function(**{**{name: one.default for name, one in names.items()}, **values})


def test_a_former_name_is_hidden_and_understood(capsys: pytest.CaptureFixture[str]) -> None:
    function = command_line(BootOptions)
    hidden = {
        name: info_of(one).default
        for name, one in inspect.signature(function).parameters.items()
        if name != "verb_context" and info_of(one).hidden
    }
    assert hidden == {
        "repeat_formerly_0": "--times", "cpu_model_formerly_0": "--cpu", "accelerator_formerly_0": "--accel",
    }  # fmt: skip
    assert made(function, repeat_formerly_0=7).times == 7
    assert capsys.readouterr().err == "--times is now called --repeat\n"


def test_what_is_not_given_is_the_records_default_and_the_rest_is_read() -> None:
    function = command_line(BootOptions)
    assert made(function) == BootOptions()
    asked = made(function, memory="512M", append="a b", try_=["x, y", "z+w", "y"], clock=Clock.INSTRUCTIONS)
    assert (asked.memory_bytes, asked.append, asked.changes) == (512 << 20, ("a", "b"), ("x", "y", "z+w"))
    assert asked.clock is Clock.INSTRUCTIONS


def test_the_command_line_of_fit_notes_what_was_asked() -> None:
    function = command_line(FitOptions, "fit")
    asked = made(function, image="oci:x", margin=["server"], keep=["A,B", "C=x,y"])
    assert (asked.margins, asked.keep, asked.memory_asked) == ((Margin.SERVER,), ("A", "B", "C=x,y"), False)
    asked = made(function, image="oci:x", memory="256M")
    assert asked.memory_asked and "--memory" in {words for _, words in given(asked)}
    assert asked.command.split()[0] == "vmtailor"
    with pytest.raises(UserInputError, match="no machine 'x' is known"):
        made(function, image="oci:x", machine="x")


def test_every_option_of_run_is_used() -> None:
    """Names that are read as attributes anywhere in what `run` is made of."""
    files = (Path(machine_run.__file__), Path(kept_run.__file__), Path(kept_start.__file__), Path(run.__file__))
    read = {
        node.attr for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)
    }
    assert {one.name for kind in (RunOptions, KeptOptions) for one, _ in rows_of(kind)} - read == set()


def test_rows_that_verbs_share_are_used_by_one_at_least() -> None:
    names = {row.name for _, row in ROWS}
    shared = [row for row in vars(option_rows).values() if isinstance(row, Option)]
    assert shared and {row.name for row in shared} <= names
