"""Guard of the words: what has a standard name in the field is called nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

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
}
"""By pattern: the word that ARCHITECTURE's vocabulary has for it."""
KEPT = {
    ("broker/src/imago_broker/replication/failures.py", "duty"): "a key of a file's format",
    ("tests/broker/replication/damage/test_stuck.py", "duty"): "the same key",
}
HISTORY = ("CHANGELOG.md", "docs/adr/", "tests/test_words.py")
"""What was said then stays."""


def test_former_words_are_gone() -> None:
    pattern = re.compile(rf"(?i)(?<![a-z])(?:{'|'.join(FORMER)})(?![a-z])")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "*.py", "*.pyx", "*.pxi", "*.md", "*.toml", "*.yaml"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = {
        (name, match.group().lower())
        for name in listing.stdout.split("\0")
        if name and not name.startswith(HISTORY) and (ROOT / name).exists()
        for match in pattern.finditer((ROOT / name).read_text())
    }
    assert found - KEPT.keys() == set(), "say it in the words of ARCHITECTURE.md"
