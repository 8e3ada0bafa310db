"""A page with plots, made of values; without Spark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from imago_spark.pipelines.report.page import (
    HEIGHT,
    LEFT,
    WIDTH,
    Grid,
    Plot,
    number,
    page,
    svg,
    top_of,
)
from imago_spark.pipelines.report.reporting import Span, span_of

NAME = '<script>alert("1")</script> & more'


def test_a_page_is_whole_and_runs_nothing() -> None:
    plot = Plot(NAME, NAME, {NAME: [(0, 1.0), (60, 3.0)], "other": [(60, 2.0)]})
    text = page(NAME, {NAME: NAME}, [plot, Grid(NAME, (NAME,), [(NAME,), (12345,)])])
    assert "<script" not in text
    assert not re.search(r"\b(src|href|url|@import)\b", text), "nothing from elsewhere"
    assert text.count("&lt;script&gt;") == 11
    assert '<td class="n">12,345</td>' in text
    assert text.endswith("</body></html>\n")
    assert ElementTree.fromstring(text.partition(">")[2]).tag == "html"


def test_points_are_where_their_values_are() -> None:
    found = svg(Plot("p", "u", {"a": [(0, 0.0), (50, 20.0), (100, 10.0)]}))
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', found)
    places = [(float(x), float(y)) for x, y in points]
    assert [x for x, _ in places] == [LEFT, (LEFT + WIDTH) / 2, WIDTH]
    low, high, middle = (y for _, y in places)
    assert high < middle < low < HEIGHT
    assert middle == pytest.approx((high + low) / 2, abs=0.1)
    assert svg(Plot("p", "u", {})) == "<p>nothing to show</p>"
    assert 'cx="412.0"' in svg(Plot("p", "u", {"a": [(7, 1.0)]})), "one point is in the middle"


def test_axes_end_at_round_numbers() -> None:
    found = [top_of([one]) for one in (0, 0.003, 0.7, 1, 3, 19, 20, 51, 400_000)]
    assert found == [1.0, 0.005, 1.0, 1, 5, 20, 20, 100, 500_000]
    assert [number(one) for one in (0, 12.5, 9999, 12_345, 2e6, 3e9)] == [
        *("0", "12.5", "9999", "12.35 k", "2 M", "3 G"),
    ]


def test_a_span_ends_with_the_newest_message() -> None:
    assert span_of(0, 7200.5, 1) == Span(3630, 7230, 30)
    assert span_of(0, 86400 * 2, 24).step == 720
    # No more than there is: a minute is not shown as one point of a day.
    assert span_of(7140.5, 7200.5, 24) == Span(7140, 7201, 1)
