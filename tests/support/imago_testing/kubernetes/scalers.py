"""The scalers of KEDA that a page shows: what they ask for is held against what brokers serve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parents[4] / "docs" / "operator.md"
BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def triggers() -> dict[str, dict[str, str]]:
    """Return the settings of each trigger on the page, by its type."""
    return {one["type"]: one["metadata"] for one in _triggers()}


def _triggers() -> Iterator[dict[str, Any]]:
    for text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        read = yaml.safe_load(text)
        yield from read if isinstance(read, list) else read.get("spec", {}).get("triggers", ())


def at(answer: Any, location: str) -> Any:
    """Return what a dotted path of names and places leads to."""
    for step in location.split("."):
        answer = answer[int(step)] if isinstance(answer, list) else answer[step]
    return answer
