"""What is told of a message becomes a story in order."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from imago_cli.exits import CommandError
from imago_cli.messages import trace as tracing
from imago_cli.messages.trace import story, trace
from imago_wire.remoting.texts.trace import TraceRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

ID = "AC11000100002A9F0000000000000001"


def record(kind: str, **fields: str) -> tuple[TraceRecord, str]:
    return TraceRecord(kind, {"msgId": ID, "groupName": "g", **fields}), "10.0.0.1:1"


def test_a_story_is_in_the_order_of_what_was_done() -> None:
    told = [
        record("SubAfter", requestId="1", costTime="7", contextCode="2", timeStamp="40"),
        record("SubBefore", requestId="1", timeStamp="30", retryTimes="0"),
        record("SubBefore", requestId="2", timeStamp="50", retryTimes="1"),
        record("Pub", timeStamp="10", topic="t", storeHost="h:1", costTime="3", msgType="1"),
        record("EndTransaction", timeStamp="20", topic="t", transactionState="COMMIT_MESSAGE"),
        record("Recall", timeStamp="5", topic="t", isSuccess="false"),
    ]
    assert [each[:2] + each[4:] for each in story(told, [ID])] == [
        (5, "taken back", "failed", None, "t"),
        (10, "sent, half", "success", 3, "t at h:1"),
        (20, "transaction ended", "committed", None, "t"),
        (30, "handled", "exception", 7, "try 1"),
        (50, "handled", "not ended, or not told", None, "try 2"),
    ]


def test_what_is_told_twice_is_one_step_and_what_is_of_others_none() -> None:
    sent = record("Pub", timeStamp="10", topic="t", keys="k l")
    other = record("Pub", timeStamp="11", topic="t", msgId="0" * 32, keys="kk")
    assert [each.time_ms for each in story([sent, sent, other], ["l"])] == [10]
    assert story([sent, other], ["x"]) == []


def test_older_clients_tell_less() -> None:
    told = [record("SubBefore", requestId="1"), record("SubAfter", requestId="1", isSuccess="true")]
    (step,) = story(told, [ID])
    assert (step.time_ms, step.outcome, step.took_ms) == (0, "success", None)
    (step,) = story([record("Pub", timeStamp="soon", costTime="²")], [ID])
    assert (step.time_ms, step.took_ms) == (0, None)


def test_several_consumers_and_tries_stand_apart() -> None:
    told = [
        record("SubBefore", requestId=str(number), timeStamp="1", groupName=group)
        for number, group in enumerate("ab")
    ]
    assert [each.group for each in story(told, [ID])] == ["a", "b"]


LOWER = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("given", "told_by"),
    [(LOWER, LOWER), (LOWER, LOWER.upper()), (LOWER.upper(), LOWER.upper()), ("k", "k")],
)
def test_a_key_is_found_as_it_was_told_and_an_id_in_either_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, told_by: str
) -> None:
    fields = ["1", "region", "group", "topic", ID, "tag", told_by, "host:1", "1", "2", "0"]
    text = "Pub\x01" + "\x01".join([*fields, "", "true"]) + "\x02"
    place = {"shard": "shard-0", "topic": "traces", "queue": 0, "offset": 7}

    def ask(_: str, path: str) -> Mapping[str, Any]:
        query = parse_qs(urlsplit(path).query)
        if "key" not in query:
            body = b64encode(text.encode()).decode()
            return {"items": [{**place, "body": body, "bornHost": "10.0.0.1:1"}]}
        found = query["key"] == [told_by]
        return {"items": [place] if found else [], "missing": []}

    monkeypatch.setattr(tracing, "ask", ask)
    trace(given, "traces", 50, "http://a:1", partial=False, as_json=True)
    assert '"sent"' in capsys.readouterr().out
    with pytest.raises(CommandError, match="no client has told of message other"):
        trace("other", "traces", 50, "http://a:1", partial=False, as_json=True)


def test_nobody_is_not_said_of_shards_that_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = {"shard": "shard-1", "since": None, "why": "it has no master"}
    answers = iter([{"items": [], "missing": [away]}, {"items": [], "missing": []}])
    monkeypatch.setattr(tracing, "ask", lambda *_: next(answers))
    with pytest.raises(SystemExit):
        trace(LOWER, "traces", 50, "http://a:1", partial=False, as_json=False)
    assert "missing: shard-1" in capsys.readouterr().err
