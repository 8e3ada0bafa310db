"""`imago consume` and `imago produce`: where to begin and end, and in which form."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.exits import CommandUsageError
from imago_cli.messages.places import LATEST, PlaceKind, ReadPlace, place_of
from imago_cli.messages.showing import shower
from imago_cli.times import moment, second, time_of

if TYPE_CHECKING:
    from tests.cli.conftest import Done
    from tests.cli.tasks.conftest import Shell, TwoShards

NOW_MS = 1_700_000_000_000
ROW: dict[str, Any] = {
    "topic": "orders", "shard": "shard-0", "queue": 3, "offset": 7, "id": "0A", "uniqueId": "0B",
    "tags": None, "keys": ["a", "b"], "storeMs": 5, "properties": {"x": "1", "y": "2"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("latest", LATEST),
        ("-10", ReadPlace(PlaceKind.LAST, 10)),
        ("offset:42", ReadPlace(PlaceKind.OFFSET, 42)),
        ("@-15m", ReadPlace(PlaceKind.TIME, NOW_MS - 900_000)),
        ("@1700000000000", ReadPlace(PlaceKind.TIME, NOW_MS)),
        ("@2023-11-14T22:13:20Z", ReadPlace(PlaceKind.TIME, NOW_MS)),
        ("@2023-11-14T23:13:20+01:00", ReadPlace(PlaceKind.TIME, NOW_MS)),
        ("@2023-11-14T22:13:20", ReadPlace(PlaceKind.TIME, NOW_MS)),
    ],
)
def test_a_place_is_a_word_a_number_or_a_time(text: str, place: ReadPlace) -> None:
    assert place_of("--from", text, NOW_MS) == place


@pytest.mark.parametrize("text", ["", "10", "@", "@tomorrow", "offset:-1", "offset:", "earlyest"])
def test_what_is_no_place_is_said(text: str) -> None:
    with pytest.raises(CommandUsageError, match="is no place"):
        place_of("--from", text, NOW_MS)


def test_times_are_shown_in_utc_and_say_so() -> None:
    assert moment(NOW_MS + 5) == "2023-11-14 22:13:20.005Z"
    assert second(NOW_MS) == "2023-11-14 22:13:20Z"
    assert (moment(0), second(None)) == ("", "")
    assert time_of("-2h", NOW_MS) == NOW_MS - 7_200_000
    with pytest.raises(ValueError, match="that late"):
        time_of("9" * 20, NOW_MS)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, b"a\nb\n"),
        ({"hexed": True}, b"610a62\n"),
        ({"prefixed": True}, b"\0\0\0\x03a\nb"),
        ({"form": r"%t %q %o %k %S %g|%h %u%%\n"}, b"orders shard-0/3 7 a b 3 |x=1,y=2 0B%\n"),
        ({"form": r"%s\0\q"}, b"a\nb\0\\q"),
    ],
)
def test_a_message_is_shown_in_the_form_that_was_asked_for(
    options: dict[str, Any], shown: bytes
) -> None:
    assert shower(**options)(ROW, b"a\nb") == shown


def test_a_form_is_one_and_has_known_fields() -> None:
    with pytest.raises(CommandUsageError, match="%z is no field"):
        shower(form="%t %z")
    with pytest.raises(CommandUsageError, match="not beside"):
        shower(as_json=True, hexed=True)


@pytest.fixture(scope="module")
def numbered(two_shards: TwoShards) -> None:
    """Ten messages on each shard; of both the first five came before the others."""
    from imago_client import Message, MessageQueue
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        client.admin.create_topic("numbers", queues=1)
        producer = client.producer()
        for number in range(10):
            for shard in range(2):
                message = Message("numbers", b"%d-%d" % (shard, number))
                producer.send(message, queue=MessageQueue("numbers", f"shard-{shard}", 0))


@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.usefixtures("numbered")
def test_any_part_of_a_topic_is_read(shell: Shell) -> None:
    def read(*options: str) -> list[str]:
        return shell.done("consume", "numbers", *options).split()

    assert read("--from", "-2") == ["0-8", "0-9", "1-8", "1-9"]
    assert read("--queue", "shard-1/0", "--from", "offset:8") == ["1-8", "1-9"]
    assert read("--queue", "1/0", "--until", "offset:2") == ["1-0", "1-1"]
    assert read("--from", "latest") == []
    assert len(read("--from", "@-1h")) == 20
    assert read("--until", "@-1h") == []
    sixth = shell.json("consume", "numbers", "--queue", "0/0", "--from", "offset:6", "--count", "1")
    since = read("--queue", "0/0", "--from", f"@{sixth['storeMs']}")
    assert since[-4:] == ["0-6", "0-7", "0-8", "0-9"]
    ended = shell.run("consume", "numbers", "--queue", "shard-7/0")
    assert (ended.returncode, "shard-0/0, shard-1/0" in ended.stderr) == (1, True)
    for wrong in (
        ["--follow", "--until", "-1"],
        ["--group", "g", "--from", "-1"],
        ["--queue", "x"],
    ):
        assert shell.run("consume", "numbers", *wrong).returncode == 2, wrong


@pytest.mark.processes
@pytest.mark.zookeeper
def test_records_go_out_as_they_came_in(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(text: str, *arguments: str) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return shell.run("produce", *arguments)

    for topic in ("first", "second"):
        shell.done("topic", "create", topic, "--queues", "1")
    assert typed("k:a:b\n:no key\n", "first", "-K", ":").returncode == 0
    assert typed("", "first", "x", "--tags", "t", "--header", "source=web").returncode == 0
    printed = shell.done("consume", "first", "--json")
    assert typed(printed, "second", "--json-records").returncode == 0
    assert [
        sorted((row["body"], row["keys"], row["tags"]) for row in map(json.loads, rows))
        for rows in (printed.splitlines(), shell.done("consume", "second", "--json").splitlines())
    ] == [[("a:b", ["k"], None), ("no key", [], None), ("x", [], "t")]] * 2
    copied = [json.loads(line) for line in shell.done("consume", "second", "--json").splitlines()]
    assert [row["properties"]["source"] for row in copied if row["tags"] == "t"] == ["web"]
    for text, said in (
        ("no separator", "has no ':' behind a key"),
        ("{", "is no JSON"),
        ('{"keys": ["k"]}', "is no record"),
        ('{"body": "x", "kees": []}', "has no kees"),
        ('{"body": "x", "keys": "k"}', "keys is a list"),
        ('{"bodyBase64": "?"}', "cannot be read"),
    ):
        option = ["-K", ":"] if "separator" in text else ["--json-records"]
        ended = typed(f"{text}\n", "second", *option)
        assert (ended.returncode, said in ended.stderr) == (2, True), ended
