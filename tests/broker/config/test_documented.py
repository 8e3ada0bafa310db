"""Settings on the pages are settings: each block of TOML is taken as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imago_broker.config import load

ROOT = Path(__file__).parents[3]
ELSEWHERE = {
    "pipelines.md": "tests/spark/test_documented.py",
    "mirror.md": "tests/mirror/test_documented.py",
}
"""Pages whose settings are no broker's, and what reads those."""
_BLOCK = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(match[1], id=f"{path.name}:{text.count(chr(10), 0, match.start(1)) + 1}")
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.name not in ELSEWHERE
    for text in [path.read_text(encoding="utf-8")]
    for match in _BLOCK.finditer(text)
]


def test_blocks_are_found() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", BLOCKS)
def test_settings_of_a_page_are_taken(block: str) -> None:
    load(block)
