# SPDX-License-Identifier: Apache-2.0
"""The catalogue: its own files are well-formed, conditions choose, malformed rows are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Situation, When, in_bounds
from vmtailor.base.errors import UserInputError
from vmtailor.model import architecture
from vmtailor.model.change import Cause
from vmtailor.model.plan import RootFormat

MICROVM = Situation("microvm", RootFormat.EROFS, "6.12.117")


def references(situation: Situation) -> set[str]:
    return {e.reference for e in symbol_catalogue.load().chosen(situation)}


def test_every_machine_has_its_transport_and_only_that() -> None:
    micro = references(MICROVM)
    q35 = references(Situation("q35", RootFormat.EROFS, "6.12.117"))
    assert "platform:virtio-mmio" in micro and "platform:virtio-pci" not in micro
    assert "platform:virtio-pci" in q35 and "platform:virtio-mmio" not in q35


@pytest.mark.parametrize("root", list(RootFormat))
def test_every_root_format_has_exactly_its_own_entry(root: RootFormat) -> None:
    chosen = references(Situation("microvm", root, "6.12.117"))
    assert {r for r in chosen if r.startswith("platform:root-") and r != "platform:root-disk"} == {
        f"platform:root-{root.value}"
    }


def test_two_cpus_keep_smp() -> None:
    two = Situation("microvm", RootFormat.EROFS, "6.12.117", cpus=2)
    values = {name: value for e in symbol_catalogue.load().chosen(two) for name, value in e.symbols}
    assert values["SMP"] == "y"
    assert "SMP" not in {
        name for e in symbol_catalogue.load().chosen(MICROVM) for name, value in e.symbols if value != "n"
    }


def test_every_reference_is_of_one_entry() -> None:
    references = [entry.reference for entry in symbol_catalogue.load().entries]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize(
    ("bounds", "version", "expected"),
    [
        ("", "6.12", True),
        (">=6.9", "6.12.117", True),
        (">=6.9", "6.1.192", False),
        ("<=6.12", "6.12.117", True),
        ("<6.12", "6.12.117", False),
        (">=6.1,<6.9", "6.8", True),
        ("==6.12", "6.12.117-1~deb12u1", True),
    ],
)
def test_bounds(bounds: str, version: str, expected: bool) -> None:
    assert in_bounds(bounds, version) is expected


def test_a_condition_that_is_not_given_does_not_matter() -> None:
    assert When().holds(MICROVM)
    assert not When(network=True).holds(MICROVM)
    assert When(network=False).holds(MICROVM)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[[entry]]\nid='a'\nsymbols={X='y'}", "no reason"),
        ("[[entry]]\nreason='r'\nsymbols={X='y'}", "no id"),
        ("[[entry]]\nid='a'\nreason='r'", "neither"),
        ("[[entry]]\nid='a'\nreason='r'\nsymbols={CONFIG_X='y'}", "CONFIG_"),
        ("[[entry]]\nid='a'\nreason='r'\nsymbols={X=true}", "X"),
        ("[[entry]]\nid='a'\nreason='r'\nwords=['a b']", "spaces"),
        ("[[entry]]\nid='a'\nreason='r'\nwords=['a']\nwhen={kernal='>=6'}", "kernal"),
        ("[[entry]]\nid='a'\nreason='r'\nwords=['a']\nwhen={kernel='6'}", "bound"),
        ("[[entry]]\nid='a'\nreason='r'\nwords=['a']\nwhen={machine=['pc']}", "pc"),
        ("[[entry]]\nid='a'\nreason='r'\nwords=['a']\nwhen={network='yes'}", "network"),
        ("not toml", "not TOML"),
    ],
)
def test_malformed_rows_are_refused(text: str, part: str) -> None:
    with pytest.raises(UserInputError, match=part):
        symbol_catalogue.parse(text, Cause.POLICY, "policy/test.toml")


def test_references_tell_the_two_folders_apart() -> None:
    rows = "[[entry]]\nid='a'\nreason='r'\nwords=['w']"
    found = (*symbol_catalogue.parse(rows, Cause.POLICY, "p"), *symbol_catalogue.parse(rows, Cause.PLATFORM, "q"))
    assert [entry.reference for entry in found] == ["policy:a", "platform:a"]


def test_one_architecture_has_its_own_entries_and_the_common_ones() -> None:
    every = {(entry.reference, entry.when.arch) for entry in symbol_catalogue.load().entries}
    of_one = {name: symbol_catalogue.load(architecture=name).entries for name in ("x86_64", "arm64")}
    for name, entries in of_one.items():
        other = ({"x86_64", "arm64"} - {name}).pop()
        assert {(entry.reference, entry.when.arch) for entry in entries} < every
        own = [entry for entry in entries if entry.when.arch == (name,)]
        assert own and not [entry for entry in entries if entry.when.arch == (other,)]
        platform = symbol_catalogue.of_architecture(architecture.named(name), Cause.PLATFORM)
        policy = symbol_catalogue.of_architecture(architecture.named(name), Cause.POLICY)
        assert {*platform, *policy} <= set(entries)
        assert {entry.cause for entry in platform} <= {Cause.PLATFORM} and {entry.cause for entry in policy} <= {
            Cause.POLICY
        }


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    row = "[[entry]]\nid='a'\nreason='r'\nwords=['w']\n"
    for folder in ("platform", "policy"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.toml").write_text(row)
    found = symbol_catalogue.load(tmp_path, architecture="x86_64")
    assert [entry.reference for entry in found.entries if entry.id == "a"] == ["platform:a", "policy:a"]
    (tmp_path / "policy" / "two.toml").write_text(row)
    with pytest.raises(UserInputError, match="two entries policy:a"):
        symbol_catalogue.load(tmp_path, architecture="x86_64")


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("arch = ['x86_64']", True), ("arch = ['arm64']", False),
        ("machine = ['microvm']", True), ("machine = ['q35']", False),
        ("bus = ['mmio']", True), ("bus = ['pci']", False),
        ("root = ['erofs', 'ext4']", True), ("root = ['ext4']", False),
        ("kernel = '>=6.12'", True), ("kernel = '<6.12'", False),
        ("cpus = '==1'", True), ("cpus = '>=2'", False),
        *((f"{name} = {value}", (value == "true") == (name == "writable")) for value in ("true", "false")
          for name in ("network", "terminal", "writable", "own_init", "partitioned", "mapped", "modules")),
        ("cpus = '==1', network = true", False),
    ],
)  # fmt: skip
def test_each_condition_is_held_against_its_own_fact(when: str, holds: bool) -> None:
    """Of a machine of which only the usual is known."""
    usual = Situation("microvm", RootFormat.EROFS, "6.12.117", architecture="x86_64")
    text = f"[[entry]]\nid='a'\nreason=' why '\nwords=['w']\nwhen = {{ {when} }}\n"
    (entry,) = symbol_catalogue.parse(text, Cause.POLICY, "policy/test.toml")
    assert entry.when.holds(usual) is holds
    assert (entry.reason, entry.words, entry.symbols, entry.if_possible) == ("why", ("w",), (), False)
