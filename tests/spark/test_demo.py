"""`imago demo` as a stranger runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.full
def test_demo_agrees_and_leaves_the_landed_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "imago_cli", "demo", "--json", "--data", str(tmp_path / "d")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["ok"], told["problems"]) == (True, [])
    counts = [step["messages"] for step in told["steps"]]
    assert counts[0] + counts[1] == counts[2] == counts[3] == counts[4] >= 20_000
    assert all((tmp_path / path).is_file() for path in told["parquet"])
    assert not (tmp_path / "d" / "cluster").exists()
    page = Path(told["report"]).read_text()
    assert page.count("<svg") == 3
    assert f"<td>{counts[4]:,}</td>" in page
    assert "<th>differences to the topics</th><td>0</td>" in page
