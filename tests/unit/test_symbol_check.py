# SPDX-License-Identifier: Apache-2.0
"""A symbol to keep that no kernel has is refused at once, with the one that was meant."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.started import Start
from tests.fakes.tools import load_tool

from vmtailor.analysis.ksource.kconfig import unknown_symbol
from vmtailor.analysis.printk import message_index
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.kernel import symbol_names
from vmtailor.pipeline import symbol_check
from vmtailor.pipeline.options import FitOptions

FAKE_TREE = Path(__file__).resolve().parents[1] / "fakes" / "kernel-tree"
SAVED = Path(__file__).resolve().parents[1] / "data" / "saved" / "container"


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FitOptions:
    monkeypatch.setattr(symbol_check, "_packaged", lambda _: "6.12.99")
    return FitOptions("docker://x", store=Store(tmp_path / "cache"))


def refused(options: FitOptions) -> UserInputError:
    with pytest.raises(UserInputError) as caught:
        symbol_check.require_known(options)
    return caught.value


@pytest.mark.parametrize(
    ("given", "meant"), [("EPOL", "EPOLL"), ("CONFIG_BTRFS=y", "BTRFS_FS"), ("futex", "FUTEX"), ("IPv6", "IPV6")]
)
def test_a_symbol_that_no_kernel_has(given: str, meant: str, options: FitOptions) -> None:
    for wrong in (replace(options, keep=("FUTEX", given)), replace(options, drop=(given,))):
        error = refused(wrong)
        assert "6.12.99 has no configuration symbol" in error.message and f"did you mean {meant}?" in error.hint


def test_what_is_known_takes_no_look_at_anything(options: FitOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(symbol_check, "_packaged")
    symbol_check.require_known(replace(options, keep=("EPOLL", "CONFIG_LOG_BUF_SHIFT=16"), drop=("BPF_SYSCALL",)))
    symbol_check.require_known(options)


def test_a_source_that_is_given_has_the_last_word(options: FitOptions, tmp_path: Path) -> None:
    (tmp_path / "Kconfig").write_text("config VENDOR_THING\n\tbool\n")
    symbol_check.require_known(replace(options, source=str(tmp_path), keep=("VENDOR_THING",)))
    error = refused(replace(options, source=str(tmp_path), keep=("VENDOR_THIN",)))
    assert str(tmp_path) in error.message and "did you mean VENDOR_THING?" in error.hint


def test_of_another_kernel_it_cannot_be_told_yet(
    options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    symbol_check.require_known(replace(options, source=f"{tmp_path}/linux.tar.xz", keep=("EPOL",)))
    monkeypatch.setattr(symbol_check, "_packaged", lambda _: "9.1.3")
    symbol_check.require_known(replace(options, keep=("EPOL",)))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all("has the symbol EPOL; did you mean EPOLL?" in line for line in said)


def test_the_names_that_the_program_has() -> None:
    versions, names = symbol_names.shipped()
    assert [version.rpartition(".")[0] for version in versions] == ["6.1", "6.12"]
    assert len(names) > 20_000 and {"EPOLL", "FUTEX", "X86_64", "ARM64", "RISCV", "MACH_LOONGSON64"} <= names
    assert all(name.replace("_", "").isalnum() and name.isascii() for name in names)


def test_the_index_of_messages_is_of_the_same_kernels() -> None:
    versions, names = symbol_names.shipped()
    known = message_index.index()
    assert known.kernels == versions
    assert {name for name in known._symbols if known.kind(name) != message_index.KIND_HIDDEN} <= names


def test_the_names_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "Kconfig").write_text("menuconfig ONE\n\tbool 'config'\n  config TWO\nconfig\ncomment x\n")
    (tmp_path / "a" / "Kconfig.more").write_bytes(b"config THREE\n\xff\n")
    (tmp_path / "Kconfig.gone").symlink_to("nowhere")
    assert symbol_names.of_source(tmp_path) == {"ONE", "TWO", "THREE"}


def test_the_list_is_made_the_same_again() -> None:
    tool = load_tool("kernel_symbols")
    made = tool.packed([FAKE_TREE])
    assert made == tool.packed([FAKE_TREE])
    version, *names = lzma.decompress(made).decode().split()
    assert version.count(".") == 2 and names == sorted(symbol_names.of_source(FAKE_TREE)) and names


def test_explain_knows_them_too(start: Start) -> None:
    code, _, err = start("explain", "--no-tree", SAVED, "EPOL")
    assert code == 2 and "did you mean EPOLL" in err


def test_an_error_without_a_likeness_says_how_to_find_it() -> None:
    assert "vmtailor explain" in unknown_symbol("ZZZZZZ", ["EPOLL"]).hint
