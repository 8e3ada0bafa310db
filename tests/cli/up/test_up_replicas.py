"""`imago up --replicas`: members of a shard as real processes, with a real ZooKeeper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.clusters.admin_http import ask
from imago_client import Message, MessageQueue
from imago_client.blocking import Client
from imago_testing.interop.members import Members
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_testing.interop.members import Member

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SECONDS_MAX = 60


def command(admin: str, *arguments: str) -> dict[str, Any]:
    """Run a command of shards; return its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "imago_cli", *arguments, "--json", "--admin", admin],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def shard(admin: str) -> dict[str, Any]:
    found: dict[str, Any] = command(admin, "cluster", "status")["shards"][0]
    return found


def roles(ready: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(b["shard"], b["replica"], b["role"]) for b in ready["brokers"]]


def test_a_shard_of_three_fails_over_hands_over_and_comes_back(tmp_path: Path) -> None:
    data, base = tmp_path / "data", free_port_block(40)
    options = ["--replicas", "3", "--port-base", str(base)]
    options += ["--set", "zookeeper.session_timeout_ms=2000"]
    with up(data, *options) as running:
        brokers = running.ready["brokers"]
        assert sorted(role for _, _, role in roles(running.ready)) == ["master", "slave", "slave"]
        assert [b["replica"] for b in brokers] == [0, 1, 2]
        folders = [data / name for name in ("shard-0", "shard-0-1", "shard-0-2")]
        assert [b["data"] for b in brokers] == [str(folder) for folder in folders]
        with Client(running.ready["namesrv"]) as client:
            client.admin.create_topic("orders", queues=1)
        first = next(b for b in brokers if b["role"] == "master")
        admin = next(b["admin"] for b in brokers if b is not first)
        kill_the_master(first["pid"], admin)
        leading = hand_over(admin)
        assert running.stop() == 0
    logs = [path.read_text() for path in (data / "logs").glob("shard-*.log")]
    assert len(logs) == 3
    assert all("clean=True" in text for text in logs)
    comes_back(data, leading)


def kill_the_master(pid: int, admin: str) -> None:
    """After a kill -9 somebody leads a later epoch, and the killed one catches up."""
    before = shard(admin)["epoch"]
    os.kill(pid, signal.SIGKILL)

    def healed() -> bool:
        now = shard(admin)
        led = now["epoch"] > before and now["master"] is not None
        return led and len(now["inSync"]) == len(now["members"]) == 3

    wait_until(healed, seconds_max=SECONDS_MAX, what="the shard has healed")
    assert "orders" in topics(admin), "what was written before is there"


def hand_over(admin: str) -> int:
    """Hand leadership to a member that is named; return the epoch in which it leads."""
    now = shard(admin)
    target = next(m for m in now["members"] if m["uuid"] != now["master"])
    answer = command(admin, "shard", "handover", "shard-0", "--to", str(target["replica"]))
    assert answer["handedOver"] is True
    after = shard(admin)
    assert after["master"] == target["uuid"]
    assert after["elections"][0]["cause"] == "handover"
    return int(after["epoch"])


def comes_back(data: Path, leading: int) -> None:
    """The same folder is the same cluster, in a later epoch and with nothing lost."""
    with up(data) as running:
        assert len(running.ready["brokers"]) == 3
        admin = running.ready["brokers"][0]["admin"]
        again = shard(admin)
        assert again["epoch"] > leading
        assert again["unclean"] is False
        assert "orders" in topics(admin)
        assert running.stop() == 0


@contextmanager
def still(*members: Member) -> Iterator[None]:
    """Have processes stand still for as long as the block lasts."""
    for member in members:
        member.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for member in members:
            with suppress(ProcessLookupError):
                member.signal(signal.SIGCONT)


def elected_by_a_person(admin: str) -> None:
    """Nobody leads by himself; with the option somebody does, and it stays on record."""
    wait_until(
        lambda: len(shard(admin)["members"]) == 2 and shard(admin)["master"] is None,
        seconds_max=SECONDS_MAX,
        what="two members are there, and no master",
    )
    before = shard(admin)
    assert "no live member is known to have all acknowledged messages" in before["explain"]["why"]
    assert "--allow-data-loss" in before["explain"]["next"]
    refused = imago("shard", "elect", "shard-0", "--admin", admin)
    assert refused.returncode == 1, refused.stderr
    assert shard(admin)["master"] is None
    elect = ("shard", "elect", "shard-0", "--allow-data-loss", "--yes", "--admin", admin)
    # What a member has said of its log may be old by now: then another is named, and asked next.
    said: list[str] = []

    def leads() -> bool:
        done = imago(*elect)
        said.append(done.stderr)
        return done.returncode == 0

    try:
        wait_until(leads, seconds_max=SECONDS_MAX, what="a member leads")
    except TimeoutError:
        pytest.fail(f"nobody leads; said last: {said[-3:]}")
    after = shard(admin)
    assert after["master"] in {member["uuid"] for member in before["members"]}
    assert (after["epoch"], after["unclean"]) == (before["epoch"] + 1, True)
    assert after["elections"][0]["unclean"] is True


def imago(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "imago_cli", *arguments],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


def topics(admin: str) -> set[str]:
    return {item["name"] for item in ask(admin, "/admin/v1/topics")["items"]}


@pytest.mark.full
def test_a_member_that_lacks_messages_leads_only_where_a_person_says_so(tmp_path: Path) -> None:
    options = ["--replicas", "3", "--port-base", str(free_port_block(40))]
    with ExitStack() as stack:
        running = stack.enter_context(up(tmp_path / "data", *options))
        members = Members(running.ready)
        members.settled(3)
        first = members.master("shard-0")
        assert first is not None
        others = [member for member in members.shards["shard-0"] if member is not first]
        client = stack.enter_context(Client(running.ready["namesrv"]))
        with still(*others):
            wait_until(
                lambda: members.in_sync("shard-0") == 1,
                seconds_max=SECONDS_MAX,
                what="the first is in sync with itself only",
            )
            level = {"queues": 1, "acknowledgement": "leader"}
            assert first.ask("/admin/v1/topics/alone", "PUT", level) is not None
            queue = MessageQueue("alone", "shard-0", 0)
            client.producer().send(Message("alone", b"only the first has it"), queue=queue)
            first.signal(signal.SIGSTOP)
            # What was on its way to them must not reach them: it ends with their sockets.
            for member in others:
                member.signal(signal.SIGKILL)
        stack.callback(first.signal, signal.SIGCONT)
        wait_until(
            lambda: all(member.ask("/admin/v1/status") is not None for member in others),
            seconds_max=SECONDS_MAX,
            what="the other two are there again",
        )
        elected_by_a_person(others[0].admin)
        told = imago("doctor", "--json", "--data", str(tmp_path / "data"))
        assert "may have lost acknowledged messages" in told.stdout
        first.signal(signal.SIGCONT)
        members.settled(3)
        assert first.ask("/admin/v1/status")["role"] == "slave"
        assert "alone" not in topics(others[0].admin), "it is lost, as was said"
        stack.pop_all().close()
