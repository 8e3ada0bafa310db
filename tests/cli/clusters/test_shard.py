"""`imago cluster` and `imago shard`: what they show, whom they ask, what they refuse."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from imago_cli.clusters import admin_http, moves
from imago_cli.doctor.checks import CheckLevel
from imago_cli.doctor.shards import shard_findings
from imago_cli.exits import CommandError

Imago = Callable[..., Any]


class FakeBroker:
    """Answers the cluster that a test gives it, and notes what is asked of it."""

    def __init__(self) -> None:
        self.cluster: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refusal: dict[str, str] = {}
        self.answer_body = {"shard": "shard-0", "epoch": 5, "brokerId": "b", "leader": "disk-1"}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, fake.cluster)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.asked.append((self.path, body))
                if fake.refusal:
                    self.answer(409, fake.refusal)
                else:
                    self.answer(200, fake.answer_body)

            def answer(self, status: int, value: object) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self.cluster = cluster(self.address)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def member(replica: int, admin: str, **changes: object) -> dict[str, Any]:
    return {
        "uuid": f"disk-{replica}", "replica": replica, "zone": "", "role": "slave",
        "inSync": True, "lagBytes": 512 * replica, "lagMs": 20 * replica, "logEpoch": 4,
        "logEnd": 1000 - replica, "rocketmq": f"h:{10911 + 10 * replica}", "admin": admin,
        "incarnation": 7, "metaq": "h:8123", **changes,
    }  # fmt: skip


def cluster(admin: str, **changes: object) -> dict[str, Any]:
    """One shard of three, of which the third is gone; replica 0 leads."""
    shard = {
        "id": 0, "name": "shard-0", "master": "disk-0", "epoch": 4,
        "inSync": ["disk-0", "disk-1"], "unclean": False, "cordoned": False, "drained": False,
        "draining": False,
        "known": {"disk-0": 0, "disk-1": 1, "disk-2": 2},
        "members": [member(0, admin, role="master"), member(1, admin)],
        "explain": {"why": "because", "waitsFor": "", "next": ""},
        "elections": [
            {"epoch": 4, "leader": "disk-0", "at": 1000, "cause": "leader died", "unclean": True}
        ],
        **changes,
    }  # fmt: skip
    return {"cluster": "c", "zooKeeperConnected": True, "refused": {}, "shards": [shard]}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.close()


def leaderless(broker: FakeBroker) -> None:
    why = {"why": "nobody leads", "waitsFor": "replica 2 (disk-2)", "next": "start it"}
    broker.cluster = cluster(broker.address, master=None, inSync=["disk-0", "disk-2"], explain=why)


def test_status_shows_members_roles_and_lag(imago: Imago, broker: FakeBroker) -> None:
    done = imago("cluster", "status", "--admin", broker.address)
    assert done.returncode == 0, done.stderr
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if "shard-0" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells[0][:6] == ["shard-0", "0", "master", "yes", "0", "0"]
    assert cells[1][:6] == ["shard-0", "1", "follower", "yes", "512", "20"]


def test_a_shard_without_master_is_said_and_explained(imago: Imago, broker: FakeBroker) -> None:
    leaderless(broker)
    done = imago("cluster", "status", "--admin", broker.address)
    assert done.returncode == 1
    assert "shard-0 has no master: imago cluster explain" in done.stdout
    assert "gone" in done.stdout
    told = imago("cluster", "explain", "--admin", broker.address)
    assert told.stdout == "nobody leads\n  waits for: replica 2 (disk-2)\n  next: start it\n"
    as_json = imago("cluster", "explain", "--json", "--admin", broker.address)
    assert json.loads(as_json.stdout)["shard-0"]["next"] == "start it"


def test_members_that_are_not_there_are_missed_by_every_command(
    imago: Imago, broker: FakeBroker
) -> None:
    here = [member(n, broker.address, role="master" if n == 0 else "slave", slot=n) for n in (0, 1)]
    broker.cluster = cluster(broker.address, members=here) | {"replicas": 3}
    said = "2 of 3 members are there; slot 2 is empty"
    for command in ("status", "explain"):
        assert said in imago("cluster", command, "--admin", broker.address).stdout
    assert "2 of 3" in imago("shard", "list", "--admin", broker.address).stdout
    assert said in [finding.message for finding in shard_findings(broker.cluster)]
    whole = cluster(broker.address) | {"replicas": 2}
    assert [finding.level for finding in shard_findings(whole)] == [CheckLevel.OK]


def test_what_went_for_want_of_room_is_told_by_the_shard_and_by_the_doctor(
    imago: Imago, broker: FakeBroker
) -> None:
    went = {"from": 0, "to": 4096, "messages": 12, "at": 1_700_000_000_000}
    broker.cluster = cluster(broker.address, deletedForRoom=went)
    said = (
        "12 messages (log offsets 0 to 4096) went for want of room before they had expired, the"
        " last at 2023-11-14 22:13:20Z"
    )
    assert said in imago("shard", "show", "0", "--admin", broker.address).stdout.splitlines()
    _, note = shard_findings(broker.cluster)
    assert (note.level, note.message) == (CheckLevel.NOTE, said)
    assert "give the disk room" in note.cure


def test_what_is_in_a_bucket_is_told_and_what_is_wrong_with_it(
    imago: Imago, broker: FakeBroker
) -> None:
    tier = {"url": "s3://b/x", "files": 3, "bytes": 7 << 20, "waitingBytes": 0}
    broker.cluster = cluster(broker.address, tier=tier | {"problem": "", "refused": ""})
    said = "3 files, 7 MiB, in s3://b/x"
    assert said in imago("shard", "show", "0", "--admin", broker.address).stdout.splitlines()
    assert said in imago("cluster", "status", "--admin", broker.address).stdout
    assert [each.level for each in shard_findings(broker.cluster)] == [CheckLevel.OK]
    wrong = {"waitingBytes": 512 << 20, "problem": "s3://b/x: answered 403", "refused": ""}
    broker.cluster = cluster(broker.address, tier=tier | wrong)
    shown = imago("cluster", "status", "--admin", broker.address).stdout
    assert f"{said}; 512 MiB wait to go there" in shown
    assert "its bucket: s3://b/x: answered 403" in shown
    _, error = shard_findings(broker.cluster)
    assert (error.level, error.message) == (CheckLevel.ERROR, "its bucket: s3://b/x: answered 403")
    assert "docs/tiered.md" in error.cure


def test_list_and_show_tell_epochs_and_elections(imago: Imago, broker: FakeBroker) -> None:
    listed = imago("shard", "list", "--admin", broker.address).stdout
    assert "replica 0 (h:10911)" in listed
    assert "2 of ?" in listed
    assert "leader died, may have lost data" in listed
    shown = imago("shard", "show", "shard-0", "--admin", broker.address).stdout
    assert "shard-0, epoch 4" in shown
    assert "1970-01-01 00:00:01Z" in shown
    assert imago("shard", "show", "7", "--admin", broker.address).returncode == 1


def test_a_handover_asks_the_master_in_the_epoch_that_was_seen(
    imago: Imago, broker: FakeBroker
) -> None:
    done = imago("shard", "handover", "0", "--to", "1", "--admin", broker.address)
    assert (done.returncode, done.stderr) == (
        0,
        "shard-0: handed over to replica 1 (h:10921), epoch 5\n",
    )
    ((path, body),) = broker.asked
    assert path == "/admin/v1/handover"
    assert (body["brokerId"], body["epoch"], body["target"]) == ("disk-0", 4, "disk-1")
    assert len(body["requestId"]) == 32
    refused = imago("shard", "handover", "0", "--to", "2", "--admin", broker.address)
    assert refused.returncode == 1
    assert "no live member 2" in refused.stderr


def test_a_refusal_is_told_with_its_cure(imago: Imago, broker: FakeBroker) -> None:
    broker.refusal = {"error": "x", "message": "it did not catch up", "cure": "wait"}
    done = imago("shard", "handover", "0", "--admin", broker.address)
    assert done.returncode == 1
    assert done.stderr == "error: it did not catch up\n  cure: wait\n"


def test_an_election_takes_the_longest_log_and_asks_before_data_is_lost(
    imago: Imago, broker: FakeBroker
) -> None:
    refused = imago("shard", "elect", "0", "--admin", broker.address)
    assert refused.returncode == 1
    assert "is led by replica 0" in refused.stderr
    leaderless(broker)
    asked = imago("shard", "elect", "0", "--allow-data-loss", "--admin", broker.address)
    assert asked.returncode == 2
    assert "add --yes" in asked.stderr
    done = imago("shard", "elect", "0", "--allow-data-loss", "--yes", "--admin", broker.address)
    assert done.returncode == 0, done.stderr
    imago("shard", "elect", "0", "--to", "disk-1", "--admin", broker.address)
    chosen = [(body["brokerId"], body["allowDataLoss"]) for _, body in broker.asked]
    assert chosen == [("disk-0", True), ("disk-1", False)]


def test_a_refused_election_names_members_and_the_way_out(imago: Imago, broker: FakeBroker) -> None:
    leaderless(broker)
    message = "nobody can be elected without loss: waiting for disk-2."
    broker.refusal = {"error": "not_elected", "message": message, "cure": "decide anew"}
    done = imago("shard", "elect", "0", "--admin", broker.address)
    assert done.returncode == 1
    said = "error: nobody can be elected without loss: waiting for replica 2.\n  cure: start it\n"
    assert done.stderr == said


@pytest.mark.parametrize(
    "command",
    [
        ("shard", "elect", "0", "--allow-data-loss", "--yes"),
        ("shard", "handover", "0"),
        ("shard", "drain", "0"),
        ("shard", "undrain", "0"),
        ("shard", "remove", "0", "--yes"),
        ("shard", "list"),
        ("shard", "show", "0"),
        ("shard", "drained", "0"),
        ("shard", "list", "--json"),
        ("topic", "move", "orders", "--from", "0", "--to", "1"),
        ("topic", "spread", "orders"),
    ],
    ids=" ".join,
)
def test_without_zookeeper_no_command_takes_old_words_for_true(
    imago: Imago, broker: FakeBroker, command: tuple[str, ...]
) -> None:
    broker.cluster["zooKeeperConnected"] = False
    done = imago(*command, "--admin", broker.address)
    assert done.returncode == 1
    assert "this broker does not reach ZooKeeper: what it shows may be old" in done.stderr
    assert broker.asked == []
    assert "nothing to do" not in done.stderr


def test_a_broker_that_hangs_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change may take longer than a look."""
    monkeypatch.setattr(admin_http, "READ_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # takes connections, says nothing
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(CommandError, match="timed out") as told:
            admin_http.ask(address, "/admin/v1/cluster")
        assert told.value.cure == (
            "that broker hangs or is cut off: give another broker's --admin (IMAGO_ADMIN)"
        )
        monkeypatch.setattr(admin_http, "SECONDS_MAX", 0.05)
        monkeypatch.setattr(admin_http, "READ_SECONDS_MAX", 600)
        with pytest.raises(CommandError, match="timed out"):
            admin_http.ask(address, "/admin/v1/handover", {})


def test_nobody_there_is_said_in_one_sentence(imago: Imago, broker: FakeBroker) -> None:
    broker.close()
    done = imago("cluster", "status", "--admin", broker.address)
    assert done.returncode == 1
    assert f"no admin interface answers at {broker.address}" in done.stderr
    assert "see whether that broker runs, or give another broker's --admin" in done.stderr
    wrong = imago("cluster", "status", "--admin", "file:///etc/passwd")
    assert wrong.returncode == 2
    broker.__init__()  # type: ignore[misc]  # for the fixture to close


def test_the_doctor_sees_shards_without_master_lossy_elections_and_shared_zones() -> None:
    good = list(shard_findings(cluster("a")))
    assert [(f.level, f.message) for f in good] == [
        (CheckLevel.OK, "led by replica 0 at h:10911, 2 members in sync")
    ]
    (alone,) = shard_findings(cluster("a", inSync=["disk-0"]))
    assert alone.message == "led by replica 0 at h:10911, 1 member in sync"
    why = {"why": "nobody leads", "waitsFor": "x", "next": "start it"}
    (bad,) = shard_findings(cluster("a", master=None, explain=why))
    assert (bad.level, bad.cure) == (CheckLevel.ERROR, "start it")
    crowded = [member(n, "a", zone="z1") for n in range(2)]
    still = [member(0, "a", role="master"), member(1, "a", stalled="damaged here")]
    why = {"why": "it stands still: damaged here", "waitsFor": "a whole copy", "next": "do this"}
    (bad,) = shard_findings(cluster("a", members=still, explain=why))
    assert (bad.level, bad.message, bad.cure) == (CheckLevel.ERROR, why["why"], why["next"])
    found = list(shard_findings(cluster("a", unclean=True, members=crowded)))
    assert [f.level for f in found] == [CheckLevel.WARNING, CheckLevel.OK, CheckLevel.WARNING]
    assert "several members are in one zone: z1, z1" in found[2].message
    damaged = cluster("a") | {"refused": {"/imago/c/shards/0/state": "not JSON"}}
    assert next(iter(shard_findings(damaged))).check == "registry"


LEFT: dict[str, Any] = {
    "topicsToMove": 2, "toMove": ["a", "b"], "unreadTopics": 1, "unread": ["%LMQ%c"], "queues": 3,
    "messages": 40, "bytes": 4000, "groups": {"billing": 40}, "unclaimedMessages": 7,
    "delayedMessages": 1, "takesMessagesUntil": 1000, "lastExpiresAt": 2000,
    "blocked": "a: no other shard takes topics",
}  # fmt: skip


def test_a_drain_asks_the_master_and_says_what_is_left(imago: Imago, broker: FakeBroker) -> None:
    broker.cluster = cluster(broker.address, draining=True, cordoned=True, drain=LEFT)
    done = imago("shard", "drain", "0", "--admin", broker.address)
    assert done.returncode == 0, done.stderr
    ((path, body),) = broker.asked
    assert (path, body["brokerId"], body["epoch"]) == ("/admin/v1/drain", "disk-0", 4)
    assert done.stdout.splitlines() == [
        "shard-0: 2 topics to move, 1 to read out (3 queues, 40 messages, 4000 bytes)",
        "  blocked: a: no other shard takes topics",
        "  to move: a, b",
        "  to read out: %LMQ%c",
        "  a light queue that nobody needs: DELETE /admin/v1/topics/%25LMQ%25c ends it",
        "  group billing has 40 messages to read",
        "  producers that have not looked are served until 1970-01-01 00:00:01Z",
        "  7 messages that no group reads",
        "  1 message to deliver later",
        "  the last of them expires after 1970-01-01 00:00:02Z",
    ]
    shown = imago("cluster", "status", "--admin", broker.address)
    assert "shard-0 is cordoned and draining" in shown.stdout
    assert imago("shard", "drained", "0", "--admin", broker.address).returncode == 1


def test_a_drained_shard_may_go_once_it_is_stopped(imago: Imago, broker: FakeBroker) -> None:
    broker.cluster = cluster(broker.address, draining=True, drained=True, drain=None)
    done = imago("shard", "drained", "0", "--wait", "--admin", broker.address)
    assert (done.returncode, broker.asked) == (0, [])
    assert done.stdout == "shard-0 is drained: stop its brokers, then imago shard remove shard-0\n"
    running = imago("shard", "remove", "0", "--yes", "--admin", broker.address)
    assert (running.returncode, broker.asked) == (1, [])
    assert "still runs at h:10911, h:10921" in running.stderr
    broker.cluster = cluster(broker.address, draining=True, drained=True, members=[], master=None)
    asked = imago("shard", "remove", "0", "--admin", broker.address)
    assert "add --yes" in asked.stderr
    imago("shard", "remove", "0", "--yes", "--admin", broker.address)
    assert [path for path, _ in broker.asked] == ["/admin/v1/shards/0/remove"]


def test_a_move_names_its_shards(imago: Imago, broker: FakeBroker) -> None:
    imago(
        "topic",
        "move",
        "a|b",
        "--from",
        "0",
        "--to",
        "1, shard-2",
        "--json",
        "--admin",
        broker.address,
    )
    ((path, body),) = broker.asked
    assert path == "/admin/v1/topics/a%7Cb/move"
    assert (body["to"], body["brokerId"], body["epoch"]) == (["1", "shard-2"], "disk-0", 4)


def test_waiting_for_a_drain_prints_news_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {
        "topicsToMove": 0, "unreadTopics": 0, "queues": 0, "messages": 0, "bytes": 0,
        "toMove": [], "unread": [], "takesMessagesUntil": None, "unclaimedMessages": 0,
        "delayedMessages": 0, "lastExpiresAt": None, "groups": {},
    }  # fmt: skip
    shard = {"id": 0, "name": "shard-0", "draining": True, "drained": False}
    looks = [shard | {"drain": left | {"blocked": f"for {n} s more, they may"}} for n in (9, 7, 5)]
    looks += [shard | {"draining": False, "drain": None}]
    answers = iter(looks)
    monkeypatch.setattr(moves, "LOOK_SECONDS", 0)
    monkeypatch.setattr(moves, "ask", lambda *_: {"shards": [next(answers)]})
    with pytest.raises(CommandError, match="shard-0 is not being drained") as told:
        moves._wait("http://h", "0", as_json=False)
    assert told.value.cure == "imago shard drain shard-0"
    assert capsys.readouterr().out.count("blocked: ") == 1
