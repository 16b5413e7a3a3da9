# SPDX-License-Identifier: Apache-2.0
"""Kernels of a remote cache are compiled again and compared; a compile here writes what its inputs say."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base import output
from vmtailor.base.cache import remote
from vmtailor.base.cache.remote_cache import RemoteCache
from vmtailor.base.cache.store import Store, cache_root
from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.kernel import kept_source, make
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.fleet.cli import audit as audit_action
from vmtailor.fleet.run import kernel_audit
from vmtailor.fleet.run.kernel_audit import AuditedKernel, AuditVerdict
from vmtailor.model.architecture import of_host
from vmtailor.model.kernel import KernelInputs
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.pipeline import shared_results
from vmtailor.stages import build

TREE = Path(__file__).parents[2] / "fakes/make-tree"
FINGERPRINT = ("f" * 64, b"{}\n")


def inputs_of(number: int) -> KernelInputs:
    return KernelInputs("x86_64", "6.12.1", "5" * 64, (("SMP", "n"), ("LOG_BUF_SHIFT", str(number))))


def compiled(inputs: KernelInputs, source: Path, folder: Path, store: Store) -> None:
    text = records.to_bytes(inputs)
    for name in ("vmlinux", "config", "System.map"):
        (folder / name).write_bytes(name.encode() + text)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A remote cache with ten kernels."""
    where = tmp_path / "remote"
    monkeypatch.setenv(remote.VARIABLE, str(where))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.setattr(remote, "_fingerprint_of", [lambda: FINGERPRINT])
    monkeypatch.setattr(remote, "_current", {})
    monkeypatch.setattr(remote, "_stays_local", [])
    monkeypatch.setattr(shared_results, "_fingerprint", lambda: FINGERPRINT)
    monkeypatch.setattr(make.Toolchain, "describe", lambda self: "gcc 14, ld 2")
    monkeypatch.setattr(kept_source, "by_digest", lambda digest, store: SourceTree(tmp_path, digest))
    monkeypatch.setattr(build, "compile_again", compiled)
    store = Store(tmp_path / "theirs")
    for number in range(10):
        inputs = inputs_of(number)

        def fill(folder: Path, inputs: KernelInputs = inputs) -> None:
            compiled(inputs, tmp_path, folder, store)
            records.save(inputs, folder / build.INPUTS)
            (folder / "kernel.json").write_text("when it was made")

        store.get("kernel", build.key_of(inputs), fill)
    return where


def audited(place: Path, share: float = 1.0) -> list[AuditedKernel]:
    found: list[AuditedKernel] = []
    whole = kernel_audit.audit(RemoteCache(str(place), lambda: FINGERPRINT), share, Store(), found.append)
    assert list(whole.kernels) == found
    return found


def test_equal_kernels_are_equal_and_the_sample_is_a_share(place: Path) -> None:
    assert {one.verdict for one in audited(place)} == {AuditVerdict.EQUAL}
    assert len(audited(place)) == 10
    assert len(audited(place, 0.25)) == 3
    assert len(audited(place, 0.01)) == 1


@pytest.mark.parametrize("name", ["vmlinux", "config", "System.map"])
def test_a_kernel_of_other_bytes_is_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def other(inputs: KernelInputs, source: Path, folder: Path, store: Store) -> None:
        compiled(inputs, source, folder, store)
        if inputs == inputs_of(3):
            (folder / name).write_bytes(b"another")

    monkeypatch.setattr(build, "compile_again", other)
    (one,) = [one for one in audited(place) if one.verdict is not AuditVerdict.EQUAL]
    assert one == AuditedKernel(build.key_of(inputs_of(3))[:40], AuditVerdict.DIFFERENT, f"{name} of other bytes")


def test_inputs_of_another_kernel_are_a_difference(place: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "forged")

    def forged(folder: Path) -> None:
        compiled(inputs_of(1), tmp_path, folder, store)
        records.save(inputs_of(1), folder / build.INPUTS)

    store.get("kernel", build.key_of(inputs_of(77)), forged)
    (one,) = [one for one in audited(place) if one.verdict is not AuditVerdict.EQUAL]
    assert one.said == "its inputs are those of another kernel"


@pytest.mark.attack
def test_flags_that_no_kernel_may_have_are_not_compiled_with(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = replace(inputs_of(1), flags=("-fplugin=/tmp/evil.so",))

    def forged(folder: Path) -> None:
        compiled(inputs, tmp_path, folder, Store())
        records.save(inputs, folder / build.INPUTS)

    Store(tmp_path / "forged").get(
        "kernel", build.keyed(inputs, make.Toolchain.of(of_host(), flags=inputs.flags)), forged
    )
    (one,) = [one for one in audited(place) if one.verdict is not AuditVerdict.EQUAL]
    assert one.verdict is AuditVerdict.NOT_TRIED
    assert "-fplugin" in one.said


def test_what_cannot_be_tried_is_said_and_is_no_difference(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "old").get("kernel", "0" * 40, lambda folder: compiled(inputs_of(1), tmp_path, folder, Store()))
    (one,) = [one for one in audited(place) if one.verdict is not AuditVerdict.EQUAL]
    assert one.verdict is AuditVerdict.NOT_TRIED
    monkeypatch.setattr(kept_source, "by_digest", lambda digest, store: None)
    found = audited(place)
    assert {one.verdict for one in found} == {AuditVerdict.NOT_TRIED}
    assert any("the source 6.12.1 (555555555555) is not in this host's cache" in one.said for one in found)


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("make", "gcc", "ld", "flex", "bison", "bc")), reason="needs a compiler"
)
def test_a_tree_that_looks_like_a_kernel_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage that builds uploads a kernel; the audit compiles it with the real make, and finds another byte."""
    place = tmp_path / "remote"
    monkeypatch.setenv(remote.VARIABLE, str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.setattr(remote, "_fingerprint_of", [lambda: FINGERPRINT])
    monkeypatch.setattr(remote, "_current", {})
    monkeypatch.setattr(remote, "_stays_local", [])
    monkeypatch.setattr(kept_source, "by_digest", lambda digest, store: SourceTree(TREE, digest))
    plan = Plan("6.99.3", "microvm", 1, RootFormat.EROFS, (("NET", "y"),), (), 0, 0, architecture=of_host().name)
    store = Store(tmp_path / "theirs")
    files = build.build_kernel(plan, TREE, "5" * 64, store)
    assert [one.verdict for one in audited(place)] == [AuditVerdict.EQUAL]

    key = build.kernel_key(plan, "5" * 64, build.toolchain_of(plan))
    image = Path(files.image)
    image.write_bytes(image.read_bytes()[:-1] + b"?")
    cache = RemoteCache(str(place), lambda: FINGERPRINT)
    (place / cache.name_of("kernel", key)).unlink()
    cache.publish("kernel", key, store.path("kernel", key))
    assert audited(place) == [AuditedKernel(key[:40], AuditVerdict.DIFFERENT, f"{image.name} of other bytes")]


def test_a_compile_finds_neither_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = []

    def looking(inputs: KernelInputs, source: Path, folder: Path, store: Store) -> None:
        roots.append((cache_root(), store.root))
        assert not store.bring("kernel", build.key_of(inputs))
        compiled(inputs, source, folder, store)

    monkeypatch.setattr(build, "compile_again", looking)
    before = os.environ["XDG_CACHE_HOME"]
    assert {one.verdict for one in audited(place, 0.1)} == {AuditVerdict.EQUAL}
    assert os.environ["XDG_CACHE_HOME"] == before
    ((root, own),) = roots
    assert root == own
    assert root != cache_root()


def test_the_answer_of_the_action_is_that_of_gate(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(output, "say", said.append)
    audit_action.audit(str(place), 1.0)
    assert said[-1] == "10 kernels of 10 compiled again with the tools ffffffffffff"
    victim = next((place / "results").rglob("kernel/*.json"))
    victim.write_bytes(victim.read_bytes()[:-9])
    with pytest.raises(AnswerNo, match="is not what its inputs give"):
        audit_action.audit(str(place), 1.0)
    assert any("its list is damaged" in line for line in said)
    monkeypatch.setattr(kept_source, "by_digest", lambda digest, store: None)
    victim.unlink()
    with pytest.raises(HostError, match="none of these kernels") as raised:
        audit_action.audit(str(place), 1.0)
    assert "is not in this host's cache" in raised.value.details
    with pytest.raises(UserInputError, match="has no kernels"):
        audit_action.audit(str(tmp_path / "empty"), 1.0)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("100%", 1.0), ("0.5%", 0.005)])
def test_a_share_is_a_percentage(text: str, share: float) -> None:
    assert audit_action.read_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0%", "101%", "-1%", "x%", "", "nan%", "inf%"])
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(UserInputError, match="is not a share"):
        audit_action.read_share(text)
