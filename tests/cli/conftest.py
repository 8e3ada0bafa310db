"""What tests of the command share."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from imago_cli.main import main
from imago_testing.processes.zookeeper import RunningZooKeeper, running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def imago(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Run the command in this process: imago("config", "show", IMAGO__METAQ__PORT="1").

    What the command changes in its process is put back.
    """

    def run(*arguments: object, **environment: str) -> Done:
        capsys.readouterr()
        mask, before = os.umask(0o022), dict(os.environ)
        os.umask(mask)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["imago", *map(str, arguments)])
            for name, value in {"COLUMNS": "200", "TERM": "dumb", **environment}.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        os.umask(mask)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
