"""How commands end: one rule for all of them, `imago_cli.exits`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import imago_cli
from imago_cli import commands
from imago_cli.exits import CommandUsageError, Exit
from imago_cli.kubectl.main import PROGRAM, build
from imago_cli.line.declared import all_commands
from imago_cli.line.running import invoke
from imago_testing.processes.ports import free_port_block

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Done
    from tests.cli.tasks.conftest import Shell

ALL: Final = sorted(
    " ".join(path) for name in commands.COMMANDS for path, _ in all_commands(commands.build(name))
)
NOT_THERE: Final[dict[str, str]] = {
    "shard show": "7",
    "shard handover": "7",
    "shard elect": "7",
    "shard drain": "7",
    "shard undrain": "7",
    "shard drained": "7",
    "shard remove": "7",
    "topic alter": "nowhere --queues 3",
    "topic describe": "nowhere",
    "topic delete": "nowhere --yes",
    "topic move": "nowhere --from 0 --to 1",
    "topic spread": "nowhere --to 0,1",
    "group describe": "nobody",
    "group reset": "nobody nowhere --to latest --yes",
    "group mode": "nobody nowhere pop",
    "group pause": "nobody --yes",
    "group resume": "nobody",
    "group delete": "nobody --yes",
    "client kill": "nobody --yes",
    "user show": "nobody",
    "user describe": "nobody",
    "user password": "nobody --from-file {secret}",
    "user allow": "nobody topic:orders publish",
    "user deny": "nobody topic:orders publish",
    "user forget": "nobody topic:orders",
    "user token": "nobody",
    "user delete": "nobody --yes",
    "produce": "nowhere text",
    "request": "nowhere text",
    "consume": "nowhere",
    "message get": "0A",
    "message resend": "0A --yes",
    "message recall": "0A --yes",
    "message trace": "0A",
    "dlq show": "nobody",
    "dlq replay": "nobody --yes",
    "metaq skip": "nowhere nobody 0 --yes",
    "metaq show-offset": "nowhere nobody 0-0",
    "metaq progress": "nowhere nobody",
    "metaq open-partitions": "nowhere",
    "metaq transactions commit": "0A --yes",
    "metaq transactions rollback": "0A --yes",
    "metaq transactions forget": "0A",
    "backup show": "nothing",
    "backup delete": "nothing --yes",
}
"""What names something that no cluster here has."""
REACHES: Final[dict[str, str]] = {
    "cluster status": "",
    "cluster explain": "",
    "cluster top": "",
    "cluster report": "--file {folder}/report.tar.gz",
    "shard list": "",
    "topic list": "",
    "topic create": "fresh",
    "export": "",
    "group list": "",
    "client list": "",
    "message scheduled": "",
    "message half": "",
    "dlq list": "",
    "config get": "",
    "config set": "acknowledgement.timeout_ms=5000 --live",
    "user list": "",
    "user create": "ann",
    "user limits": "",
    "user limit": "user:ann producerBytesPerSecond=1000",
    "user export": "",
    "backup create": "",
    "bench": "",
    **NOT_THERE,
}
"""What asks a cluster."""


@pytest.mark.parametrize("command", ALL)
def test_an_option_that_there_is_not_is_wrong_usage(
    imago: Callable[..., Done], command: str
) -> None:
    if command == "spark":  # what follows is its application's: tests/cli/test_spark_applications
        return
    ended = imago(*command.split(), "--nosuch")
    assert (ended.returncode, ended.stdout) == (Exit.USAGE, "")
    assert ended.stderr.startswith("error: No such option: --nosuch")
    assert f"\n  cure: imago {command} --help\n" in ended.stderr


@pytest.mark.parametrize("path", [" ".join(path) for path, _ in all_commands(build())])
def test_a_plugins_option_that_there_is_not_is_wrong_usage(path: str) -> None:
    with pytest.raises(CommandUsageError, match="No such option: --nosuch") as ended:
        invoke(build(), PROGRAM, [*path.split(), "--nosuch"])
    assert ended.value.cure == f"{PROGRAM} {path} --help"


@pytest.mark.parametrize("command", REACHES)
def test_where_nobody_answers_a_command_fails(
    imago: Callable[..., Done], command: str, tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{free_port_block(1)}"
    ended = imago(
        *command.split(),
        *_words(REACHES[command], tmp_path),
        IMAGO_BOOTSTRAP=nobody,
        IMAGO_ADMIN=f"http://{nobody}",
        IMAGO_METAQ=nobody,
    )
    assert ended.returncode == Exit.FAILED, ended
    assert re.search(r"^error: .+\n  cure: .+", ended.stderr, re.MULTILINE), ended


@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.parametrize("command", NOT_THERE)
def test_what_is_not_there_is_no_wrong_usage(shell: Shell, command: str, tmp_path: Path) -> None:
    metaq = shell.cluster.brokers[0]["metaq"]
    ended = shell.run(*command.split(), *_words(NOT_THERE[command], tmp_path), IMAGO_METAQ=metaq)
    assert ended.returncode == Exit.FAILED, ended
    assert re.search(r"^error: .+\n  cure: .+", ended.stderr, re.MULTILINE), ended


def test_every_error_of_a_command_says_what_to_do() -> None:
    """One of wrong usage names the command's help where nothing else does."""
    silent = [
        f"{path.name}:{node.lineno}"
        for path in Path(imago_cli.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "CommandError"
        and "cure" not in {one.arg for one in node.keywords}
    ]
    assert silent == []


def _words(line: str, folder: Path) -> list[str]:
    secret = folder / "secret"
    secret.write_text("long enough, is it not\n")
    secret.chmod(0o600)
    return line.format(folder=folder, secret=secret).split()
