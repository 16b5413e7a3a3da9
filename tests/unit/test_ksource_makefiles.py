# SPDX-License-Identifier: Apache-2.0
"""Each way in which kernel Makefiles put an object into a list, with y, m and n told apart."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.ksource.expr import UNKNOWN, truth
from vmtailor.analysis.ksource.kbuild import compiled_files, file_conditions
from vmtailor.analysis.ksource.kconfig import kinds, tristates
from vmtailor.analysis.ksource.make_values import Kind

KCONFIG = """\
config MODULES
    bool "Modules"
    modules
config B
    bool "Switch"
config C
    bool
config T
    tristate "May be a module"
config U
    tristate
    help
      Some text.
config N
    int "Number"
source "arch/$(SRCARCH)/Kconfig"
"""


def tree(makefile: str, **more: str) -> dict[str, str]:
    """A tree with one folder `a`."""
    return {"Kconfig": KCONFIG, "Kbuild": "obj-y += a/\n", "a/Makefile": makefile, **more}


def conditions(makefile: str, **more: str) -> dict[str, str]:
    return {path: str(c) for path, c in file_conditions(tree(makefile, **more).get, "x86").items()}


COMPARED = "obj-y += x.o\nelse\nobj-y += z.o\nendif\n"


@pytest.mark.parametrize(
    ("test", "x", "z"),
    [
        ("ifdef CONFIG_T", "T", "!T"),
        ("ifeq ($(CONFIG_T),m)", "T=m", "!T=m"),
        ("ifeq ($(CONFIG_T),y)", "T=y", "!T=y"),
        ("ifneq ($(CONFIG_T),y)", "!T=y", "T=y"),
        ("ifeq ($(CONFIG_T),)", "!T", "T"),
        ('ifeq "$(CONFIG_T)" "m"', "T=m", "!T=m"),
        ("ifeq (m,$(CONFIG_T))", "T=m", "!T=m"),
        ("ifeq ($(CONFIG_B),y)", "B", "!B"),
        ("ifeq ($(CONFIG_B)$(CONFIG_C),yy)", "B && C", "!(B && C)"),
        ("ifneq ($(CONFIG_B)$(CONFIG_T),)", "B || T", "!(B || T)"),
        ("ifeq ($(CONFIG_T),$(CONFIG_U))", "(T=y && U=y) || (T=m && U=m) || (!T && !U)", None),
        ("ifneq ($(filter y,$(CONFIG_T) $(CONFIG_U)),)", "T=y || U=y", "!(T=y || U=y)"),
        ("ifneq ($(filter m y,$(CONFIG_T)),)", "T", "!T"),
        ("ifneq ($(findstring m,$(CONFIG_T)),)", "T=m", "!T=m"),
        ("ifeq ($(subst m,y,$(CONFIG_T)),y)", "T", "!T"),
        ("ifneq ($(or $(CONFIG_B),$(and $(CONFIG_C),$(CONFIG_T))),)", "B || (C && T)", "!(B || (C && T))"),
        ("ifeq ($(CONFIG_N),4)", "?", "?"),
        ("ifeq ($(shell uname),Linux)", "?", "?"),
        ("ifneq ($(call cc-option,-x),)", "?", "?"),
        ("ifeq (something else", "?", "?"),
        ("ifdef nothing", None, "1"),
    ],
)
def test_a_condition_and_its_else(test: str, x: str | None, z: str | None) -> None:
    found = conditions(f"{test}\n{COMPARED}")
    assert found.get("a/x") == x
    if z is not None:
        assert found["a/z"] == z


def test_a_bool_is_never_m() -> None:
    found = conditions("ifeq ($(CONFIG_B),m)\n" + COMPARED)
    assert found == {"a/z": "1"}


def test_else_followed_by_a_condition() -> None:
    found = conditions(
        "ifeq ($(CONFIG_T),y)\nobj-y += one.o\nelse ifeq ($(CONFIG_T),m)\nobj-y += two.o\n"
        "else ifdef CONFIG_B\nobj-y += three.o\nelse\nobj-y += four.o\nendif\nobj-y += five.o\n"
    )
    assert found == {"a/one": "T=y", "a/two": "T=m", "a/three": "!T && B", "a/four": "!T && !B", "a/five": "1"}


@pytest.mark.parametrize(
    ("line", "path", "condition"),
    [
        ("obj-$(subst m,y,$(CONFIG_T)) += x.o", "a/x", "T"),
        ("obj-$(and $(CONFIG_B),$(CONFIG_C)) += x.o", "a/x", "B && C"),
        ("obj-$(if $(CONFIG_T),y) += x.o", "a/x", "T"),
        ("obj-$(CONFIG_T:m=y) += x.o", "a/x", "T"),
        ("obj-$(or $(CONFIG_B),$(CONFIG_C)) += x.o", "a/x", "B || C"),
        ("obj-$(shell echo y) += x.o", "a/x", "?"),
        ("obj-y += $(foreach n,one two,x_$(n).o)", "a/x_two", "1"),
        ("obj-y += $(foreach n,one $(if $(CONFIG_B),two),x_$(n).o)", "a/x_two", "B"),
        ("l := p.o q.o\nobj-y += $(filter p.o,$(l))", "a/q", None),
        ("l := p.o q.o\nobj-y += $(filter-out p.o,$(l))", "a/p", None),
        ("l-$(CONFIG_B) := p.o\nobj-y += q.o $(filter-out $(l-y),p.o)", "a/p", "!B"),
        ("obj-y += $(addsuffix .o,$(basename x.c))", "a/x", "1"),
        ("obj-y += $(patsubst %.c,%.o,x.c)", "a/x", "1"),
        ("l = x.c\nobj-y += $(l:.c=.o)", "a/x", "1"),
        ("obj-y += $(notdir some/where/x.o)", "a/x", "1"),
        ("obj-y += $(firstword x.o p.o)", "a/p", None),
        ("obj-y += $(word 2,p.o x.o)", "a/x", "1"),
        ("obj-y += p.o\nobj-y := x.o", "a/p", None),
        ("obj-y += x.o\nifdef CONFIG_B\nobj-y := p.o\nendif", "a/x", "!B"),
        ("obj-y += $(late)\nlate := x.o", "a/x", None),  # obj-y is expanded at once
        ("l = $(late)\nlate := x.o\nobj-y += $(l)", "a/x", "1"),
        ("l ?= x.o\nl ?= p.o\nobj-y += $(l)", "a/p", None),
        ("define x\nobj-y += p.o\nendef\nobj-y += x.o", "a/p", None),
        ("all: y\n\tobj-y += p.o\nobj-y += x.o", "a/p", None),  # a recipe
        ("$(obj)/x.o: obj-y += p.o\nobj-y += x.o", "a/p", None),  # a variable of one target
        ("x-y := p.o\nobj-y += x.o", "a/x", None),  # a composite object has no source of its own
        ("lib-$(CONFIG_B) += x.o", "a/x", "B"),
        ("extra-y += x.o", "a/x", "1"),
        ("lib-y := $(patsubst %.o,%.stub.o,x.o)", "a/x", "1"),
        ("always-y += x.o\ntargets += x.o\nhostprogs := x\nccflags-y += x.o", "a/x", None),
    ],
)
def test_a_list_of_objects(line: str, path: str, condition: str | None) -> None:
    assert conditions(line + "\n").get(path) == condition


def test_what_cannot_be_known_casts_doubt_on_its_list() -> None:
    found = conditions("obj-$(CONFIG_B) += x.o\nobj-y += $(call some,thing)\nlib-y += z.o\n")
    assert found == {"a/x": "B || ?", "a/z": "1"}


def test_parts_of_a_module() -> None:
    makefile = (
        "obj-$(CONFIG_T) += x.o\nx-y := one.o\nx-$(CONFIG_B) += two.o\nx-$(CONFIG_U) += three.o\nx-objs += four.o\n"
    )
    found = {
        path: (str(one.builtin), str(one.module)) for path, one in compiled_files(tree(makefile).get, "x86").items()
    }
    assert found == {
        "a/one": ("T=y", "T=m"),
        "a/two": ("T=y && B", "T=m && B"),
        "a/three": ("T=y && U=y", "T=m && U"),  # x-m is no part of what is built in
        "a/four": ("T=y", "T=m"),
    }


def test_a_folder_that_is_reached_for_modules_builds_nothing_in() -> None:
    more = {"a/b/Makefile": "obj-y += x.o\nobj-$(CONFIG_U) += z.o\nlib-y += l.o\n"}
    found = compiled_files(tree("obj-$(CONFIG_T) += b/\n", **more).get, "x86")
    assert {path: (str(one.builtin), str(one.module)) for path, one in found.items()} == {
        "a/b/x": ("T=y", "0"), "a/b/z": ("T=y && U=y", "T && U=m"), "a/b/l": ("T", "0"),
    }  # fmt: skip


def test_an_object_in_both_lists_is_built_in() -> None:
    found = compiled_files(tree("obj-m += x.o\nobj-$(CONFIG_B) += x.o\n").get, "x86")["a/x"]
    assert (str(found.builtin), str(found.module)) == ("B", "!B")


def test_variables_of_included_files_and_of_the_architecture() -> None:
    more = {
        "Makefile": "export BITS\nexport CC\nlibs-y := lib/\ninclude $(srctree)/arch/$(SRCARCH)/Makefile\n",
        "arch/x86/Makefile": "ifeq ($(CONFIG_B),y)\n  BITS := 32\nelse\n  BITS := 64\nendif\n"
        "drivers-$(CONFIG_C) += arch/x86/pci/\nlibs-y += arch/x86/lib/\n",
        "arch/x86/pci/Makefile": "obj-y += bus_$(BITS).o\n",
        "arch/x86/lib/Makefile": "lib-y += copy_$(BITS).o\n",
        "lib/Makefile": "lib-y += s.o\n",
        "a/more": "l-$(CONFIG_T) := x.o\n",
    }
    found = conditions("include $(srctree)/$(src)/more\nobj-y += $(l-y) $(l-m)\nifeq ($(CC),gcc)\n" + COMPARED, **more)
    assert found == {
        "arch/x86/pci/bus_32": "C && B", "arch/x86/pci/bus_64": "C && !B",
        "arch/x86/lib/copy_32": "B", "arch/x86/lib/copy_64": "!B",
        "lib/s": "1", "a/x": "T || ?", "a/z": "?",
    }  # fmt: skip


def test_kinds_of_symbols() -> None:
    files = {"Kconfig": KCONFIG, "arch/x86/Kconfig": "menuconfig V\n\tdef_tristate y\n"}
    read = files.get
    assert kinds(read, "x86") == {
        "MODULES": Kind.BOOL, "B": Kind.BOOL, "C": Kind.BOOL, "T": Kind.TRISTATE, "U": Kind.TRISTATE, "N": Kind.OTHER,
        "V": Kind.TRISTATE,
    }  # fmt: skip
    assert tristates(read, "x86") == frozenset({"T", "U", "V"})
    assert tristates(lambda path: None, "x86") is None


PIECES = st.sampled_from(["$(CONFIG_T)", "$(CONFIG_U)", "$(CONFIG_B)", "y", "m", ""])


@given(PIECES, PIECES, st.sampled_from(["ifeq", "ifneq"]))
def test_both_branches_of_a_comparison_are_what_make_takes(left: str, right: str, keyword: str) -> None:
    found = file_conditions(tree(f"{keyword} ({left},{right})\n{COMPARED}").get, "x86")
    for t, u, b in itertools.product("ymn", "ymn", "yn"):
        values = {"CONFIG_T": t, "CONFIG_U": u, "CONFIG_B": b}
        enabled = {n[7:]: v for n, v in values.items() if v != "n"}
        sides = [
            values.get(side.strip("$()"), side).replace("n", "") if side.startswith("$") else side
            for side in (left, right)
        ]
        taken = (sides[0] == sides[1]) == (keyword == "ifeq")
        for name, expected in (("a/x", taken), ("a/z", not taken)):
            assert (name in found and truth(found[name], enabled)) == expected


@pytest.mark.lengthy
@pytest.mark.attack
@pytest.mark.parametrize(
    "makefile",
    [
        "l = $(l)\nobj-y += $(l)",
        "l = $(k)\nk = $(l)$(l)\nobj-y += $(l)",
        "".join(f"l{i} = $(l{i + 1})$(l{i + 1})$(l{i + 1})\n" for i in range(40)) + "obj-y += $(l0)",
        "obj-y += " + "$(if $(CONFIG_B)," * 300 + "x.o" + ")" * 300,
        "obj-" + "".join(f"$(CONFIG_S{i})" for i in range(60)) + " += x.o",
        "obj-y += $(word 99999999999999999999,x.o)",
        "ifdef X\n" * 5000 + "obj-y += x.o",
        "obj-y += ./ ../a/ b/../\ninclude $(srctree)/a/Makefile",
    ],
)
def test_a_makefile_that_would_not_end(makefile: str) -> None:
    compiled_files(tree(makefile + "\n").get, "x86")


def test_what_is_not_known_says_neither_yes_nor_no() -> None:
    condition = file_conditions(tree("ifeq ($(shell x),y)\n" + COMPARED).get, "x86")["a/x"]
    assert condition == UNKNOWN and truth(condition, {}) is None
