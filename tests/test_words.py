"""Guard of the words: what has a standard name in the field is called nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
FORMER = {
    "untaken": "write backlog",
    "duty|duties": "effect, effect executor",
    "desks?": "peer handlers",
    "wish(?:e[sd])?": "desired state, request",
    "deaf": "stalled reader",
    "has told nothing": "has not reported",
    "stop to append": "stop appending",
    "what there is none of": "what is absent",
    "whoever reaches": "anyone who reaches",
    "whoever shows": "every client without",
    "whoever wrote it": "from any writer",
    "how they stand": "their use",
    "what stands here": "what is set here",
    "is told the end": "receives the end",
    "duration of looks": "duration of reconciliations",
    "is not looked at": "is ignored",
    "short ways?": "fast path",
    "careful ways?": "slow path",
}
"""By pattern: the word that ARCHITECTURE's vocabulary has for it."""
IN_THE_BROKER = {"anew": "again"}
"""The same, of what is in the broker, its store and its codecs."""
FORMER_IN_BROKER = {
    "anew": "again",
}
"""Of the broker, its store and its codecs alone."""
BROKER = ("broker/src/imago_broker/", "broker/src/imago_log/", "broker/src/imago_wire/")
KEPT = {
    ("broker/src/imago_broker/replication/failures.py", "duty"): "a key of a file's format",
    ("tests/broker/replication/damage/test_stuck.py", "duty"): "the same key",
    ("broker/src/imago_broker/app/member/role_services.py", "anew"): "an event of the log",
    ("broker/src/imago_broker/features/pop/service.py", "anew"): "an event of the log",
    ("broker/src/imago_log/views/metaq/materialiser.py", "anew"): "an event of the log",
}
HISTORY = ("CHANGELOG.md", "docs/adr/", "tests/test_words.py")
"""What was said then stays."""


def test_former_words_are_gone() -> None:
    assert found(FORMER) - KEPT.keys() == set(), "say it in the words of ARCHITECTURE.md"


def test_former_words_are_gone_from_the_broker() -> None:
    assert found(FORMER_IN_BROKER, BROKER) - KEPT.keys() == set()


def found(words: Iterable[str], below: str | tuple[str, ...] = "") -> set[tuple[str, str]]:
    """Return where these are, and as what."""
    pattern = re.compile(rf"(?i)(?<![a-z])(?:{'|'.join(words)})(?![a-z])")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "*.py", "*.pyx", "*.pxi", "*.md", "*.toml", "*.yaml"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {
        (name, match.group().lower())
        for name in listing.stdout.split("\0")
        if name.startswith(below) and not name.startswith(HISTORY) and (ROOT / name).is_file()
        for match in pattern.finditer((ROOT / name).read_text())
    }
