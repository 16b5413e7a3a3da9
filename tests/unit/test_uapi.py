# SPDX-License-Identifier: Apache-2.0
"""Values of constants, from the text of headers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.ksource import uapi

HEADERS = {
    "a.h": """
#define F_SETLK 6 /* lock */
#define F_LINUX_SPECIFIC_BASE 1024
#define F_NOTIFY (F_LINUX_SPECIFIC_BASE + 2)
#define CLONE_NEWTIME 0x00000080UL // flag
#define MFD_HUGE_2MB (21U << 26)
#define O_CREAT 00000100
#define ROUND A_ROUND
#define A_ROUND ROUND
#define CALL(x) ((x) + 1)
#define TIOCGPTN _IOR('T', 0x30, unsigned int)
#define VT_NUMBER 0x5600
#define WEIRD _IOR('T', 1, struct weird)
#define CALLED CALL(2)
""",
    "b.h": "enum {\n  IPPROTO_TCP = 6, /* it */\n#define IPPROTO_TCP IPPROTO_TCP\n};\n#define F_SETLK 7\n",
}


def values(*names: str) -> dict[str, int]:
    return uapi.constants(HEADERS.get, ["a.h", "missing.h", "b.h"], names)


def test_numbers_sums_shifts_enums_and_ioctls_are_told() -> None:
    found = values("F_SETLK", "F_NOTIFY", "CLONE_NEWTIME", "MFD_HUGE_2MB", "O_CREAT", "TIOCGPTN", "IPPROTO_TCP")
    assert found == {
        "F_SETLK": 6, "F_NOTIFY": 1026, "CLONE_NEWTIME": 0x80, "MFD_HUGE_2MB": 21 << 26, "O_CREAT": 0o100,
        "TIOCGPTN": 0x80045430, "IPPROTO_TCP": 6,
    }  # fmt: skip


def test_what_is_no_integer_is_left_out() -> None:
    assert values("ROUND", "CALL", "CALLED", "WEIRD", "NOWHERE") == {}


@given(st.text(max_size=60))
def test_any_header_is_read(text: str) -> None:
    uapi.constants(lambda path: f"#define NAME {text}\n", ["a.h"], ["NAME"])
