"""Texts of settings and rules have limits; small ones here, so that each is crossed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.config import ConfigError, cron, key_rules, load, units
from imago_broker.config.metaq import metaq_expression
from imago_broker.config.metaq.metaq_ini import SQL
from imago_broker.core.metaq import metaq_filters
from imago_broker.core.sql92.errors import FilterError
from imago_broker.model.access import white_addresses

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FILTER = f"{SQL}a = 1"


def fits(make: Callable[[], object]) -> bool:
    """Whether a text is taken."""
    try:
        return make() not in (None, False)
    except (ConfigError, cron.CronError, FilterError):
        return False


@pytest.mark.parametrize(
    ("module", "limit", "small", "make"),
    [
        (cron, "LENGTH_MAX", 11, lambda n: cron.Cron.parse("0 0 6 * * ?" + " " * n)),
        (
            metaq_expression,
            "LENGTH_MAX",
            3,
            lambda n: metaq_expression.evaluate("k", "111" + "1" * n),
        ),
        (
            metaq_expression,
            "DEPTH_MAX",
            3,
            lambda n: metaq_expression.evaluate("k", "(" * (3 + n) + "1" + ")" * (3 + n)),
        ),
        (
            units,
            "_LENGTH_MAX",
            3,
            lambda n: units.measured("sync_interval_ms", "15" + "0" * n + "s"),
        ),
        (
            metaq_filters,
            "EXPRESSION_CHARS_MAX",
            len(FILTER),
            lambda n: metaq_filters.GroupFilter(FILTER + " " * n),
        ),
        (key_rules, "SHOWN_CHARS_MAX", 6, lambda n: load(f'broker.zone = "zone-{"a" * (n + 1)}"')),
        (
            white_addresses,
            "ENTRIES_MAX",
            3,
            lambda n: white_addresses.list_problem(["10.1.2.3"] * (3 + n)) is None,
        ),
        (
            white_addresses,
            "ENTRY_SIZE_MAX",
            8,
            lambda n: white_addresses.list_problem(["10.1.2.3" + "0" * n]) is None,
        ),
    ],
)
def test_a_text_that_is_too_long_is_none(
    module: ModuleType,
    limit: str,
    small: int,
    make: Callable[[int], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fits(lambda: make(1)), "by the limit as it is shipped"
    monkeypatch.setattr(module, limit, small)
    assert fits(lambda: make(0))
    assert not fits(lambda: make(1))
