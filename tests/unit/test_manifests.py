# SPDX-License-Identifier: Apache-2.0
"""What manifests lead to is looked at before a copier follows it; documents without end, or that say things twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image import manifests, skopeo
from vmtailor.drivers.image.allowance import ImageLimits, TooLarge
from vmtailor.drivers.image.documents import BadConfig, parse_document, shown

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": DIGEST, "size": 10}
GOOD: dict[str, Any] = {"schemaVersion": 2, "config": {"digest": OTHER, "size": 5}, "layers": [LAYER]}
FOREIGN = {**GOOD, "layers": [{**LAYER, "urls": ["http://192.0.2.1/layer"]}]}

pytestmark = pytest.mark.attack


def followed(top: Any, *inner: tuple[str, Any], limits: ImageLimits | None = None, **more: str) -> manifests.Followed:
    blobs = {digest: json.dumps(document).encode() for digest, document in inner}
    return manifests.check(json.dumps(top).encode(), "oci:x", blobs.get, "amd64", limits or ImageLimits(), **more)


def check(top: Any, *inner: tuple[str, Any], limits: ImageLimits | None = None) -> frozenset[str]:
    return followed(top, *inner, limits=limits).blobs


def index(*descriptors: dict[str, Any]) -> dict[str, Any]:
    return {"schemaVersion": 2, "manifests": list(descriptors)}


def for_machine(os: Any, architecture: Any, digest: str = DIGEST) -> dict[str, Any]:
    return {"digest": digest, "size": 1, "platform": {"os": os, "architecture": architecture}}


def test_what_a_good_one_leads_to() -> None:
    assert check(GOOD) == {DIGEST, OTHER}
    assert check(index({"digest": DIGEST, "size": 1}), (DIGEST, GOOD)) == {DIGEST, OTHER}


@pytest.mark.parametrize("key", ["urls", "URLs", "Urls", "url\u017f"])
def test_layers_from_elsewhere(key: str) -> None:
    manifest = {**GOOD, "layers": [{**LAYER, key: ["http://192.0.2.1/layer"]}]}
    with pytest.raises(UserInputError, match=r"192\.0\.2\.1.*outside the image"):
        check(manifest)
    with pytest.raises(UserInputError, match=r"192\.0\.2\.1"):
        check(index({"digest": OTHER, "size": 1}), (OTHER, manifest))
    assert check({**GOOD, "layers": [{**LAYER, key: []}]})


@pytest.mark.parametrize(
    "kind",
    ["application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
     "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "Application/VND.Docker.image.rootfs.FOREIGN.diff"],
)  # fmt: skip
def test_kinds_that_are_not_in_the_image(kind: str) -> None:
    with pytest.raises(UserInputError, match="outside the image"):
        check({**GOOD, "layers": [{**LAYER, "mediaType": kind}]})
    with pytest.raises(UserInputError, match="outside the image"):
        check({"schemaVersion": 2, "LAYERS": [{"DIGEST": DIGEST, "MEDIATYPE": kind}]})


def test_other_machines_may_have_what_they_like() -> None:
    """Lists of well-known images name Windows, whose layers are foreign."""
    assert check(index(for_machine("windows", "amd64")), (DIGEST, FOREIGN)) == frozenset()
    assert check(index(for_machine("linux", "arm64")), (DIGEST, FOREIGN)) == frozenset()
    for platform in ({"os": 5, "architecture": "amd64"}, {}, None, {"OS": "linux", "Architecture": "amd64"}):
        with pytest.raises(UserInputError, match="outside"):
            check(index({"digest": DIGEST, "size": 1, "platform": platform}), (DIGEST, FOREIGN))


def test_in_the_index_of_a_layout_the_copier_looks_at_no_machine() -> None:
    for machine in (("windows", "amd64"), ("linux", "s390x")):
        with pytest.raises(UserInputError, match="outside"):
            followed(index(for_machine(*machine)), (DIGEST, FOREIGN), title=manifests.LAYOUT)


@pytest.mark.parametrize(
    ("names", "spelled"),
    [(("x86_64", "s390x"), "x86_64"), (("x86_64", "amd64"), "amd64"), (("s390x",), "amd64"), (("AMD64",), "AMD64")],
)
def test_machines_by_other_names_are_ours_and_found_by_theirs(names: tuple[str, ...], spelled: str) -> None:
    many = [for_machine("linux", name, f"sha256:{n:064x}") for n, name in enumerate(names)]
    found = followed(index(*many), *((f"sha256:{n:064x}", GOOD) for n in range(len(names))))
    assert found.architecture == spelled and bool(found.blobs) is (names != ("s390x",))
    with pytest.raises(UserInputError, match="outside"):
        check(index(for_machine("linux", "x86_64")), (DIGEST, FOREIGN))


def test_numbers_and_lists_without_end() -> None:
    assert check({**GOOD, "layers": [{**LAYER, "size": None}]})
    for size in (-1, 2**63, 10**400, 1.5, "1", True):
        with pytest.raises(BadConfig, match="size"):
            check({**GOOD, "layers": [{**LAYER, "size": size}]})
    with pytest.raises(TooLarge, match="more than 16G"):
        check({**GOOD, "layers": [{**LAYER, "size": 17 << 30}]})
    with pytest.raises(BadConfig, match="5000 layers"):
        check({**GOOD, "layers": [LAYER] * 5000})
    many = [{"digest": f"sha256:{n:064x}", "size": 1} for n in range(1000)]
    with pytest.raises(BadConfig, match="more than 200"):
        check(index(*many))
    chain = [(f"sha256:{n:064x}", index({"digest": f"sha256:{n + 1:064x}", "size": 1})) for n in range(50)]
    with pytest.raises(BadConfig, match="list within"):
        check(chain[0][1], *chain)
    circle = index({"digest": DIGEST, "size": 1})
    assert check(circle, (DIGEST, circle)) == frozenset()


@pytest.mark.parametrize(
    "text",
    [b"[" * 200_000, b'{"a":' * 50_000, b"{}" + b" " * (9 << 20), b'{"a": 1, "a": 2}', b'{"a": ' + b"9" * 5000 + b"}",
     b"\xff", b"null", b"5", b""],
)  # fmt: skip
def test_documents_that_are_none(text: bytes) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_document(text, "the document")
    assert len(caught.value.message) < 300


def test_keys_that_a_program_in_go_takes_for_one() -> None:
    for text in (b'{"layers": [], "LAYERS": [1]}', b'{"urls": [], "url\xc5\xbf": ["x"]}'):
        with pytest.raises(BadConfig, match="twice"):
            parse_document(text, "x", folded=True)
    assert parse_document(b'{"annotations": {"a": "1", "A": "2"}}', "x", folded=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["manifests", "layers", "config", "digest", "urls", "size", "platform", "mediaType"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_anything_is_followed_or_refused(document: Any) -> None:
    try:
        found = check(document, (DIGEST, document))
    except UserInputError as error:
        assert len(error.message) < 1000
        return
    assert all(isinstance(digest, str) for digest in found)
    assert len(shown(document)) < 200


@pytest.mark.parametrize(
    ("reference", "exact"),
    [
        ("docker://nginx", f"docker://nginx@{DIGEST}"),
        ("docker://nginx:1.27", f"docker://nginx@{DIGEST}"),
        ("docker://127.0.0.1:5000/some/name:tag", f"docker://127.0.0.1:5000/some/name@{DIGEST}"),
        ("docker://127.0.0.1:5000/name", f"docker://127.0.0.1:5000/name@{DIGEST}"),
        (f"docker://a/b@{OTHER}", f"docker://a/b@{DIGEST}"),
        (f"docker://a/b:t@{OTHER}", f"docker://a/b@{DIGEST}"),
    ],
)
def test_what_was_looked_at_is_what_is_copied(reference: str, exact: str) -> None:
    assert skopeo.by_digest(reference, DIGEST) == exact
