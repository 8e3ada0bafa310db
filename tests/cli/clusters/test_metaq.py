"""`imago metaq`: what it asks of a broker, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

Imago = Callable[..., Any]
NODES = [
    {"path": "/meta/brokers/ids/0/master", "data": "meta://h:1", "ephemeral": True},
    {"path": "/meta/consumers/g/offsets/t/0-1", "data": "-5468-44", "ephemeral": False},
    {"path": "/meta/consumers/g/offsets/t/0-2", "data": "1024", "ephemeral": False},
]


class FakeBroker:
    """Answers what a test gives it, and notes what is asked of it."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refused: dict[str, int] = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(fake.answers[self.path])

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.asked.append((self.path, body))
                self.answer(fake.answers[self.path])

            def answer(self, value: object) -> None:
                status = fake.refused.get(self.path, 200)
                if status != 200:
                    value = {"error": "forbidden", "message": "not you", "cure": "ask"}
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    fake.answers["/admin/v1/metaq/tree"] = {"root": "/meta", "nodes": NODES, "findings": []}
    yield fake
    fake.close()


def run(imago: Imago, broker: FakeBroker, *words: str) -> Any:
    return imago("metaq", *words, "--admin", broker.address)


def test_the_tree_is_shown_and_what_is_wrong_makes_the_check_fail(
    broker: FakeBroker, imago: Imago
) -> None:
    shown = run(imago, broker, "zk", "dump", "/ids/")
    assert (shown.returncode, shown.stdout) == (0, "E /meta/brokers/ids/0/master meta://h:1\n")
    assert run(imago, broker, "zk", "check").returncode == 0
    finding = {"path": "/meta/brokers/ids/x", "what": "no number"}
    broker.answers["/admin/v1/metaq/tree"]["findings"] = [finding]
    wrong = run(imago, broker, "zk", "check")
    assert (wrong.returncode, wrong.stdout) == (1, "/meta/brokers/ids/x: no number\n")
    assert "cure: " in wrong.stderr


def test_offsets_of_both_forms_are_read(broker: FakeBroker, imago: Imago) -> None:
    new = run(imago, broker, "show-offset", "t", "g", "0-1", "--json")
    assert json.loads(new.stdout) == {"record": "-5468-44", "offset": 44, "messageId": -5468}
    old = run(imago, broker, "show-offset", "t", "g", "0-2", "--json")
    assert json.loads(old.stdout) == {"record": "1024", "offset": 1024}
    none = run(imago, broker, "show-offset", "t", "g", "0-3")
    assert (none.returncode, "has no offset" in none.stderr) == (1, True)


def test_operations_on_partitions_name_their_range(broker: FakeBroker, imago: Imago) -> None:
    path = "/admin/v1/metaq/topics/a%25b"
    broker.answers[f"{path}/close-partitions"] = {"topic": "a%b", "closed": [1, 2]}
    broker.answers[f"{path}/delete-partitions"] = {"topic": "a%b", "begin": {"1": 75}}
    broker.answers[f"{path}/copy-offsets"] = {"topic": "a%b", "made": ["/x"]}
    span = ("--start", "1", "--end", "2")
    assert run(imago, broker, "close-partitions", "a%b", *span).stdout == "closed: 1,2\n"
    unsaid = run(imago, broker, "delete-partitions", "a%b", *span)
    assert (unsaid.returncode, "add --yes" in unsaid.stderr) == (2, True)
    deleted = run(imago, broker, "delete-partitions", "a%b", *span, "--yes")
    assert deleted.stdout == "a%b-1 begins at 75\n"
    copied = run(imago, broker, "copy-offsets", "a%b", "--src", "0", "--target", "1", *span)
    assert copied.stdout == "/x\n"
    range_asked = {"first": 1, "last": 2}
    assert broker.asked == [
        (f"{path}/close-partitions", range_asked),
        (f"{path}/delete-partitions", range_asked),
        (f"{path}/copy-offsets", {"source": 0, "target": 1, "targetFirst": 0, **range_asked}),
    ]


def test_progress_of_a_group_is_shown_and_a_backlog_skipped(
    broker: FakeBroker, imago: Imago
) -> None:
    path, shown = "/admin/v1/metaq/topics/t", {"pendingMessages": 4, "pendingBytes": 100}
    partitions = [
        {"partition": "0-0", "position": None, "owner": None, **shown},
        {"partition": "0-1", "position": 75, "owner": "g_java", **shown},
    ]
    broker.answers[f"{path}?group=g"] = {"topic": "t", "partitions": partitions}
    lines = run(imago, broker, "progress", "t", "g").stdout.splitlines()
    cells = [line.replace("│", " ").split() for line in lines if "0-" in line]
    assert cells == [
        ["0-0", "-", "4", "100", "-"],
        ["0-1", "75", "4", "100", "g_java"],
    ]
    broker.answers[f"{path}/groups/g/partitions/1/skip"] = {"partition": "0-1", "position": 100}
    unsaid = run(imago, broker, "skip", "t", "g", "1")
    assert (unsaid.returncode, "add --yes" in unsaid.stderr) == (2, True)
    assert "passes over 4 messages (100 bytes)" in unsaid.stderr
    assert broker.asked == []
    skipped = run(imago, broker, "skip", "t", "g", "1", "--yes")
    assert (skipped.returncode, skipped.stderr) == (0, "g goes on at 100 of t in 0-1\n")


def test_a_backlog_is_skipped_for_no_group_that_metaq_does_not_know(
    broker: FakeBroker, imago: Imago
) -> None:
    path = "/admin/v1/metaq/topics/t"
    nothing = {"position": None, "owner": None, "pendingMessages": 1, "pendingBytes": 9}
    partitions = [{"partition": "0-0", **nothing}]
    known = {"path": "/meta/consumers/billing/offsets", "data": "", "ephemeral": False}
    broker.answers["/admin/v1/metaq/tree"]["nodes"] = [*NODES, known]
    for group in ("biling", "other", "billing"):
        broker.answers[f"{path}?group={group}"] = {"partitions": partitions}
        broker.answers[f"{path}/groups/{group}/partitions/0/skip"] = {
            "partition": "0-0",
            "position": 9,
        }
    wrong = run(imago, broker, "skip", "t", "biling", "0", "--yes")
    assert wrong.returncode == 1
    assert "MetaQ knows no group biling" in wrong.stderr
    assert "did you mean billing? or --create makes it" in wrong.stderr
    assert broker.asked == []
    assert run(imago, broker, "skip", "t", "other", "0", "--create", "--yes").returncode == 0
    assert run(imago, broker, "skip", "t", "billing", "0", "--yes").returncode == 0
    asked = run(imago, broker, "skip", "t", "billing", "0")
    assert "passes over 1 message (9 bytes)" in asked.stderr
    broker.refused[f"{path}?group=biling"] = 403
    assert run(imago, broker, "skip", "t", "biling", "0", "--yes").returncode == 0


def test_statistics_come_line_by_line(broker: FakeBroker, imago: Imago) -> None:
    answer = {"item": "a b", "lines": ["a b", "resultCode 1"]}
    broker.answers["/admin/v1/metaq/stats?item=a%20b"] = answer
    assert run(imago, broker, "stats", "a b").stdout == "a b\nresultCode 1\n"


STATUS = {
    "slaveId": 1, "group": "g", "master": "meta://h:1", "copies": False, "problem": "",
    "leftOut": ["a*: it is a pattern"], "configProblem": "line 3: group.g",
    "partitions": [
        {"topic": "t", "partition": 0, "position": 75, "messages": 3, "problem": ""},
        {"topic": "t", "partition": 1, "position": 0, "messages": 0, "problem": "differs"},
    ],
}  # fmt: skip


def test_a_slave_is_shown_and_restarted(imago: Imago, broker: FakeBroker) -> None:
    broker.answers["/admin/v1/metaq/slave"] = STATUS
    broker.answers["/admin/v1/metaq/slave/restart"] = {"restarted": True}
    shown = run(imago, broker, "slave-status")
    assert shown.stdout.splitlines() == [
        "slave 1 of meta://h:1 as g",
        "copies: no",
        "left out: a*: it is a pattern",
        "settings: line 3: group.g",
        "t-0 75",
        "t-1 0 differs",
    ]
    run(imago, broker, "slave-restart")
    assert broker.asked == [("/admin/v1/metaq/slave/restart", {})]


def test_offsets_are_shown_and_only_then_recovered(imago: Imago, broker: FakeBroker) -> None:
    record = {"topic": "t", "partition": 2, "message_id": -5, "position": 50}
    broker.answers["/admin/v1/metaq/recover-offsets"] = {
        "records": [
            {"group": "g", **record, "here": 75, "moved": True},
            {"group": "h", **record, "here": None, "moved": False},
        ]
    }
    shown = run(imago, broker, "recover-offsets")
    assert shown.stdout.splitlines() == ["g t-2 50 -> 75 moved", "h t-2 50 -> not found"]
    run(imago, broker, "recover-offsets", "--apply")
    assert [body for _, body in broker.asked] == [{"dryRun": True}, {"dryRun": False}]
    broker.answers["/admin/v1/metaq/recover-offsets"] = {"records": []}
    assert "no group of MetaQ has an offset" in run(imago, broker, "recover-offsets").stderr
