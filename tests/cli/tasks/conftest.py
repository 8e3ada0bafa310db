"""A cluster of two shards for everyday tasks, and a command line that reaches it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Done

PORTS = 40


@dataclass(frozen=True, slots=True)
class TwoShards:
    """A running cluster; its brokers are not started again when they die."""

    running: Up

    @property
    def brokers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.running.ready["brokers"]
        return found

    @property
    def environment(self) -> dict[str, str]:
        """What a shell exports to reach it, by its first broker."""
        return {
            "IMAGO_BOOTSTRAP": self.running.ready["namesrv"],
            "IMAGO_ADMIN": self.brokers[0]["admin"],
        }


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands against the cluster."""

    command: Callable[..., Done]
    cluster: TwoShards

    def run(self, *arguments: object, **environment: str) -> Done:
        return self.command(*arguments, **(self.cluster.environment | environment))

    def done(self, *arguments: object) -> str:
        """Run a command that has to work out; return what it printed."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, (arguments, ended)
        return ended.stdout

    def json(self, *arguments: object) -> Any:
        """Return what a command prints as JSON, a list where it prints several lines."""
        lines = [json.loads(line) for line in self.done(*arguments, "--json").splitlines()]
        return lines[0] if len(lines) == 1 else lines


@pytest.fixture(scope="module")
def two_shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoShards]:
    base = free_port_block(PORTS)
    options = ["--shards", "2", "--port-base", str(base), "--no-restart"]
    options += ["--set", "zookeeper.session_timeout_ms=2000"]
    with up(tmp_path_factory.mktemp("two") / "data", *options) as running:
        yield TwoShards(running)


@pytest.fixture
def shell(imago: Callable[..., Done], two_shards: TwoShards) -> Shell:
    return Shell(imago, two_shards)
