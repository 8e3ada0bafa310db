"""What `imago group reset --to` takes for a place."""

from __future__ import annotations

import time

import pytest

from imago_cli.groups.reset import parse_place
from imago_cli.messages.places import EARLIEST, LATEST, PlaceKind, ReadPlace


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("-3", ReadPlace(PlaceKind.LAST, 3)),
        ("offset:7", ReadPlace(PlaceKind.OFFSET, 7)),
        ("1700000000000", ReadPlace(PlaceKind.TIME, 1_700_000_000_000)),
        ("2023-11-14T22:13:20", ReadPlace(PlaceKind.TIME, 1_700_000_000_000)),
        ("@2023-11-14T23:13:20+01:00", ReadPlace(PlaceKind.TIME, 1_700_000_000_000)),
    ],
)
def test_places_in_a_topic(text: str, target: ReadPlace) -> None:
    assert parse_place(text) == target


@pytest.mark.parametrize("text", ["-15m", "@-15m"])
def test_a_place_may_be_a_time_ago(text: str) -> None:
    ago = time.time() * 1000 - parse_place(text).number
    assert 890_000 < ago < 1_000_000
