"""How many inputs were run without a failure, kept by run in `bench/results/fuzz.json`."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]


def record(path: Path, *, seed: int, inputs: Mapping[str, int], seconds: float) -> int:
    """Add a run without a failure to the file; return how many inputs all its runs had."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several runs may end at the same time
        file.seek(0)
        kept: dict[str, Any] = json.loads(file.read() or '{"runs": []}')
        kept["runs"].append(
            {
                "commit": COMMIT,
                "seed": seed,
                "seconds": round(seconds),
                "inputs": dict(inputs),
            }
        )
        file.truncate(0)
        file.write(json.dumps(kept, indent=1) + "\n")
    return sum(sum(run["inputs"].values()) for run in kept["runs"])


def refuse_again(path: Path | None, seed: int, targets: Iterable[str]) -> None:
    """End the program where a run of the seed is counted already: its inputs are the same."""
    if path is None or not path.exists():
        return
    for run in json.loads(path.read_text() or '{"runs": []}')["runs"]:
        again = sorted(run["inputs"].keys() & set(targets))
        if run["seed"] == seed and again:
            raise SystemExit(
                f"{path} counts seed {seed} of {again[0]} already: take another --seed"
            )


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


COMMIT = _commit()
"""At the start of the program: what is tried is what was there then."""
