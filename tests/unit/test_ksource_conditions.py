# SPDX-License-Identifier: Apache-2.0
"""Conditions: expressions, the stack of preprocessor conditions, blocks of IS_ENABLED."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vmtailor.analysis.ksource import expr
from vmtailor.analysis.ksource.conditions import enabled_blocks, line_conditions
from vmtailor.analysis.ksource.expr import FALSE, TRUE, UNKNOWN, Equals, Expr, Symbol, asked_for, holds, truth
from vmtailor.analysis.ksource.expr_text import from_preprocessor, parse

CASES = [
    ("defined(CONFIG_A)", "A"),
    ("defined CONFIG_A", "A"),
    ("IS_ENABLED(CONFIG_A) && !IS_BUILTIN(CONFIG_B)", "A && !B=y"),
    ("IS_REACHABLE(CONFIG_A) || defined(CONFIG_B_MODULE)", "A=y || (A=m && ?) || B=m"),
    ("IS_ENABLED(CONFIG_A) && !IS_MODULE(CONFIG_A)", "A=y"),
    ("defined(CONFIG_A) || defined(CONFIG_A_MODULE)", "A"),
    ("defined(CONFIG_A) && (defined(CONFIG_B) || defined(CONFIG_C))", "A && (B || C)"),
    ("!(defined(CONFIG_A) || defined(CONFIG_B))", "!(A || B)"),
    ("defined(CONFIG_A) && defined(__KERNEL__)", "A && ?"),
    ("!(defined(CONFIG_A) && defined(__KERNEL__))", "!(A && ?)"),
    ("defined(CONFIG_A) || defined(__KERNEL__)", "A || ?"),
    ("0", "0"),
    ("1", "1"),
    ("CONFIG_A > 3", "?"),
    ("CONFIG_A > 3 && defined(CONFIG_B)", "B && ?"),
    ("GCC_VERSION >= VERSION(4, 5) && defined(CONFIG_B)", "B && ?"),
    ("(defined(CONFIG_A)", "A"),
    ("", "?"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_preprocessor_expressions(text: str, expected: str) -> None:
    assert str(from_preprocessor(text)) == expected


def test_simplification() -> None:
    a, b = Symbol("A"), Symbol("B")
    assert expr.disjunction(a, expr.conjunction(a, b)) == a
    assert expr.disjunction(a, expr.negation(a)) == TRUE
    assert expr.conjunction(a, TRUE) == a
    assert expr.needed(expr.conjunction(a, UNKNOWN)) == a
    assert expr.conjunction(a, FALSE) == FALSE
    assert expr.negation(expr.negation(a)) == a
    assert expr.negation(UNKNOWN) == UNKNOWN


NAMES = ["A", "B", "9P", "D"]
ATOMS: list[Expr] = [*map(Symbol, NAMES), Equals("A", "y"), Equals("A", "m"), Equals("9P", "y")]
#: The same before anything is simplified: an atom, ("!", one), ("&&", …) or ("||", …).
plain: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([*ATOMS, UNKNOWN, TRUE, FALSE]),
    lambda inner: st.one_of(
        inner.map(lambda one: ("!", one)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: ("&&", *parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: ("||", *parts)),
    ),
    max_leaves=10,
)
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        inner.map(expr.negation),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: expr.conjunction(*parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: expr.disjunction(*parts)),
    ),
    max_leaves=8,
)


def simplified(one: Any) -> Expr:
    if not isinstance(one, tuple):
        return cast(Expr, one)
    parts = [simplified(part) for part in one[1:]]
    if one[0] == "!":
        return expr.negation(parts[0])
    return expr.conjunction(*parts) if one[0] == "&&" else expr.disjunction(*parts)


def plainly(one: Any, values: dict[str, str]) -> bool | None:
    """Kleene's logic, as it is defined."""
    if not isinstance(one, tuple):
        return truth(one, values)
    parts = [plainly(part, values) for part in one[1:]]
    if one[0] == "!":
        return None if parts[0] is None else not parts[0]
    decides = one[0] == "||"
    return decides if decides in parts else None if None in parts else not decides


@given(plain)
@settings(max_examples=300)
def test_simplifying_changes_no_value(one: Any) -> None:
    result = simplified(one)
    for states in itertools.product("ymn", repeat=len(NAMES)):
        values = {name: state for name, state in zip(NAMES, states, strict=True) if state != "n"}
        expected, found = plainly(one, values), truth(result, values)
        assert found == expected or expected is None, f"{result} under {values}"


@given(expressions)
def test_text_is_read_back(expression: Expr) -> None:
    again = parse(str(expression))
    for states in itertools.product("ymn", repeat=len(NAMES)):
        enabled = {name: state for name, state in zip(NAMES, states, strict=True) if state != "n"}
        assert holds(again, enabled) == holds(expression, enabled)


@given(expressions, st.sets(st.sampled_from(NAMES)))
@example(parse("!(B && !A)"), {"B"})
def test_what_is_asked_for_is_enough_and_no_more(expression: Expr, enabled: set[str]) -> None:
    asked = set(asked_for(expression, enabled))
    if holds(expression, enabled & expr.symbols(expression)):
        assert asked <= enabled
    if asked:
        assert holds(expression, asked)
        assert not any(holds(expression, asked - {name}) for name in asked)


@given(st.text(alphabet="()!&|<>=,. \tdefinedCONFIG_ABISENL019?:+-\\/*\"'"))
def test_any_text_gives_some_condition(text: str) -> None:
    assert isinstance(from_preprocessor(text), expr.Constant | expr.Symbol | expr.Not | expr.And | expr.Or)


SOURCE = """\
#ifndef GUARD_H
#define GUARD_H
int always;
#ifdef CONFIG_A
int a;
# if defined(CONFIG_B) && \\
     !defined(CONFIG_C)
int a_and_b;
# elif defined(CONFIG_D)
int a_and_d;
# else
int a_else;
# endif
#else /* !CONFIG_A */
int not_a; // #endif
char *s = "/* no comment"; /* #endif
#endif in a comment */
#endif
#if 0
int never;
#endif
#ifdef __cplusplus
int cpp;
#endif
#endif
"""


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("int always", "?"),
        ("int a;", "A"),
        ("int a_and_b", "A && B && !C"),
        ("int a_and_d", "A && !(B && !C) && D"),
        ("int a_else", "A && !(B && !C) && !D"),
        ("int not_a", "!A"),
        ("char *s", "!A"),
        ("int never", "0"),
        ("int cpp", "?"),
    ],
)
def test_the_whole_stack_counts(marker: str, expected: str) -> None:
    line = next(n for n, text in enumerate(SOURCE.split("\n"), 1) if text.startswith(marker))
    assert str(line_conditions(SOURCE).at(line)) == expected


def test_lines_before_and_after_any_condition_are_free() -> None:
    found = line_conditions("a\n#ifdef CONFIG_X\nb\n#endif\nc\n")
    assert [str(found.at(n)) for n in (1, 3, 5, 99)] == ["1", "X", "1", "1"]


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("#ifdef CONFIG_T", "T=y"),
        ("#ifndef CONFIG_T", "!T=y"),
        ("#ifdef CONFIG_T_MODULE", "T=m"),
        ("#if IS_ENABLED(CONFIG_T)", "T"),
        ("#if IS_BUILTIN(CONFIG_T)", "T=y"),
        ("#if IS_MODULE(CONFIG_T)", "T=m"),
        ("#if IS_MODULE(CONFIG_B)", "0"),
        ("#ifdef CONFIG_B", "B"),
        ("#if IS_BUILTIN(CONFIG_B)", "B"),
    ],
)
def test_a_macro_of_a_symbol_that_may_be_a_module(directive: str, expected: str) -> None:
    assert str(line_conditions(f"{directive}\nhere\n#endif\n", frozenset({"T"})).at(2)) == expected


def test_the_else_of_what_is_not_known_rules_nothing_out() -> None:
    found = line_conditions("#if defined(CONFIG_A) && OTHER > 3\none\n#else\ntwo\n#endif\n")
    assert str(found.at(2)) == "A" and truth(found.at(4), {"A"}) is None


def test_symbols_are_asked_for_with_their_values() -> None:
    condition = parse("NET && (IPV6=m || (IPV6=y && TUNNEL))")
    assert asked_for(condition, {"NET": "y", "IPV6": "m"}) == ("NET", "IPV6")
    assert asked_for(condition, {"NET": "y", "IPV6": "y", "TUNNEL": "y"}) == ("NET", "IPV6", "TUNNEL")


def test_symbols_keep_the_order_in_which_they_were_asked_for() -> None:
    folder, line = parse("SMP || DEBUG"), parse("PARAVIRT && SMP")
    assert str(expr.conjunction(folder, line)) == "SMP && PARAVIRT"


def test_what_must_not_be_set_is_not_asked_for() -> None:
    assert asked_for(parse("KASAN && !X86_32"), {}) == ("KASAN",)


LINES = ["#if defined(CONFIG_A)", "#ifdef CONFIG_B", "#ifndef CONFIG_A", "#else", "#elif CONFIG_C", "#endif", "x"]


@given(st.lists(st.sampled_from([*LINES, "/*", "*/", '"', "\\"])))
def test_unbalanced_files_do_no_harm(lines: list[str]) -> None:
    found = line_conditions("\n".join(lines))
    assert found.starts == sorted(found.starts)
    for number in range(1, len(lines) + 2):
        found.at(number)


@given(st.lists(st.sampled_from(["A", "B", "C"]), max_size=5))
def test_nested_conditions_add_up_and_end(names: list[str]) -> None:
    text = "\n".join([*(f"#ifdef CONFIG_{n}" for n in names), "here", *("#endif" for _ in names), "after"])
    found = line_conditions(text)
    assert expr.symbols(found.at(len(names) + 1)) == frozenset(names)
    assert found.at(2 * len(names) + 2) == TRUE


def test_blocks_of_is_enabled() -> None:
    text = "int f(void)\n{\n\tif (IS_ENABLED(CONFIG_A) && x) {\n\t\tfoo();\n\t\tif (y) {\n\t\t}\n\t}\n\tbar();\n}\n"
    assert [(a, b, str(c)) for a, b, c in enabled_blocks(text)] == [(4, 6, "A")]


def test_a_block_ends_where_its_else_begins() -> None:
    text = (
        "{\n\tif (IS_ENABLED(CONFIG_A)) {\n\t\ta();\n\t} else if (IS_ENABLED(CONFIG_B)) {\n\t\tb();\n"
        "\t} else {\n\t\tc();\n\t}\n\td();\n}\n"
    )
    assert [(a, b, str(c)) for a, b, c in enabled_blocks(text)] == [(3, 3, "A"), (5, 5, "B")]


@given(st.text(alphabet="if(IS_ENABLED(CONFIG_A)){}\n \"'/*"))
def test_blocks_never_fail(text: str) -> None:
    for first, last, _ in enabled_blocks(text):
        assert first <= last + 1
