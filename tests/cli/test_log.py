"""`imago log`: the files of a stopped broker, checked and shown."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli import exits as imago_exits
from imago_log import MessageStore
from imago_testing.stores.in_memory import FakeClock, folder_config
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Imago = Callable[..., Any]
Dumped = Callable[..., list[dict[str, Any]]]

BODIES = [b"first", "zweite: größer".encode(), bytes(range(256)), b"x" * 300]


def fill(folder: Path, bodies: Sequence[bytes] = BODIES) -> Path:
    """A store with messages of two topics, stopped in order."""
    folder.mkdir(parents=True)
    store = MessageStore.open(folder_config(folder), clock=FakeClock(), threaded=False)
    for topic in ("orders", "returns"):
        store.create_topic(topic, {"queues": 2})
    host = bytes([127, 0, 0, 1, 0, 0, 0, 1])
    for number, body in enumerate(bodies):
        topic = ("orders", "returns")[number % 2]
        properties = f"KEYS\x01key-{number}\x02".encode()
        entry = make_entry(
            store.tail(topic, 0), body, properties, born_ms=1_800_000_000_000, born_host=host
        )
        store.append([entry])
    store.close()
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("log") / "data")


@pytest.fixture
def dumped(imago: Imago) -> Callable[..., list[dict[str, Any]]]:
    """Run `imago log dump --json`; return the records."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        done = imago("log", "dump", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_whole_files_are_said_to_be_whole(whole: Path, imago: Imago) -> None:
    done = imago("log", "check", whole)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{whole}: every file is whole\n"
    assert json.loads(imago("log", "check", whole, "--json").stdout) == {"ok": True, "findings": []}


def test_a_damaged_record_is_named_with_file_and_cure(
    tmp_path: Path, imago: Imago, dumped: Dumped
) -> None:
    folder = fill(tmp_path / "data")
    (record,) = dumped(folder, "--topic", "orders", "--count", 1)
    log = min((folder / "commitlog").iterdir())
    place = record["logOffset"] + 90
    data = bytearray(log.read_bytes())
    data[place] ^= 0xFF
    log.write_bytes(data)
    done = imago("log", "check", folder, "--json")
    assert done.returncode == 3
    told = json.loads(done.stdout)
    assert told["ok"] is False
    errors = [finding for finding in told["findings"] if finding["severity"] == "error"]
    assert errors[0]["file"] == str(log)
    assert errors[0]["position"] == record["logOffset"]
    assert errors[0]["cure"]
    for_people = imago("log", "check", folder)
    assert for_people.returncode == 3
    assert "cure: " in for_people.stdout
    broken = [line for line in dumped(folder) if "unreadableTo" in line]
    assert [line["logOffset"] for line in broken] == [record["logOffset"]]


def test_messages_are_shown_as_they_were_sent(whole: Path, dumped: Dumped) -> None:
    shown = dumped(whole, "--topic", "orders") + dumped(whole, "--topic", "returns")
    assert [record["topic"] for record in shown] == ["orders"] * 2 + ["returns"] * 2
    assert [record["queueOffset"] for record in shown] == [0, 1, 0, 1]
    assert shown[0]["body"] == "first"
    assert zlib.crc32(BODIES[2]) == zlib.crc32(_bytes_of(shown[1]))
    assert shown[2]["body"] == "zweite: größer"
    assert shown[0]["properties"]["KEYS"] == "key-0"
    assert dumped(whole, "--topic", "orders", "--queue", 0, "--from", 1) == [shown[1]]
    assert dumped(whole, "--topic", "orders", "--from", shown[1]["logOffset"]) == [shown[1]]
    assert dumped(whole, "--topic", "orders", "--count", 1) == [shown[0]]
    assert {record["topic"] for record in dumped(whole)} == {"IMAGO_META", "orders", "returns"}


def _bytes_of(record: dict[str, Any]) -> bytes:
    from base64 import b64decode

    return b64decode(record["bodyBase64"])


def test_people_get_a_table(whole: Path, imago: Imago) -> None:
    done = imago("log", "dump", whole, "--topic", "orders")
    assert done.returncode == 0
    assert "first" in done.stdout
    assert "key-0" in done.stdout
    assert "2027-01-15 08:00:00.000" in done.stdout
    assert "\x00" not in done.stdout


def test_the_folder_of_an_imago_up_means_its_shards(
    tmp_path: Path, imago: Imago, dumped: Dumped
) -> None:
    for shard in (2, 10):
        fill(tmp_path / f"shard-{shard}", [f"of {shard}".encode()])
    assert imago("log", "check", tmp_path).returncode == 0
    assert [record["body"] for record in dumped(tmp_path, "--topic", "orders")] == ["of 2", "of 10"]


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_folder_without_a_store_is_a_usage_error(
    tmp_path: Path, command: str, imago: Imago
) -> None:
    (tmp_path / "cluster.json").write_text("{}")  # of a cluster whose shards are gone
    for folder in (tmp_path, tmp_path / "nowhere"):
        done = imago("log", command, folder)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_store_in_use_is_left_alone(tmp_path: Path, command: str, imago: Imago) -> None:
    folder = fill(tmp_path / "data")
    store = MessageStore.open(folder_config(folder), clock=FakeClock(), threaded=False)
    done = imago("log", command, folder)
    store.close()
    assert done.returncode == 2
    assert "stop the broker first" in done.stderr


def test_help_says_which_code_a_locked_folder_has(imago: Imago) -> None:
    told = " ".join(imago("log", "check", "--help").stdout.replace("│", " ").split())
    assert "2 if the folder holds no store or a broker has it locked" in told
    assert "3 data damaged, or locked where a broker starts" in imago_exits.HELP


def test_a_queue_without_its_topic_is_a_usage_error(whole: Path, imago: Imago) -> None:
    done = imago("log", "dump", whole, "--queue", 1)
    assert done.returncode == 2
    assert "--queue needs --topic" in done.stderr
