"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest

from imago_broker.config import ConfigError
from imago_broker.config.loading import from_tree, with_overrides
from imago_broker.config.units import measured


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention_ms", "1h", 3_600_000),
        ("retention.ms", "1h30m", 5_400_000),
        ("retention.ms", "1.5s", 1500),
        ("retention.ms", "7d", 604_800_000),
        ("retention.ms", "0.5ms", None),
        ("retention.ms", "1h later", None),
        ("retention.ms", "h", None),
        ("retention.ms", "-1h", None),
        ("retention.ms", "1" * 80 + "h", None),
        ("retention.ms", "3600000", None),
        ("retention.ms", "1GiB", None),
        ("drain_seconds", "2m", 120),
        ("drain_seconds", "1500ms", None),
        ("segment_bytes_max", "64MiB", 64 << 20),
        ("segment_bytes_max", "10GB", 10**10),
        ("segment_bytes_max", "1 KiB", 1024),
        ("segment_bytes_max", "1h", None),
        ("catch_up_bytes_per_second_max", "1MiB", None),
        ("port", "1h", None),
    ],
)
def test_settings_take_the_units_that_their_names_tell_of(
    name: str, text: str, number: int | None
) -> None:
    assert measured(name, text) == number


def test_settings_on_the_command_line_take_units() -> None:
    tree: dict[str, object] = {}
    with_overrides(
        tree,
        ["store.retention_ms=12h", "store.segment_bytes_max=64MiB", "broker.drain_seconds=20s"],
    )
    config = from_tree(tree)
    assert config.store.retention_ms == 12 * 3_600_000
    assert config.store.segment_bytes_max == 64 << 20
    assert config.broker.drain_seconds == 20.0
    tree = {}
    with_overrides(tree, ["topics.orders.retention_ms=1d"])
    assert tree == {"topics": {"orders": {"retention_ms": 86_400_000}}}
    with pytest.raises(ConfigError, match="'soon', must be a number, or a duration such as 90s"):
        with_overrides({}, ["store.retention_ms=soon"])
