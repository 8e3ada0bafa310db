"""The page on settings says what the settings are."""

from __future__ import annotations

from pathlib import Path

from imago_broker.config.reference import page

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_page_is_up_to_date() -> None:
    made = page()
    assert PAGE.read_text(encoding="utf-8") == made, (
        "docs/configuration.md: write it again with"
        " `python -c 'from imago_broker.config.reference import page; print(page(), end=\"\")'`"
    )
