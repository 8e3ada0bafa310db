"""SQL92 filters: the grammar, Java's types, three-valued logic, limits.

What original brokers make of the same expressions is in test_originals.py beside this.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.core.sql92 import tree
from imago_broker.core.sql92.errors import FilterError
from imago_broker.core.sql92.filters import FilterCache, PropertyFilter
from imago_broker.core.sql92.tokens import EXPRESSION_CHARS_MAX
from imago_broker.core.sql92.tree import DEPTH_MAX, OPERATIONS_MAX
from imago_testing.interop.sql92 import Expressions, property_string
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Mapping


def matches(expression: str, **properties: str) -> bool:
    return PropertyFilter(expression).matches(property_string(properties))


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a > 5", {}, False),
        ("a >= 5 AND a <= 7.5", {"a": "7"}, True),
        ("a >= 5 AND a <= 7.5", {"a": "7.0"}, False),  # no Integer
        ("a BETWEEN 5 AND 7", {"a": "7"}, True),
        ("a between 5 and 7", {"a": "8"}, False),
        ("a NOT BETWEEN 5 AND 7", {"a": "8"}, True),
        ("a NOT BETWEEN 5 AND 7", {}, False),
        ("a = 'x'", {"a": "x"}, True),
        ("a <> 'x'", {"a": "y"}, True),
        ("a <> 'x'", {}, False),
        ("'x' <> a", {}, True),  # as in RocketMQ: a value is not NULL, NULL is not a value
        ("a = 5", {"a": "5"}, True),
        ("a = 5", {"a": "5.0"}, False),  # compared with an Integer, it has to be one
        ("a = 5.0", {"a": "5"}, True),
        ("a > 5", {"a": "5000000000"}, False),  # more than an Integer holds
        ("a > 5000000000", {"a": "5000000001"}, True),
        ("a = TRUE", {"a": "True"}, True),
        ("a <> TRUE", {"a": "no"}, True),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x', 'y')", {"a": "z"}, True),
        ("a NOT IN ('x', 'y')", {}, False),
        ("a IS NULL", {}, True),
        ("a IS NULL", {"a": "1"}, False),
        ("a IS NOT NULL", {"a": "1"}, True),
        ("NOT (a = 1)", {"a": "2"}, True),
        ("NOT (a = 1)", {}, False),
        ("a = 1 OR b = 2", {"b": "2"}, True),
        ("a = 1 AND b = 2", {"b": "2"}, False),
        ("a = 1 OR b = 2 AND c = 3", {"a": "1"}, True),
        ("(a = 1 OR b = 2) AND c = 3", {"a": "1"}, False),
        ("a > 5 OR b = 'x'", {"a": "six", "b": "x"}, False),  # what is no number ends it
        ("b = 'x' OR a > 5", {"a": "six", "b": "x"}, True),
        ("a CONTAINS 'ell'", {"a": "hello"}, True),
        ("a NOT CONTAINS 'ell'", {"a": "hello"}, False),
        ("a NOT CONTAINS 'ell'", {}, False),
        ("a STARTSWITH 'he'", {"a": "hello"}, True),
        ("a NOT STARTSWITH 'he'", {"a": "yellow"}, True),
        ("a ENDSWITH 'lo'", {"a": "hello"}, True),
        ("a NOT ENDSWITH 'lo'", {"a": "hello"}, False),
        ("a CONTAINS ''", {"a": "hello"}, False),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a = 'grün'", {"a": "grün"}, True),
        ("A = 1", {"a": "1"}, False),
        ("TAGS = 'paid' AND $x_1 >= -3", {"TAGS": "paid", "$x_1": "3"}, True),
        ("-a < 0", {"a": "3"}, False),  # minus a string is NULL
        ("TAGS = 'paid'", {"TAGS": "paid"}, True),
        ("a < .5", {"a": "0x1p-2"}, True),
        ("a < 1e1", {"a": " 9.5 "}, True),
        ("a /* the price */ > 5 -- in euros\n AND b = 1", {"a": "6", "b": "1"}, True),
        ("TRUE", {}, True),
        ("FALSE OR NOT FALSE", {}, True),
        ("a", {"a": "true"}, False),  # a string is not true
        ("a = b", {"a": "1", "b": "1"}, True),
        ("a < b", {"a": "9", "b": "10"}, True),
        ("a IS NULL", {"a": ""}, True),  # RocketMQ drops a property without a value
    ],
)
def test_expression_selects_what_it_says(
    expression: str, properties: dict[str, str], wanted: bool
) -> None:
    assert matches(expression, **properties) is wanted


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", 'Encountered "<EOF>" at line 1, column 1'),
        ("a >", 'Encountered "<EOF>" at line 1, column 4'),
        ("a LIKE 'x%'", 'Encountered "LIKE" at line 1, column 3'),
        ("a = 1 b", "Was expecting: the end of the expression"),
        ("a = 1\nAND = 2", 'Encountered "=" at line 2, column 5'),
        ("a == 1", 'Encountered "=" at line 1, column 4'),
        ("a = 'x", "Lexical error at line 1, column 5"),
        ("a # 1", "Lexical error at line 1, column 3. Encountered: '#'"),
        ("a IN (1)", "Was expecting: <STRING_LITERAL>"),
        ("a IN ()", "Was expecting: <STRING_LITERAL>"),
        ("5 IN ('5')", "Expected a property for In expression, got: 5"),
        ("a > 'x'", "Value ''x'' cannot be compared."),
        ("a > TRUE", "Value 'TRUE' cannot be compared."),
        ("(a = 1) > 5", "cannot be compared."),
        ("a = NULL", "'NULL' cannot be compared."),
        ("TRUE = 5", "'TRUE' cannot be compared with '5'"),
        ("5", "Expression will not result in a boolean value: 5"),
        ("'x' AND a = 1", "Expression will not result in a boolean value: 'x'"),
        ("a BETWEEN 7 AND 5", "left value(7) must less than or equal to right value(5)"),
        ("a BETWEEN NULL AND 5", "values can not be null"),
        ("a = 9223372036854775808", 'For input string: "9223372036854775808"'),
        ("a > 1e999", "is greater than"),
        ("a > 0.0", "is less than 4.9E-324"),
    ],
)
def test_what_is_no_filter_is_refused_with_the_place(expression: str, said: str) -> None:
    with pytest.raises(FilterError) as refused:
        PropertyFilter(expression)
    assert said in str(refused.value)


def test_size_depth_and_cost_of_an_expression_are_limited() -> None:
    longest = "a = '" + "x" * (EXPRESSION_CHARS_MAX - 6) + "'"
    assert matches(longest, a="x") is False
    with pytest.raises(FilterError, match="characters, at most"):
        PropertyFilter(longest + " ")
    nested = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    assert matches(nested, a="1")
    for deep in ("(" + nested + ")", "NOT " * 1000 + "a", "-" * 1000 + "a = 1"):
        with pytest.raises(FilterError, match="deep"):
            PropertyFilter(deep)
    with pytest.raises(FilterError, match="deep"):
        PropertyFilter("a" + " IS NULL" * (DEPTH_MAX + 1))
    many = " OR ".join(["a = 1"] * (OPERATIONS_MAX - 1))
    assert matches(many, a="1")
    with pytest.raises(FilterError, match="operations"):
        PropertyFilter(many + " OR a = 1 OR a = 1")


def test_property_is_read_where_it_stands() -> None:
    wanted = PropertyFilter("a = 'x'")
    assert wanted.matches(b"a\x01x")
    assert wanted.matches(b"a\x01x\x02")
    assert wanted.matches(b"ba\x01y\x02a\x01x")
    assert wanted.matches(b"a\x01y\x02a\x01x\x02")  # the last one counts
    assert wanted.matches(b"a\x01x\x02a\x01\x02")  # one without a value is none
    assert not wanted.matches(b"ba\x01x\x02")
    assert not wanted.matches(b"b\x01a\x01x\x02")
    assert not wanted.matches(b"")
    assert PropertyFilter("a = '\ufffd'").matches(b"a\x01\xff\x02")


def test_compiled_filters_are_kept_within_a_size() -> None:
    cache = FilterCache(chars_max=30)
    first = cache.get("a = 1")
    assert cache.get("a = 1") is first
    for n in range(2, 9):
        cache.get(f"a = {n}")
    assert len(cache) == 6
    assert cache.get("a = 1") is not first
    for _ in range(2):
        with pytest.raises(FilterError, match="Encountered"):
            cache.get("a = ")


# ---- against an evaluation of its own: over trees, exact fractions and dictionaries -----------
Tree = tuple[Any, ...]
NAMES = ("a", "b", "c")
WORDS = ("x", "yes", "true", "7", "-3", "2.5", "99999999999", "")
number = st.sampled_from(["0", "1", "7", "12", "4000000000", "2.5", "1e2"])
word = st.sampled_from(["x", "yes", "7", "it's"])
name = st.sampled_from(NAMES)
sign = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def predicates() -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.just("number"), name, sign, number),
        st.tuples(st.just("string"), name, st.sampled_from(["=", "<>"]), word),
        st.tuples(st.just("null"), name, st.booleans()),
        st.tuples(st.just("in"), name, st.lists(word, min_size=1, max_size=3), st.booleans()),
        st.tuples(
            st.sampled_from(["contains", "startswith", "endswith"]), name, word, st.booleans()
        ),
        st.tuples(st.just("between"), name, st.booleans()),
    )


trees: st.SearchStrategy[Tree] = st.recursive(
    predicates(),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=8,
)


def text_of(tree: Tree) -> str:  # noqa: C901  one form a line
    match tree:
        case ("not", inner):
            return f"NOT ({text_of(inner)})"
        case (("and" | "or") as joint, left, right):
            return f"({text_of(left)}) {joint} ({text_of(right)})"
        case ("number", left, by, right):
            return f"{left} {by} {right}"
        case ("string", left, by, right):
            return f"{left} {by} {quoted(right)}"
        case ("null", left, inverted):
            return f"{left} IS {'NOT ' if inverted else ''}NULL"
        case ("in", left, values, inverted):
            listed = ", ".join(map(quoted, values))
            return f"{left} {'NOT ' if inverted else ''}IN ({listed})"
        case ("between", left, inverted):
            return f"{left} {'NOT ' if inverted else ''}BETWEEN 1 AND 12"
        case (kind, left, right, inverted):
            return f"{left} {'NOT ' if inverted else ''}{kind} {quoted(right)}"
        case _:
            raise AssertionError(tree)


def quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


class NoNumberError(Exception):
    pass


def as_number(text: str, like: str) -> Fraction:
    """A property beside a literal: a whole literal wants a whole number of its own size."""
    whole = like.isdecimal()
    try:
        value = Fraction(int(text)) if whole else Fraction(float(text))
    except ValueError:
        raise NoNumberError from None
    size = 31 if whole and int(like) < 1 << 31 else 63
    if whole and not -(1 << size) <= value < 1 << size:
        raise NoNumberError
    return value


def value_of(tree: Tree, message: Mapping[str, str]) -> bool | None:
    match tree:
        case ("not", inner):
            value = value_of(inner, message)
            return None if value is None else not value
        case (("and" | "or") as joint, left, right):
            decides = joint == "or"
            one = value_of(left, message)
            if one is decides:
                return decides
            other = value_of(right, message)
            if other is decides:
                return decides
            return None if None in (one, other) else not decides
        case _:
            return predicate_of(tree, message)


def predicate_of(tree: Tree, message: Mapping[str, str]) -> bool | None:
    of_message = message.get(str(tree[1]))
    match tree:
        case ("null", _, inverted):
            return (of_message is None) is not inverted
        case (("contains" | "startswith" | "endswith") as kind, _, text, inverted):
            if of_message is None:
                return False
            at = of_message.find(str(text))
            last = of_message.rfind(str(text)) == len(of_message) - len(str(text))
            holds = {"contains": at >= 0, "startswith": at == 0, "endswith": at >= 0 and last}
            return holds[str(kind)] is not inverted
        case _:
            return None if of_message is None else comparison_of(tree, of_message)


def comparison_of(tree: Tree, of_message: str) -> bool:
    match tree:
        case ("string", _, by, text):
            return (of_message == text) is (by == "=")
        case ("in", _, values, inverted):
            return any(of_message == value for value in values) is not inverted
        case ("between", _, inverted):
            inside = 1 <= as_number(of_message, "1") <= 12
            return inside is not inverted
        case ("number", _, by, literal):
            one, other = as_number(of_message, str(literal)), Fraction(str(literal))
            known = {
                "=": one == other,
                "<>": one != other,
                "<": one < other,
                "<=": one <= other,
                ">": one > other,
                ">=": one >= other,
            }
            return known[str(by)]
        case _:
            raise AssertionError(tree)


@settings(max_examples=examples(1500))
@given(trees, st.dictionaries(name, st.sampled_from(WORDS[:-1]), max_size=3))
def test_filters_agree_with_an_evaluation_of_trees(tree: Tree, message: dict[str, str]) -> None:
    try:
        expected = value_of(tree, message) is True
    except NoNumberError:
        expected = False
    assert matches(text_of(tree), **message) is expected, text_of(tree)


@settings(max_examples=examples(500))
@given(st.text(max_size=60) | st.text("aA1.'()<>=-+,e \n/*NOTIS", max_size=60))
def test_any_text_is_a_filter_or_an_error(text: str) -> None:
    try:
        found = PropertyFilter(text)
    except FilterError:
        return
    assert found.matches(b"a\x011\x02") in (True, False)


def test_generated_expressions_never_break_the_evaluation() -> None:
    made = Expressions(7)
    good = 0
    for _ in range(examples(3000)):
        expression, properties = made.case()
        try:
            found = PropertyFilter(expression)
        except FilterError:
            continue
        good += 1
        found.matches(property_string(properties))
    assert good > examples(3000) // 3


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [("-0.0", "0.0"), ("1", "1.0000001"), ("Infinity", "NaN"), ("-Infinity", "-1e308")],
)
def test_doubles_have_javas_order(smaller: str, larger: str) -> None:
    assert matches("a < b", a=smaller, b=larger)
    assert not matches("b < a", a=smaller, b=larger)
    assert matches("a <= b AND b >= a", a=larger, b=larger)


@pytest.mark.parametrize("limit", range(1, 7))
def test_limits_are_met_exactly(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression as large as a limit is taken, one that is larger by one refused."""
    monkeypatch.setattr(tree, "OPERATIONS_MAX", limit)
    comparison = PropertyFilter("a = 1").cost - 1
    assert comparison == 1
    for count in range(2, 9):
        expression = " OR ".join(f"a = {number}" for number in range(count))
        if count + 1 > limit:  # the comparisons, and what joins them
            with pytest.raises(FilterError, match=f"more than {limit} operations"):
                PropertyFilter(expression)
        else:
            assert PropertyFilter(expression).matches(b"a\x010\x02")
    monkeypatch.setattr(tree, "OPERATIONS_MAX", 512)
    monkeypatch.setattr(tree, "DEPTH_MAX", limit)
    for depth in range(9):
        expression = "a" + " IS NULL" * depth + ("" if depth else " = 1")
        if max(depth, 1) > limit:
            with pytest.raises(FilterError, match=f"more than {limit} deep"):
                PropertyFilter(expression)
        else:
            PropertyFilter(expression)


def test_filters_are_kept_up_to_the_limit_and_the_newest_whatever_its_length() -> None:
    cache = FilterCache(chars_max=12)
    short = [cache.get(f"a = {number}") for number in (1, 2)]  # five characters each
    assert cache.get("a = 1") is short[0]
    cache.get("a = 3")
    assert len(cache) == 2
    assert cache.get("a = 1") is short[0], "used last but one"
    assert cache.get("a = 2") is not short[1]
    long = cache.get("a = 1000000 OR b = 2000000")
    assert len(cache) == 1
    assert cache.get("a = 1000000 OR b = 2000000") is long
    for _ in range(2):
        with pytest.raises(FilterError):
            cache.get("a =")
    assert len(cache) == 1, "what is none has its place too"
