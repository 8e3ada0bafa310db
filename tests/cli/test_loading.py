"""What a process of ours loads: hundreds of modules cost half a second, which not all need."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import imago_broker.app
import imago_cli.servers.namesrv
import imago_log

WHOLE_BROKER = {"imago_broker.app.broker", "imago_broker.processors.rocketmq.table"}
STORE = {"imago_log.store"}


def loaded(modules: list[str]) -> set[str]:
    """Return which modules a process has that imports these."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return set(json.loads(done.stdout))


def imported_when_it_runs() -> list[str]:
    """Return what the name service imports in its functions."""
    tree = ast.parse(Path(imago_cli.servers.namesrv.__file__).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    found = [
        each for one in functions for each in ast.walk(one) if isinstance(each, ast.ImportFrom)
    ]
    return [each.module for each in found if each.module]


def test_a_name_service_does_not_load_a_whole_broker() -> None:
    modules = imported_when_it_runs()
    assert "imago_broker.namesrv.server" in modules
    assert loaded(["imago_cli.servers.namesrv", *modules]) & (WHOLE_BROKER | STORE) == set()


def test_imago_up_loads_no_broker_and_no_store() -> None:
    assert loaded(["imago_cli.up.command"]) & (WHOLE_BROKER | STORE) == set()


@pytest.mark.parametrize("package", [imago_log, imago_broker.app], ids=lambda each: each.__name__)
def test_every_name_of_a_package_is_found_when_it_is_used(package: object) -> None:
    names = list(package.__all__)  # type: ignore[attr-defined]
    assert len(names) == len({id(getattr(package, name)) for name in names})
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing  # type: ignore[attr-defined]


def modules_of(*arguments: str) -> set[str]:
    """Return what a command line has loaded by its end."""
    program = (
        f"import json, sys; sys.argv = {['imago', *arguments]!r}\nfrom imago_cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_version_is_told_without_a_command_line_library() -> None:
    unneeded = {"inspect", "imago_cli.line", "orjson", "rich", "asyncio", "imago_broker"}
    assert modules_of("--version") & unneeded == set()


NOBODYS = {"typer", "click", "pydantic", "rich.console", "imago_broker.config.loading", "uvloop"}
"""What no command loads that only asks a cluster."""
CLIENT = {"asyncio", "ssl", "imago_broker", "http.client", "tomllib", "importlib.metadata"}
RECORDS = {"imago_client.messages", "imago_wire.records", "imago_client.core.sending"}
ADMIN = {"asyncio", "imago_broker", "imago_client", "tomllib", "orjson", "importlib.metadata"}
_AT, _BY = ("--bootstrap", "127.0.0.1:1"), ("--admin", "http://127.0.0.1:1")
UNNEEDED = {
    "--help": ((), ADMIN | {"imago_wire", "inspect", "ssl"}),
    "topic list": (_AT, CLIENT | RECORDS),
    "topic describe orders": (_AT, CLIENT | RECORDS),
    "group list": (_AT, CLIENT | RECORDS),
    "produce orders x": (_AT, CLIENT | {"imago_wire.records"}),
    "consume orders": (_AT, CLIENT | RECORDS),
    "cluster status": (_BY, ADMIN),
    "shard list": (_BY, ADMIN),
    "config get": (_BY, ADMIN),
    "user list": (_BY, ADMIN),
    "client list": (_BY, ADMIN),
}
MODULES = {"--help": 100, "topic list": 200, "cluster status": 190, "produce orders x": 210}
"""How many a line loads at most, the standard library's too: half a millisecond each."""


@pytest.mark.parametrize("line", UNNEEDED)
def test_a_command_does_not_load_what_it_does_not_need(line: str) -> None:
    where, unneeded = UNNEEDED[line]
    found = modules_of(*line.split(), *where)
    assert found & (unneeded | NOBODYS) == set()
    assert len(found) <= MODULES.get(line, len(found))


BUILDING = {"imago_wire.records.record_twins", "imago_wire.remoting.scanning", "lz4", "zstandard"}
PARTS = {
    "producer": BUILDING | {"imago_wire.records", "imago_client.core.consuming"},
    "pull_consumer": BUILDING | {"imago_client.core.sending"},
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_client_does_not_load_the_others(part: str) -> None:
    found = loaded([f"imago_client.blocking.rocketmq.{one}" for one in ("admin", part)])
    assert found & (PARTS[part] | CLIENT) == set()
    found = loaded(["imago_client.rocketmq.client", f"imago_client.rocketmq.{part}"])
    assert found & (PARTS[part] | {"imago_client.rocketmq.push"}) == set()


def test_no_module_of_commands_loads_what_only_some_of_them_need() -> None:
    """What is imported at its head all commands of a module pay for."""
    program = (
        "import importlib, json, sys\nfrom imago_cli.commands import COMMANDS\n"
        "found = {}\n"
        "for name, row in COMMANDS.items():\n"
        "    before = set(sys.modules)\n"
        "    importlib.import_module(row.module)\n"
        "    found[name] = list(set(sys.modules) - before)\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    heavy = {"typer", "click", "pydantic", "rich", "kazoo", "aiohttp", "uvloop", "pyspark", "yaml"}
    found = {name: heavy & set(new) for name, new in json.loads(done.stdout).items()}
    assert {name: sorted(new) for name, new in found.items() if new} == {}


INTERRUPTED = """
import signal, sys

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Pressed())
from {package}.__main__ import main
main()
"""


@pytest.mark.parametrize("package", ["imago_cli", "imago_cli.kubectl"])
@pytest.mark.parametrize("module", ["imago_cli.exits", "imago_cli.line.declared"])
def test_ctrl_c_while_a_command_loads_ends_it_without_a_trace(package: str, module: str) -> None:
    program = INTERRUPTED.format(package=package, module=module)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
