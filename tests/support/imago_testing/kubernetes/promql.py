"""What PromQL expressions ask for: metrics with the labels that they are chosen by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

METRIC: Final = re.compile(r"\b(imago_(?!dev_)[a-z0-9_]+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"')
GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
SAMPLE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? [^ ]+$")


def asked(expression: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each metric of ours with the labels it is selected by."""
    bare = GROUPED.sub("", expression)
    for name, matchers in METRIC.findall(bare):
        yield name, frozenset(MATCHER.findall(matchers))


def grouped_by(expression: str) -> frozenset[str]:
    """Return the labels by which an expression groups and matches."""
    lists = GROUPED.findall(expression)
    return frozenset(word.strip() for listed in lists for word in listed.split(",") if word.strip())


def is_balanced(expression: str) -> bool:
    """Whether every bracket is closed by its own kind."""
    pairs, opened = {")": "(", "]": "[", "}": "{"}, []
    for sign in re.sub(r'"[^"]*"', "", expression):
        if sign in pairs.values():
            opened.append(sign)
        elif sign in pairs and (not opened or opened.pop() != pairs[sign]):
            return False
    return not opened


def exposed(text: str) -> dict[str, set[str]]:
    """Return the metrics of a page for Prometheus with their labels; AssertionError on repeats."""
    found: dict[str, set[str]] = {}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    series = [line.rsplit(" ", 1)[0] for line in lines]
    assert len(series) == len(set(series)), "a series is there twice"
    for line in lines:
        matched = SAMPLE.match(line)
        assert matched, line
        found.setdefault(matched[1], set()).update(re.findall(r'(\w+)="', matched[2] or ""))
    return found
