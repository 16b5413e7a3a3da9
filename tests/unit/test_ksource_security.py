# SPDX-License-Identifier: Apache-2.0
"""Of security modules that exclude each other a kernel starts one: of the others nothing can have been asked."""

from __future__ import annotations

import pytest

from vmtailor.analysis.ksource import security_modules
from vmtailor.analysis.ksource.facts import Facts

_MODULE = 'DEFINE_LSM({0}) = {{\n\t.name = "{0}",\n\t.flags = {1},\n\t.init = {0}_init,\n}};\n'
_ONE = "LSM_FLAG_LEGACY_MAJOR | LSM_FLAG_EXCLUSIVE"
TEXTS = {
    "security/selinux/hooks.c": _MODULE.format("selinux", _ONE),
    "security/apparmor/lsm.c": _MODULE.format("apparmor", _ONE),
    "security/tomoyo/tomoyo.c": _MODULE.format("tomoyo", "LSM_FLAG_LEGACY_MAJOR"),
    "net/elsewhere.c": _MODULE.format("elsewhere", _ONE),
}
FACTS = Facts(
    "6.12",
    {
        "security/selinux/hooks": "SECURITY && SECURITY_SELINUX",
        "security/apparmor/lsm": "SECURITY && SECURITY_APPARMOR",
        "security/tomoyo/tomoyo": "SECURITY_TOMOYO", "security/gone": "SECURITY_GONE", "net/elsewhere": "NET",
    },
    {}, {},
)  # fmt: skip
ALL = dict.fromkeys(("SECURITY", "SECURITY_SELINUX", "SECURITY_APPARMOR", "SECURITY_TOMOYO", "NET"), "y")


def test_those_that_exclude_each_other_are_read_from_the_source() -> None:
    assert security_modules.exclusive(TEXTS.get, FACTS) == {
        "selinux": "security/selinux/hooks.c", "apparmor": "security/apparmor/lsm.c",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("order", "resting"),
    [
        ('"landlock,apparmor,selinux,tomoyo"', {"SECURITY_SELINUX"}),
        ('"landlock,selinux,apparmor,tomoyo"', {"SECURITY_APPARMOR"}),
        ("yama,selinux", {"SECURITY_APPARMOR"}),
        ('"landlock,yama"', {"SECURITY_SELINUX", "SECURITY_APPARMOR"}),
        ('""', set()),
        (None, set()),
    ],
)
def test_the_first_of_the_list_is_at_work(order: str | None, resting: set[str]) -> None:
    config = ALL | ({} if order is None else {"LSM": order}) | {"HZ": "250", "EXT4_FS": "m", "KVM": "n"}
    found = security_modules.at_work(config, TEXTS.get, FACTS)
    assert found == {name: value for name, value in (ALL | {"EXT4_FS": "m"}).items() if name not in resting}


def test_one_that_the_kernel_has_not_does_not_keep_the_next_from_its_place() -> None:
    config = {name: value for name, value in ALL.items() if name != "SECURITY_APPARMOR"} | {"LSM": '"apparmor,selinux"'}
    assert "SECURITY_SELINUX" in security_modules.at_work(config, TEXTS.get, FACTS)
