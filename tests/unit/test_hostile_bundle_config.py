# SPDX-License-Identifier: Apache-2.0
"""The configuration of a hostile bundle reaches make as kconfig writes it, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import bundle_data
from tests.fakes.bundle_data import write_bundle

from vmtailor.analysis.ksource import foreign_config
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config
from vmtailor.drivers.host import bundle_folder
from vmtailor.pipeline import bundle_kernel
from vmtailor.pipeline.change_means import KernelRequest

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]


@pytest.mark.parametrize(
    "text",
    [
        "include /etc/passwd\n", "CONFIG_NET=$(shell id)\n", "CONFIG_NET=y\rCONFIG_X=y\n", "CONFIG_NET=y \n",
        'CONFIG_X="a"b"\n', 'CONFIG_X="a\\$b"\n', 'CONFIG_X="a\n', 'CONFIG_X="a\x0bCONFIG_Y=y"\n', "CONFIG_X=\n",
        " CONFIG_X=y\n", "CONFIG_X=y\nCONFIG_X=m\n", "# CONFIG_X is  not set\n", "CONFIG_X-Y=y\n", "CONFIG_X=yes\n",
        "\ufeffCONFIG_X=y\n", "CONFIG_X=1e9\n", "# \x1b[31m\n", "CONFIG_X=y\0\n",
    ],
)  # fmt: skip
def test_a_configuration_is_read_as_kconfig_writes_it_or_not_at_all(text: str) -> None:
    with pytest.raises(UserInputError, match="config"):
        dot_config.parse_strictly(text.encode(), "config")


def test_what_kconfig_writes_is_read() -> None:
    text = (
        '#\n# Automatically generated file; DO NOT EDIT.\n#\nCONFIG_CC_VERSION_TEXT="gcc (Debian) 12"\nCONFIG_A=y\n'
        '# CONFIG_B is not set\nCONFIG_C=-5\nCONFIG_D=0xff\nCONFIG_E=""\nCONFIG_F="a\\"b\\\\c$d"\n'
        "\n# General\n# end of x\n"
    )
    found = dot_config.parse_strictly(text.encode(), "config")
    assert found == dot_config.parse(text)
    assert (found["F"], found["B"], found["E"]) == ('a"b\\c$d', "n", "")
    with pytest.raises(UserInputError, match="UTF-8"):
        dot_config.parse_strictly(b"# \xff\n", "config")


KCONFIG = """
config NET
	bool "net"
config SHIFT
	int "shift"
	default 3
config BASE
	hex "base"
	default 0x10
config INITRAMFS_SOURCE
	string "files"
	default ""
config MODULE_SIG_KEY
	string "key"
	default "certs/signing_key.pem"
config LOCALVERSION
	string "local version"
config DEFAULT_HOSTNAME
	string "host name"
	default "(none)"
config CC_VERSION_TEXT
	string
	default "gcc 12"
"""


@pytest.fixture
def kconfig(tmp_path: Path) -> Kconfig:
    (tmp_path / "Kconfig").write_text(KCONFIG)
    return Kconfig({"srctree": str(tmp_path)}, lambda command: "")


def test_harmless_values_are_taken(kconfig: Kconfig) -> None:
    values = {
        "NET": "y", "SHIFT": "17", "BASE": "0x200000", "LOCALVERSION": "-fit", "DEFAULT_HOSTNAME": "box (1)",
        "MODULE_SIG_KEY": "certs/signing_key.pem", "INITRAMFS_SOURCE": "", "CC_VERSION_TEXT": "$(shell id)",
    }  # fmt: skip
    taken = foreign_config.harmless(kconfig, values, "config")
    # What the tree says itself it says again: not a letter of the bundle's text is given to make.
    assert taken == {name: values[name] for name in ("NET", "SHIFT", "BASE", "LOCALVERSION", "DEFAULT_HOSTNAME")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INITRAMFS_SOURCE", "$(shell touch owned)"), ("INITRAMFS_SOURCE", "/etc"), ("INITRAMFS_SOURCE", "; touch x"),
        ("MODULE_SIG_KEY", "pkcs11:id=1"), ("MODULE_SIG_KEY", "/home/me/key.pem"),
        ("LOCALVERSION", "$(shell touch owned)"), ("LOCALVERSION", "`id`"), ("LOCALVERSION", "/../x"),
        ("LOCALVERSION", "-x y"), ("DEFAULT_HOSTNAME", "$(shell id)"), ("DEFAULT_HOSTNAME", "a\nb: ; id"),
        ("DEFAULT_HOSTNAME", "a\\"), ("DEFAULT_HOSTNAME", "a#b"), ("DEFAULT_HOSTNAME", '"'),
        ("NET", "$(shell id)"), ("NET", "yes"), ("NET", ""), ("SHIFT", "1;id"), ("SHIFT", "y"), ("BASE", "0xg"),
        ("BASE", "zz"), ("NO_SUCH_SYMBOL", "y"), ("\x1b[31m", "y"),
    ],
)  # fmt: skip
def test_other_values_are_wrong_input(kconfig: Kconfig, name: str, value: str) -> None:
    with pytest.raises(UserInputError, match=r"^config: ") as caught:
        foreign_config.harmless(kconfig, {name: value}, "config")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "said",
    ["../../../../tmp/evil", "/tmp/evil", "", "5a5a", "5A" * 32, bundle_data.SOURCE_DIGEST + "/..", "..", "x" * 64],
)
def test_a_bundle_does_not_choose_whose_makefiles_are_run(tmp_path: Path, said: str) -> None:
    """The digest names a folder of the cache."""
    store = Store(tmp_path / "cache")
    (tmp_path / "cache" / "kernel-source").mkdir(parents=True)
    write_bundle(tmp_path / "b", sources=(("kernel source", f"6.12.7, {said}"),))
    loaded = bundle_folder.load_container(tmp_path / "b", store)
    for ask in (bundle_kernel.source_of, bundle_kernel.known):
        with pytest.raises(UserInputError, match="does not say which source"):
            ask(loaded, store)
    with pytest.raises(UserInputError, match="does not say which source"):
        bundle_kernel.Rebuilder(loaded, store)(KernelRequest({"AUDIT": "y"}))


def test_a_source_is_of_the_version_that_the_bundle_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    tree = store.path("kernel-source", bundle_data.SOURCE_DIGEST)
    tree.mkdir(parents=True)
    (tree / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 7\n")
    with pytest.raises(UserInputError, match=r"is 6\.1\.7, but the kernel of .* is 6\.12\.7"):
        bundle_kernel.source_of(bundle_folder.load_container(write_bundle(tmp_path / "b"), store), store)


LINES = st.sampled_from(
    (
        "CONFIG_A=y", "# CONFIG_B is not set", 'CONFIG_C="', '"', "\\", "$(shell id)", "=", "\n", "\r", "\x0b",
        "\u2028", "\x85", "0x1f", "-7", "#", "é",
    )
)  # fmt: skip


@given(st.lists(LINES | st.text(max_size=3), max_size=12).map("".join))
def test_what_is_read_strictly_is_read_alike_by_all(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        found = dot_config.parse_strictly(data, "config")
    except UserInputError:
        return
    assert found == dot_config.parse(text)
    assert dot_config.parse_strictly(dot_config.render(found).encode(), "config") == found


@pytest.mark.parametrize("value", ["y", "16M", "", "0x"])
def test_a_number_that_is_none_is_not_had(tmp_path: Path, value: str) -> None:
    """What `--keep PHYSICAL_START` without a value asks for."""
    (tmp_path / "Kconfig").write_text('config START\n\thex "Where it lies"\n\tdefault 0x1000000\n')
    found = Kconfig({"srctree": str(tmp_path)}, lambda command: "").resolve([("START", value)])
    assert [one.name for one in found.lost] == ["START"]
