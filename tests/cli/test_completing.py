"""Shells complete the names of topics, groups, shards and profiles, quickly or not at all."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli import commands, names
from imago_cli.line.declared import all_commands
from imago_cli.names import OF_COMMANDS, Named, named_by
from imago_testing.processes.broker import broker_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Imago = Callable[..., Any]

NAMES = re.compile(r"(?:^|_)(topic|group|shard|profile)$")
"""How parameters are called that name one of those."""


def parameters() -> Iterator[tuple[str, str]]:
    """Every command of the table with the name of each of its parameters, as a shell asks them."""
    yield from (("", one.name) for one in commands.build("topic").parameters)
    for name in commands.COMMANDS:
        for path, command in all_commands(commands.build(name)):
            yield from ((" ".join(path), one.name) for one in command.parameters)


def test_every_parameter_that_names_something_is_completed() -> None:
    seen = {*parameters()}
    for path, name in seen - OF_COMMANDS.keys():
        if found := NAMES.search(name):
            assert named_by(path, name) is Named(f"{found[1]}s"), (path, name)
    assert OF_COMMANDS.keys() <= seen


def asked(line: str, **environment: str) -> dict[str, str]:
    """Return what a shell has in the environment then."""
    return {"_IMAGO_COMPLETE": "complete_bash", "COMP_LINE": line} | environment


def completed(imago: Imago, line: str, **environment: str) -> list[str]:
    done = imago(**asked(line, **environment))
    assert done.stderr == ""
    return list(done.stdout.split())


@pytest.mark.processes
def test_names_come_from_the_cluster_of_the_line(
    imago: Imago, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SECONDS_MAX", 60.0)
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
        monkeypatch.setattr(names, "ITEMS_MAX", 1)
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
        "from imago_cli.names import _silently\n"
        "with _silently(): time.sleep(1000)\n"
        "print('slept')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", ""), "1: look for no files"


OF_THE_LINE = {
    "imago to": ["topic"],
    "imago topic cr": ["create"],
    "imago topic create --que": ["--queues"],
    "imago topic create --queues 3 --que": [],
    "imago consume orders --protocol r": ["rocketmq"],
    "imago consume orders --protocol=m": ["--protocol=metaq"],
    "imago topic list -o y": ["yaml"],
    "imago topic list --queues 3 --js": [],
    "imago up --no-": ["--no-restart"],
    "imago up --in-b": [],
    "imago --prof": ["--profile"],
    "imago nothing ": [],
}


@pytest.mark.parametrize("line", OF_THE_LINE)
def test_commands_options_and_their_values_are_completed(imago: Imago, line: str) -> None:
    assert completed(imago, line) == OF_THE_LINE[line]
    by_line = imago(_IMAGO_COMPLETE="fish", COMP_LINE=line)
    assert [row.split("\t")[0] for row in by_line.stdout.splitlines()] == OF_THE_LINE[line]


def test_words_about_what_is_completed_go_to_shells_that_show_them(imago: Imago) -> None:
    about = "Create, change, list, move and delete topics."
    assert imago(_IMAGO_COMPLETE="fish", COMP_LINE="imago to").stdout == f"topic\t{about}\n"
    assert imago(_IMAGO_COMPLETE="zsh", COMP_LINE="imago to").stdout == f"topic:{about}\n"


def test_bash_completes_a_line_by_the_script_that_is_installed(
    imago: Imago, tmp_path: Path
) -> None:
    (tmp_path / ".bashrc").write_text("alias x=y")
    for _ in range(2):
        done = imago("--install-completion", HOME=str(tmp_path), SHELL="/bin/bash")
        assert done.returncode == 0, done.stderr
    script = tmp_path / ".bash_completions" / "imago.sh"
    start = (tmp_path / ".bashrc").read_text()
    assert start == f"alias x=y\nsource '{script}'\n"
    assert imago("--show-completion", SHELL="/bin/bash").stdout == script.read_text()
    for name in ("prefix", "orders"):
        (tmp_path / name).touch()
    with typing(tmp_path, script) as run_by:
        assert run_by("topic desc") == "topic describe"
        assert run_by("consume x --protocol=m") == "consume x --protocol=metaq"
        assert run_by("up --port-base 1:2 --no-r") == "up --port-base 1:2 --no-restart"
        assert run_by("produce x --file pre") == "produce x --file prefix"
        assert run_by("consume ord") == "consume ord", "what names a topic is no file"


@contextmanager
def typing(folder: Path, script: Path) -> Iterator[Callable[[str], str]]:
    """Give a bash at a terminal: with which words `imago` is run, of some and a tab behind them."""
    program = folder / "imago"
    asks = f"exec {sys.executable} -c 'from imago_cli.main import main; main()'"
    program.write_text(f'#!/bin/sh\n[ -n "$_IMAGO_COMPLETE" ] && {asks}\necho "<""run" "$*"">"\n')
    program.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    nowhere = {"IMAGO_BOOTSTRAP": "127.0.0.1:1", "HOME": str(folder)}
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "--norc", "-i"], {"PATH": path, "TERM": "dumb"} | nowhere)

    def run_by(words: str) -> str:
        os.write(terminal, f"imago {words}\t\n".encode())
        seen = ""
        while not (found := re.search(r"<run (.*?)>", seen)):
            assert select.select([terminal], [], [], 50)[0], seen
            seen += os.read(terminal, 4096).decode()
        return found[1].strip()

    try:
        os.write(terminal, f"source '{script}'\n".encode())
        yield run_by
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


def test_a_shell_without_a_script_is_named(imago: Imago) -> None:
    done = imago("--show-completion", SHELL="/bin/tcsh")
    if "bash" not in done.stdout:  # unless bash runs the tests
        assert done.stderr.startswith("error: there is no completion for the shell 'tcsh'")
