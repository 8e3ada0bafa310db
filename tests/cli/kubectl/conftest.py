"""What tests of the plugin share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from imago_testing.kubernetes import fake_kubectl
from imago_testing.kubernetes.plugin import Kube

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kube(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kube:
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S {fake_kubectl.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(program))
    monkeypatch.setenv("FAKE_KUBECTL", str(tmp_path / "world.json"))
    return Kube(tmp_path / "world.json", capsys, monkeypatch)
