"""The plugin of kubectl, run against a kubectl that answers what a test puts into it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.kubectl.main import main

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Kube:
    """What the fake kubectl answers from; `run` calls the plugin."""

    file: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    dry_run: list[dict[str, Any]] = field(default_factory=list)

    def run(self, *arguments: str) -> Done:
        world = {
            "objects": self.objects,
            "brokers": self.brokers,
            "refusals": self.refusals,
            "dryRun": self.dry_run,
            "logs": self.logs,
        }
        self.file.write_text(json.dumps(world))
        self.capture.readouterr()
        with self.patch.context() as patch:
            patch.setattr(sys, "argv", ["kubectl-imago", *arguments])
            patch.setenv("COLUMNS", "160")
            patch.setenv("TERM", "dumb")
            with pytest.raises(SystemExit) as ended:
                main()
        said = self.capture.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    def made(self) -> dict[str, Any]:
        """What `kubectl create` was given last."""
        made: dict[str, Any] = json.loads(self.file.with_name(self.file.name + ".made").read_text())
        return made

    def calls(self) -> list[list[str]]:
        """What kubectl was asked so far."""
        text = self.file.with_name(self.file.name + ".calls").read_text()
        return [json.loads(line) for line in text.splitlines()]
