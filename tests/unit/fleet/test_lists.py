# SPDX-License-Identifier: Apache-2.0
"""Lists in all forms: the form is told by content, every mistake is one sentence, and no record holds a value."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.fleet.lists import line_list, list_text, lists
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, ValueFrom, Variable
from vmtailor.model.margin import Margin

DIGEST = "sha256:" + "a" * 64
COMPOSE = "services: {web: {image: 'nginx:1.27'}}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: 'nginx:1.27'}]}\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, text: str | bytes, name: str = "list") -> FleetList:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return lists.read(path)


def only(folder: Path, text: str, name: str = "list") -> FleetEntry:
    (entry,) = read(folder, text, name).entries
    return entry


def refused(folder: Path, text: str | bytes, name: str = "list") -> UserInputError:
    with pytest.raises(UserInputError) as caught:
        read(folder, text, name)
    assert caught.value.message.count("\n") == 0
    return caught.value


# ---- the form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("nginx:1.27\n", ListForm.LINES),
        ("# a\n\ndocker://nginx\n", ListForm.LINES),
        ('[[image]]\nreference = "nginx"\n', ListForm.TOML),
        ('image = [{ reference = "nginx" }]\n', ListForm.TOML),
        (COMPOSE, ListForm.COMPOSE),
        (f"name: shop\r\n{COMPOSE}", ListForm.COMPOSE),
        (POD, ListForm.KUBERNETES),
        (f"---\n{POD}", ListForm.KUBERNETES),
        ('{"services": {"web": {"image": "nginx"}}}', ListForm.COMPOSE),
        (f"\ufeff{POD}", ListForm.KUBERNETES),
    ],
)
@pytest.mark.parametrize("name", ["list", "list.txt", "list.toml", "list.yaml"])
def test_the_form_is_told_by_content_and_not_by_name(here: Path, text: str, form: ListForm, name: str) -> None:
    if form is ListForm.LINES and name.endswith((".toml", ".yaml")):
        return  # a file without any sign of a form is what its name says
    found = read(here, text, name)
    assert found.form is form
    assert len(found.entries) == 1


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("", "names no image", "fleet-list"),
        ("# nothing\n", "names no image", "fleet-list"),
        (b"\xff\xfea", "not text in UTF-8", "UTF-8"),
        (b"nginx\0", "holds a NUL", ""),
        ("services: {}\n", "names no image", ""),
        ("a: b\n", "has no kind", "fleet-list"),
        ("apiVersion: v1\nkind: Kustomization\n", "is a Kustomization", "kubectl kustomize"),
        (POD.replace("'nginx:1.27'", "{{ .Values.image }}"), "template of Helm", "helm template"),
        (POD.replace("'nginx:1.27'", "'{{ $x }}'"), "template of Helm", "helm template"),
        ("{{- if .Values.x }}\n" + POD + "{{- end }}\n", "template of Helm", "helm template"),
        ("{{- if $x }}\n" + POD + "{{- end }}\n", "template of Helm", "helm template"),
    ],
)
def test_what_is_no_list_is_refused(here: Path, text: str | bytes, says: str, hint: str) -> None:
    error = refused(here, text)
    assert says in error.message
    assert hint in error.hint


def test_text_of_a_pod_may_look_like_a_template(here: Path) -> None:
    entry = only(here, POD.replace("name: c,", 'name: c, args: ["{{ range services }}"],'))
    assert entry.cmd == ("{{ range services }}",)


# ---- lines


def test_lines_hold_references_and_comments(here: Path) -> None:
    text = f"# fleet\nnginx:1.27 # web\n\n  ghcr.io/x/y@{DIGEST}\noci:images/a:b\n./c.tar\ndocker-daemon:redis:7#1\n"
    found = read(here, text.replace("#1", ""))
    assert [(one.name, one.reference, one.digest) for one in found.entries] == [
        ("nginx-1.27", "docker://nginx:1.27", ""),
        ("y", f"docker://ghcr.io/x/y@{DIGEST}", DIGEST),
        ("a-b", f"oci:{here}/images/a:b", ""),
        ("c.tar", f"{here}/c.tar", ""),
        ("redis-7", "docker-daemon:redis:7", ""),
    ]


@pytest.mark.parametrize(("line", "kept"), [("a#b", "a#b"), ("a #b", "a "), ("#a", ""), ("a#b #c", "a#b "), ("", "")])
def test_a_comment_begins_behind_a_blank(line: str, kept: str) -> None:
    assert line_list._without_comment(line) == kept


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nginx 1.27\n", "line 1 has 2 words"),
        ("nginx\n\nb@d!\n", "line 3: 'b@d!' is no image"),
        ("nginx\nx/nginx\n", "two entries are called nginx: line 1, line 2"),
        ("a\nA\n", "two entries are called a"),
    ],
)
def test_a_wrong_line_is_named(here: Path, text: str, says: str) -> None:
    assert says in refused(here, text).message


# ---- TOML


def test_a_toml_list_says_all_that_a_fit_can_be_told(here: Path) -> None:
    (here / "web.toml").write_text('[ready]\nkind = "tcp"\nport = 80\n')
    text = f"""
    [defaults]
    margins = ["server"]
    memory = "1G"
    limit = "2h"
    [[image]]
    reference = "nginx:1.27"
    digest = "{DIGEST}"
    exercise = "web.toml"
    priority = 7
    cpus = 2
    environment = {{ TOKEN = "hunter2" }}
    env_file = "secret.env"
    [[image]]
    name = "cache"
    reference = "oci:redis"
    memory = "64M"
    margins = "none"
    limit = 90
    kernel = "6.1"
    architecture = "arm64"
    machine = "virt"
    keep = ["EPOLL"]
    drop = ["INET"]
    entrypoint = ["/r"]
    cmd = ["-x"]
    privileged = true
    exercise.ready = {{ kind = "command", argv = ["redis-cli", "ping"] }}
    """
    web, cache = read(here, text).entries
    assert web.pinned == f"docker://nginx:1.27@{DIGEST}"
    assert (web.margins, web.memory_bytes, web.cpus, web.limit_s, web.priority) == (
        (Margin.SERVER,),
        1 << 30,
        2,
        7200,
        7,
    )
    assert web.exercise == (here / "web.toml").read_text()
    assert web.exercise_origin == str(here / "web.toml")
    assert web.environment == (Variable("TOKEN", ValueFrom.LIST), Variable("*", ValueFrom.FILE, "secret.env"))
    assert cache == FleetEntry(
        "cache",
        f"oci:{here}/redis",
        exercise=cache.exercise,
        exercise_origin=cache.exercise_origin,
        margins=(),
        architecture="arm64",
        machine="virt",
        memory_bytes=64 << 20,
        kernel="6.1",
        keep=("EPOLL",),
        drop=("INET",),
        entrypoint=("/r",),
        cmd=("-x",),
        privileged=True,
        limit_s=90,
    )
    assert 'kind = "command"' in cache.exercise


@pytest.mark.parametrize(
    ("row", "says", "hint"),
    [
        ('margin = "none"', "not known: image.margin", "did you mean margins?"),
        ('margins = "all"', "image 1 (nginx): margins: no margin 'all'", "known: none"),
        ('memory = "lots"', "memory: 'lots' is not an amount", "256M"),
        ('memory = "1M"', "cannot have '1M'", "from 8M"),
        ("cpus = 0", "cpus must be from 1 to 64", ""),
        ('limit = "soon"', "limit: 'soon' is not a span", "30m"),
        ("limit = 0.5", "limit must be from one second", "30m"),
        ("priority = 9999999", "priority must be", ""),
        ('architecture = "vax"', "no architecture 'vax' is known", "known:"),
        ('machine = "x"', "no machine 'x'", "known:"),
        ('digest = "sha256:1"', "digest must be sha256:", ""),
        ("cpus = 'two'", "Expected `int", "fleet-list"),
        ('exercise = "gone.toml"', "gone.toml cannot be read", ""),
        ('exercise.ready = { kind = "tpc", port = 1 }', "ready.kind must be one of", "exercise"),
        ('exercise = { ready = { kind = "tcp", prot = 1 } }', "ready.prot is not known here", "did you mean port?"),
        ('name = "a/b"', "'a/b' cannot be the name", ""),
        ('name = ".."', "'..' cannot be the name", ""),
    ],
)
def test_a_wrong_key_of_a_toml_list_is_named(here: Path, row: str, says: str, hint: str) -> None:
    error = refused(here, f'[[image]]\nreference = "nginx"\n{row}\n')
    assert says in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[image]]\nname = 'a'\n", "image 1 has no reference"),
        ("[[image]\n", "is not TOML"),
        ("[[images]]\nreference = 'a'\n", "not known: images"),
        ("[default]\n", "not known: default"),
        (f"[[image]]\nreference = 'a@{DIGEST}'\ndigest = 'sha256:{'b' * 64}'\n", "name two images"),
        (f"[[image]]\nreference = 'oci:a'\ndigest = '{DIGEST}'\n", "digest is for an image of a registry"),
        (
            "[[image]]\nreference = 'a'\n[[image]]\nreference = 'b'\nname = 'a'\n",
            "two entries are called a: image 1, image 2",
        ),
        ("[[image]]\n" + "x." * 5000 + "y = 1\n", "parts"),
        ("a = " + "[" * 5000, "nested too deep"),
    ],
)
def test_a_wrong_toml_list_is_refused(here: Path, text: str, says: str) -> None:
    assert says in refused(here, text).message


# ---- values


@pytest.mark.parametrize(
    "text",
    [
        '[[image]]\nreference = "a"\nenvironment = { TOKEN = "hunter2" }\n',
        "services: {a: {image: a, environment: {TOKEN: hunter2}}}\n",
        "services: {a: {image: a, environment: [TOKEN=hunter2]}}\n",
        POD.replace("name: c,", "name: c, env: [{name: TOKEN, value: hunter2}],"),
    ],
)
def test_values_are_for_who_asks_and_never_in_the_record(here: Path, text: str) -> None:
    found = read(here, text)
    (entry,) = found.entries
    assert [one.name for one in entry.environment] == ["TOKEN"]
    assert b"hunter2" not in records.to_bytes(found)
    assert lists.values_of(found, entry) == {"TOKEN": "hunter2"}
    Path(found.path).write_text(text + "\n")
    with pytest.raises(UserInputError, match="has changed"):
        lists.values_of(found, entry)


# ---- strangers


@pytest.mark.attack
@given(
    st.text(
        st.sampled_from(list("ab:#= \n[]{}-'\"$&*!.\t\r\\/@<|>%")) | st.characters(exclude_categories=["Cs"]),
        max_size=120,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_list_or_is_refused(here: Path, text: str) -> None:
    with contextlib.suppress(UserInputError):
        read(here, text)


@pytest.mark.attack
@pytest.mark.parametrize(
    "text",
    [
        "nginx\n" * 400_000,
        "a" * (4 << 20),
        "# " * (2 << 20),
        "- " * (2 << 20),
        "$" * (4 << 20),
        "{{ " * (1 << 20),
        "a = " * 1_000_000,
    ],
    ids=["lines", "word", "comments", "dashes", "dollars", "braces", "equals"],
)
def test_a_long_list_takes_no_long_time(here: Path, text: str) -> None:
    before = time.monotonic()
    refused(here, text)
    assert time.monotonic() - before < 20


@pytest.mark.attack
def test_a_list_is_bounded(here: Path) -> None:
    assert "larger than" in refused(here, b"#" * (list_text.LIST_BYTES + 1)).message
    many = "".join(f"image{number}\n" for number in range(list_text.ENTRIES_MAX + 1))
    assert "names more than 10000 images" in refused(here, many).message
