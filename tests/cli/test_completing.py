"""Shells complete the names of topics, groups, shards and profiles, quickly or not at all."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from imago_cli import commands, completing
from imago_cli.completing import OF_COMMANDS, Named, complete, named_by
from imago_testing.processes.broker import broker_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Imago = Callable[..., Any]

NAMES = re.compile(r"(?:^|_)(topic|group|shard|profile)$")
"""How parameters are called that name one of those."""


def parameters() -> Iterator[tuple[str, Any]]:
    """Every command of the table with each of its parameters, as a shell asks them."""
    for name in commands.COMMANDS:
        root: Any = get_command(commands.build(name))
        complete(root)
        if name == "topic":
            yield from (("", param) for param in root.params)
        yield from _below(root.commands[name], name)


def _below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, f"{path} {name}")
    yield from ((path, param) for param in command.params)


def test_every_parameter_that_names_something_is_completed() -> None:
    seen = set()
    for path, param in parameters():
        seen.add((path, param.name))
        kind = named_by(path, param.name)
        found = NAMES.search(param.name)
        if found and (path, param.name) not in OF_COMMANDS:
            assert kind is Named(f"{found[1]}s"), (path, param.name)
        assert (getattr(param.shell_complete, "kind", None)) is kind, (path, param.name)
    assert OF_COMMANDS.keys() <= seen


def asked(line: str, **environment: str) -> dict[str, str]:
    """Return what a shell has in the environment then."""
    at = str(len(line.split(" ")) - 1)
    told = {"_IMAGO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": at}
    return told | environment


def completed(imago: Imago, line: str, **environment: str) -> list[str]:
    done = imago(**asked(line, **environment))
    assert done.stderr == ""
    return list(done.stdout.split())


@pytest.mark.processes
def test_names_come_from_the_cluster_of_the_line(
    imago: Imago, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "SECONDS_MAX", 60.0)
    with broker_process(tmp_path, {}) as broker:
        bootstrap, admin = f"127.0.0.1:{broker.namesrv}", f"http://127.0.0.1:{broker.admin}"
        for topic in ("orders", "orders-old", "bills"):
            assert imago("topic", "create", topic, "--bootstrap", bootstrap).returncode == 0
        reset = "group reset g1 orders --to earliest --create --yes --bootstrap"
        assert imago(*reset.split(), bootstrap).returncode == 0
        profile = tmp_path / "profiles.toml"
        text = {"bootstrap": bootstrap, "admin": admin}
        profile.write_text(
            "[here]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in text.items())
        )
        known = {"IMAGO_PROFILES": str(profile)}
        assert completed(imago, "imago --profile h", **known) == ["here"]
        assert completed(imago, "imago profile use ", **known) == ["here"]
        at = "imago --profile here"
        assert completed(imago, f"{at} topic describe ord", **known) == ["orders", "orders-old"]
        assert completed(imago, f"{at} client list --topic bi", **known) == ["bills"]
        assert completed(imago, f"{at} group describe ", **known) == ["g1"]
        assert completed(imago, f"{at} shard show ", **known) == ["shard-0"]
        assert completed(imago, f"imago group describe --bootstrap {bootstrap} g") == ["g1"]
        to = completed(imago, f"imago topic move orders --admin {admin} --to shard-7,s")
        assert to == ["shard-7,shard-0"]
        monkeypatch.setattr(completing, "ITEMS_MAX", 1)
        assert completed(imago, f"{at} topic describe ord", **known) == ["orders"]


@pytest.mark.parametrize("words", ["topic describe", "shard show", "topic move"])
def test_nothing_is_said_of_a_cluster_that_is_away(words: str) -> None:
    """In a process of its own: it ends at once where the time is up, whatever it does."""

    def said() -> tuple[str, str]:
        there = {"IMAGO_BOOTSTRAP": address, "IMAGO_ADMIN": f"http://{address}"}
        done = subprocess.run(
            [sys.executable, "-m", "imago_cli"],
            env=os.environ | asked(f"imago {words} ", **there),
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return done.stdout.strip(), done.stderr

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert said() == ("", "")
    assert said() == ("", ""), "refused"


def test_who_takes_too_long_ends_the_process() -> None:
    code = (
        "import time\n"
        "from imago_cli.completing import _silently\n"
        "with _silently(): time.sleep(1000)\n"
        "print('slept')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
