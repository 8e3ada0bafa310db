"""Inputs that were tried are counted once, however often a run of the same seed is repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.fuzz.counting import record, refuse_again

if TYPE_CHECKING:
    from pathlib import Path


def test_a_seed_is_counted_once_for_each_target(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.json"
    refuse_again(path, 7, ["a"])
    assert record(path, seed=7, inputs={"a": 5, "b": 6}, seconds=1) == 11
    refuse_again(path, 7, ["c"])
    refuse_again(path, 8, ["a", "b"])
    with pytest.raises(SystemExit, match="seed 7 of b already"):
        refuse_again(path, 7, ["c", "b"])
    assert record(path, seed=8, inputs={"a": 1}, seconds=1) == 12
    assert [run["seed"] for run in json.loads(path.read_text())["runs"]] == [7, 8]
