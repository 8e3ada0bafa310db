"""The command as a whole: help, errors, exit codes, what is loaded when."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.commands import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

Imago = Callable[..., Any]
NO_ROOM = "error: standard output cannot be written: No space left on device\n  cure: free space"

UNNEEDED = ["kazoo", "rich", "pyspark", "imago_cli.line", "aiohttp", "prometheus_client", "psutil"]
"""What no broker waits for before it serves its clients."""

INI = """\
[system]
brokerId=0
numPartitions=4
unflushThreshold=1
unflushInterval=1000
maxSegmentSize=16777216
maxTransferSize=1048576
[zookeeper]
zk.zkConnect=127.0.0.1:2181
[topic=orders]
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run some code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )


def test_help_names_every_command_and_the_exit_codes(imago: Imago) -> None:
    done = imago("--help")
    assert done.returncode == 0
    for name, row in COMMANDS.items():
        assert name in done.stdout
        assert row.help in done.stdout
    assert "Exit codes: 0 done" in done.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_the_table_exists_and_explains_itself(name: str, imago: Imago) -> None:
    assert importlib.util.find_spec(COMMANDS[name].module), "the table names a module"
    done = imago(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_help_shows_types_of_values_and_none_of_flags(imago: Imago) -> None:
    told = imago("consume", "--help").stdout
    assert "<bool>" not in told
    assert "<str>" in told
    for flag in ("--json", "--follow", "--help"):
        assert flag in told


def test_the_help_of_a_command_flows_as_wide_as_the_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "imago_cli", "up", "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert "If a process cannot start, the command names it" in done.stdout


def test_an_unknown_command_is_a_usage_error(imago: Imago) -> None:
    done = imago("brokr")
    assert done.returncode == 2
    assert "No such command 'brokr'" in done.stderr
    assert "broker" in done.stderr


def test_help_loads_no_part_of_a_broker() -> None:
    code = (
        "import sys; sys.argv = ['imago', '--help']\n"
        "from imago_cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(' '.join(m for m in sys.modules if m.startswith('imago_broker')))"
    )
    done = python(code)
    assert done.stderr == ""


def test_a_broker_starts_without_what_its_clients_need_not_wait_for() -> None:
    code = (
        "import sys, imago_broker.app, imago_cli.servers.broker_process, imago_cli.main\n"
        f"print([m for m in {UNNEEDED} if m in sys.modules])"
    )
    done = python(code)
    assert done.stdout.strip() == "[]"


def test_a_mistake_of_ours_is_told_without_a_trace() -> None:
    code = (
        "import sys\n"
        "from imago_cli import commands, main\n"
        "sys.argv = ['imago', 'doctor']\n"
        "def fail(name): raise RuntimeError('boom')\n"
        "commands.build = fail\n"
        "main.main()\n"
    )
    done = python(code)
    assert done.returncode == 1
    assert done.stderr.startswith("error: RuntimeError: boom\n  cure: ")


def test_shells_can_complete_commands_and_their_options(imago: Imago) -> None:
    environment = {"_IMAGO_COMPLETE": "complete_bash", "COMP_LINE": "imago doc"}
    assert imago(**environment).stdout.split() == ["doctor"]
    environment |= {"COMP_LINE": "imago up --port"}
    assert imago(**environment).stdout.split() == ["--port-base"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m imago_cli config defaults | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "[broker]\n"
    assert done.stderr == ""


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `imago` is our command."""
    line = f'imago() {{ {sys.executable} -m imago_cli "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.parametrize(
    "command",
    ["imago config defaults | true; exit ${PIPESTATUS[0]}", "imago config defaults >&-"],
)
def test_output_that_nobody_wants_is_no_error(command: str) -> None:
    done = shell(command)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_finds_no_room_is_an_error() -> None:
    done = shell("imago config defaults --json > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith(NO_ROOM)


@pytest.mark.parametrize(
    "command",
    [
        "imago topic describe $'t\\xff' --bootstrap 127.0.0.1:1",
        "imago topic list --bootstrap $'h\\xff:1'",
        "imago topic move $'\\xff' --from 0 --to 1 --admin http://127.0.0.1:1",
        "imago cluster status --admin http://[::1",
        "imago cluster status --admin 'http://a b:1'",
        "imago cluster status --admin http://h:99999",
        "IMAGO_ADMIN_TOKEN_FILE=/bin/sh imago cluster status --admin http://127.0.0.1:1",
        "imago group reset g t --to 99999999999999999999 --yes",
        "imago produce t x --tags $'\\xff' --bootstrap 127.0.0.1:1",
        "imago produce 'a b' x --protocol metaq --metaq 127.0.0.1:1",
        "imago produce t x --protocol metaq --tags $'\\xff' --metaq 127.0.0.1:1",
    ],
)
def test_arguments_that_make_no_sense_are_a_usage_error(command: str) -> None:
    done = shell(command)
    assert "mistake of imago" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
    assert done.returncode in (1, 2)


def test_config_defaults_is_a_file_that_changes_nothing(tmp_path: Path, imago: Imago) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(imago("config", "defaults").stdout)
    with_file, without = imago("config", "show", "--config", str(file)), imago("config", "show")
    assert with_file.returncode == 0
    assert with_file.stdout == without.stdout
    assert tomllib.loads(file.read_text())["metaq"]["port"] == 8123


def test_config_defaults_explains_each_key_to_programs(imago: Imago) -> None:
    keys = {key["key"]: key for key in json.loads(imago("config", "defaults", "--json").stdout)}
    assert keys["metaq.port"]["default"] == 8123
    assert all(key["meaning"] for key in keys.values())


def test_config_show_follows_file_then_environment(tmp_path: Path, imago: Imago) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[metaq]\nport = 9000\n[admin]\nport = 9001\n")
    done = imago(
        "config", "show", "--config", str(file), "--json",
        IMAGO__ADMIN__PORT="9002",
    )  # fmt: skip
    shown = json.loads(done.stdout)
    assert (shown["metaq"]["port"], shown["admin"]["port"]) == (9000, 9002)


@pytest.mark.parametrize("command", ["broker", "namesrv", "config show"])
def test_a_mistyped_key_is_refused_with_the_nearest(
    tmp_path: Path, command: str, imago: Imago
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[metaq]\nprot = 9000\n")
    done = imago(*command.split(), "--config", str(file))
    assert done.returncode == 2
    said = f"error: {file}: metaq.prot: no such key; did you mean metaq.port?\n"
    assert done.stderr.removesuffix(f"  cure: imago {command} --help\n") == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[admin]\nport = 10909\n", "admin.port: 10909 is also rocketmq.port - 2"),
        ("[metaq]\nport = 9876\n", "namesrv.port: 9876 is also metaq.port"),
    ],
)
def test_two_listeners_on_one_port_are_refused(
    tmp_path: Path, text: str, said: str, imago: Imago
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    done = imago("broker", "--config", str(file))
    assert done.returncode == 2
    assert said in done.stderr


def test_a_missing_file_is_refused(imago: Imago) -> None:
    done = imago("broker", "--config", "/nowhere.toml")
    assert done.returncode == 2
    assert "error: --config /nowhere.toml" in done.stderr


def test_a_missing_file_of_a_cluster_is_refused_with_what_writes_one(
    imago: Imago, tmp_path: Path
) -> None:
    done = imago("up", "--data", tmp_path / "data", "--config", "/no/such")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: --config /no/such: No such file" in done.stderr
    assert "imago config defaults > such" in done.stderr


def test_a_name_service_of_its_own_needs_the_registry(imago: Imago) -> None:
    done = imago("namesrv")
    assert done.returncode == 2
    assert "needs the registry" in done.stderr


def test_server_ini_is_translated(tmp_path: Path, imago: Imago) -> None:
    ini, toml = tmp_path / "server.ini", tmp_path / "broker.toml"
    ini.write_text(INI)
    done = imago("config", "convert", str(ini), "--output", str(toml))
    assert done.returncode == 0, done.stderr
    assert imago("config", "convert", str(ini)).stdout == toml.read_text()
    assert tomllib.loads(toml.read_text())["metaq"]["default_partitions"] == 4
    again = imago("config", "convert", str(ini), "--output", str(toml))
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_a_wrong_server_ini_is_refused_as_the_original_does(tmp_path: Path, imago: Imago) -> None:
    ini = tmp_path / "server.ini"
    ini.write_text(INI.replace("brokerId", "brokrId"))
    done = imago("config", "convert", str(ini))
    assert done.returncode == 2
    assert "do you mean 'brokerId'" in done.stderr


def test_version_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "imago_cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"imago {importlib.metadata.version('imago-mq')}\n"


WRONG = [
    ("topc list", "No such command 'topc'. Did you mean 'topic'?", "imago --help"),
    ("topic lst", "No such command 'lst'. Did you mean 'list'?", "imago topic --help"),
    ("topic create", "Missing argument 'topic'", "imago topic create --help"),
    (
        "topic create o --queues 0",
        "--queues 0: must be a whole number, 1 to 65536",
        "create --help",
    ),
    (
        "topic create o --queues x",
        "--queues x: must be a whole number, 1 to 65536",
        "create --help",
    ),
    ("topic create o --quues 3", "No such option: --quues", "imago topic create --help"),
    ("topic create TBW102", "topic TBW102 is the brokers' own", "choose another name"),
    ("topic delete TBW102 --yes", "topic TBW102 is the brokers' own", "choose another name"),
    ("topic list --bootstrap x", "--bootstrap: 'x' is not host:port", "127.0.0.1:9876"),
    ("topic list --bootstrap ,", "--bootstrap: no address given", "127.0.0.1:9876"),
    ("consume o --protocol metaq --metaq x", "--metaq: 'x' is not host:port", "127.0.0.1:8123"),
    (
        "produce o x --protocol nats",
        "--protocol nats: must be one of rocketmq, metaq",
        "imago produce",
    ),
    ("consume o --from middle", "--from 'middle' is no place in a topic", "offset:42"),
    ("group reset g o --to never", "--to 'never' is no place in a topic", "or -15m"),
    ("--password-file /x topic list", "--user: a password is given, and no user", "--user and"),
    (
        "backup list --from file:///no/such",
        "file:///no/such: there is no such folder",
        "backup.url",
    ),
    ("apply --file /no/such", "--file /no/such: No such file", "imago export"),
    ("group reset g o", "where to is not said", "say one of --to, --by and --to-group"),
    ("group reset g o --to earliest --by 1", "--to: not beside --by", "say one of"),
    ("cluster status --admin x:1", "--admin x:1: must look like http://HOST:PORT", ""),
    ("broker --config /", "--config /: Is a directory", "name a file"),
    (
        "namesrv --config /no/such",
        "--config /no/such: No such file",
        "imago config defaults > such",
    ),
    ("config show --config a.b", "a.b: No such file or directory (looked in /", "defaults > a.b"),
    ("config convert /no/such", "/no/such: No such file or directory", ""),
    ("log check /no/such", "/no/such is not the data folder of a broker", "broker.data_dir"),
    ("up --data /etc/passwd", "--data /etc/passwd: is no folder", "another --data"),
    ("up --data /proc/x", "--data /proc/x: No such file", "that you may write to"),
    ("doctor --foo", "No such option: --foo", "imago doctor --help"),
]


@pytest.mark.parametrize(("line", "said", "cure"), WRONG)
def test_a_mistyped_line_is_one_sentence_with_its_cure(
    imago: Imago, line: str, said: str, cure: str
) -> None:
    done = imago(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert said in first
    assert "[Errno" not in first
    assert len(rest) <= 1
    assert cure in "".join(rest)


ABSENT = [
    ("topic list --bootstrap 127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("produce o x --bootstrap 127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("consume o --bootstrap 127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("consume o --protocol metaq --metaq 127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("group list --bootstrap 127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("bench --seconds 1 --bootstrap 127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("cluster status --admin http://127.0.0.1:1", "http://127.0.0.1:1: Connection refused"),
    ("shard list --admin http://127.0.0.1:1", "http://127.0.0.1:1: Connection refused"),
    ("topic spread o --admin http://127.0.0.1:1", "http://127.0.0.1:1: Connection refused"),
]


@pytest.mark.parametrize(("line", "said"), ABSENT)
def test_a_server_that_is_not_there_is_named(imago: Imago, line: str, said: str) -> None:
    done = imago(*line.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("line", ["--help", "config defaults", "topic --help", "doctor"])
def test_what_cannot_be_written_is_said_and_a_reader_that_goes_is_no_error(line: str) -> None:
    imago = f"{sys.executable} -m imago_cli {line}"
    full = subprocess.run(
        f"{imago} > /dev/full", shell=True, capture_output=True, text=True, timeout=50, check=False
    )
    assert full.returncode == 1
    assert full.stderr.startswith(NO_ROOM)
    gone = subprocess.run(
        ["bash", "-c", f"{imago} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (gone.returncode, gone.stderr) in [(0, ""), (1, "")] if line == "doctor" else [(0, "")]


def test_a_group_of_commands_alone_shows_its_help(imago: Imago) -> None:
    for words in ([], ["topic"], ["config"]):
        done = imago(*words)
        assert (done.returncode, done.stderr) == (2, "")
        assert done.stdout.count("Usage:") == 1


MISPLACED = [
    ("produce o x --user ann", "before the command: imago --user … produce"),
    ("topic list --password-file f", "before the command: imago --password-file … topic list"),
    ("cluster status --bootstrap h:1", "this command reaches the cluster by --admin"),
    ("topic list --admin http://h:1", "this command reaches the cluster by --bootstrap"),
    ("topic list --no-such", "cure: imago topic list --help"),
    ("topic list --bootstrap http://127.0.0.1:9876", "such as 127.0.0.1:9876"),
]


@pytest.mark.parametrize(("line", "cure"), MISPLACED)
def test_an_option_that_another_command_has_is_told_where_it_belongs(
    imago: Imago, line: str, cure: str
) -> None:
    done = imago(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert cure in done.stderr.splitlines()[1]
