"""The settings of docs/mirror.md are taken as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imago_mirror.settings import read_settings

PAGE = Path(__file__).parents[2] / "docs" / "mirror.md"
BLOCKS = re.findall(
    r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("block", BLOCKS)
def test_settings_of_the_page_are_taken(block: str, tmp_path: Path) -> None:
    for secret in set(re.findall(r'_file = "(.+?)"', block)):
        (tmp_path / Path(secret).name).write_text("secret")
        block = block.replace(secret, str(tmp_path / Path(secret).name))
    assert read_settings(block).name
