"""Files that take nothing more: the system does not say which, so the command has to."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_cli.exits import CommandError
from imago_cli.line.declared import Command
from imago_cli.line.running import invoke
from imago_cli.main import run
from imago_cli.up import state
from imago_cli.up.plan import ClusterPlan

if TYPE_CHECKING:
    from pathlib import Path


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _full_disk() -> None:
    full()


def test_a_full_disk_is_not_told_as_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(lambda: invoke(Command(_full_disk), "imago", []))
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told == "error: a file cannot be written: No space left on device\n  cure: free space\n"


def test_imago_up_names_its_folder_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ClusterPlan(
        data=tmp_path, cluster="imago", shards=1, replicas=1, zookeeper="auto", port_base=None
    )
    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(CommandError) as refused, state.room(tmp_path):
        state.remember(plan)
    assert refused.value.message == f"--data {tmp_path}: No space left on device"
    assert "free space" in refused.value.cure
