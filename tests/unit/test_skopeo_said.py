# SPDX-License-Identifier: Apache-2.0
"""What a registry says becomes an error of the right family, whatever the image is called."""

from __future__ import annotations

import pytest

from vmtailor.drivers.image.skopeo import Access, explain

ACCESS = Access(None, "amd64")


def said(name: str, words: str) -> str:
    """skopeo's last line about a `docker://` name whose manifest it cannot read."""
    untagged, _, tag = name.rpartition(":")
    message = f'Error parsing image name \\"docker://{name}\\": reading manifest {tag} in {untagged}: {words}'
    return f'time="2026" level=fatal msg="{message}"'


@pytest.mark.parametrize(
    "name", ["127.0.0.1:40111/some/oci:2", "127.0.0.1:5401/x:2", "host:1/denied/x:2", "host:1/x/y:unauthorized"]
)
def test_a_name_is_no_answer(name: str) -> None:
    error = explain(f"docker://{name}", said(name, "manifest unknown"), ACCESS)
    assert "is not there" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        "unauthorized: authentication required",
        "invalid status code from registry 401 (Unauthorized)",
        "errors: denied: requested access to the resource is denied",
    ],
)
def test_a_refusal_is_one(words: str) -> None:
    error = explain("docker://127.0.0.1:40111/some/oci:2", said("127.0.0.1:40111/some/oci:2", words), ACCESS)
    assert "the registry refuses" in str(error)
