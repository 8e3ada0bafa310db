"""Programs that use RocketMQ 5's SDKs, each in its own language: told stories, or steady work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_testing.java.toolchain import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def ran(*command: str | Path, cwd: Path, **environment: str) -> Any:
    """Run a program to its end; return the JSON of its last line."""
    if shutil.which(command[0]) is None:
        raise ToolMissingError(f"{command[0]} is not on the PATH: install Go, and Node with npm")
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1] if done.stdout else "{}")


@dataclass(frozen=True)
class SdkProgram:
    """A program that tells stories by one SDK."""

    command: tuple[str | Path, ...]
    home: Path
    environment: Mapping[str, str]

    def __call__(self, *words: str, **more: str) -> Any:
        """Tell a story to its end. The fifth word is a password: command lines have none, as
        everybody on a machine may read them."""
        secret = {"SDK_PASSWORD": words[4]} if words[4:] else {}
        environment = {**self.environment, **secret, **more}
        return ran(*self.command, *words[:4], cwd=self.home, **environment)


class SteadySdk:
    """A program that sends and receives until it is told to stop."""

    def __init__(self, program: SdkProgram, endpoints: str, topic: str) -> None:
        # What it prints of each fault is its own way to say so.
        with (program.home / "faults.txt").open("wb") as faults:
            self._process = subprocess.Popen(
                [*program.command, "steady", endpoints, topic],
                cwd=program.home,
                env={**os.environ, **program.environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=faults,
                text=True,
            )

    def goes_on(self, sends: int) -> None:
        """Wait until so many more sends were acknowledged, twenty a line."""
        assert self._process.stdout is not None
        for _ in range(sends // 20):
            assert self._process.stdout.readline(), "it has ended"

    def ended(self) -> Any:
        """Have it read what is left; return what it says."""
        out, _ = self._process.communicate(timeout=300)
        assert self._process.returncode == 0
        return json.loads(out.splitlines()[-1])
