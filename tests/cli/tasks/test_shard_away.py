"""One of two shards is dead: every command and every list of the cluster says so."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from imago_cli.clusters.admin_http import ask
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from tests.cli.tasks.conftest import Shell, TwoShards

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SECONDS_MAX = 60
MESSAGES = 20
ANSWERS: list[tuple[str, ...]] = [
    ("topic", "list"),
    ("topic", "describe", "orders"),
    ("group", "list"),
    ("group", "describe", "billing"),
    ("consume", "orders", "--count", str(MESSAGES)),
]
"""Commands that answer for the whole cluster, or for a topic on both shards."""
CHANGES: list[tuple[str, ...]] = [
    ("group", "reset", "billing", "orders", "--to", "latest", "--yes"),
    ("group", "delete", "billing", "--yes"),
    ("topic", "delete", "orders", "--yes"),
]


def has_no_master(admin: str, shard: int) -> bool:
    return ask(admin, "/admin/v1/cluster")["shards"][shard]["master"] is None


@pytest.fixture(scope="module")
def half(two_shards: TwoShards) -> TwoShards:
    """The cluster once it has messages on both shards, and the second one has been killed."""
    from imago_client import Message, ResetTo
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        client.admin.create_topic("orders", queues=1)
        client.admin.create_topic("here", queues=1)
        producer = client.producer()
        for number in range(MESSAGES):
            producer.send(Message("orders", b"%d" % number))
        client.admin.reset_group("billing", "orders", ResetTo.EARLIEST)
    os.kill(two_shards.brokers[1]["pid"], signal.SIGKILL)
    admin = two_shards.brokers[0]["admin"]
    wait_until(lambda: has_no_master(admin, 1), seconds_max=SECONDS_MAX, what="shard-1 is missed")
    return two_shards


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("arguments", ANSWERS, ids=" ".join)
def test_an_answer_for_the_living_half_says_so(shell: Shell, arguments: tuple[str, ...]) -> None:
    ended = shell.run(*arguments)
    assert ended.returncode == 1, ended
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("missing: ")]
    assert said.startswith("missing: shard-1 is away since 20"), said
    assert "shard-1 has no live member" in said
    accepted = shell.run(*arguments, "--partial")
    assert (accepted.returncode, said) == (0, accepted.stderr.splitlines()[-1])


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("arguments", [("group", "describe"), ("dlq", "show")])
def test_no_group_is_not_said_while_a_shard_is_away(
    shell: Shell, arguments: tuple[str, ...]
) -> None:
    ended = shell.run(*arguments, "nobody")
    assert ended.returncode == 1, ended
    assert "missing: shard-1 is away" in ended.stderr
    assert "there is no group" not in ended.stderr


@pytest.mark.usefixtures("half")
def test_json_has_the_missing_shards(shell: Shell) -> None:
    import json

    for arguments in (("topic", "describe", "orders"), ("group", "describe", "billing")):
        (missing,) = json.loads(shell.run(*arguments, "--json").stdout)["missing"]
        assert missing["shard"] == "shard-1"
        assert missing["since"] > 0


def test_the_lists_of_the_admin_interface_carry_it(half: TwoShards) -> None:
    admin = half.brokers[0]["admin"]
    before = None
    for what in ("topics", "groups"):
        body = ask(admin, f"/admin/v1/cluster/{what}")
        (missing,) = body["missing"]
        assert missing["shard"] == "shard-1"
        assert "no live member" in missing["why"]
        assert before in (None, missing["since"])
        before = missing["since"]
    topic = next(t for t in ask(admin, "/admin/v1/cluster/topics")["items"] if t["name"] == "here")
    assert [each["online"] for each in topic["shards"]] == [True, False]


@pytest.mark.usefixtures("half")
def test_a_change_that_is_not_made_everywhere_says_so(shell: Shell) -> None:
    for arguments in CHANGES:
        ended = shell.run(*arguments)
        assert ended.returncode == 1, ended
        assert "missing: shard-1 is away" in ended.stderr
        assert "not deleted" in ended.stderr or "as it was" in ended.stderr


def test_nothing_is_missing_of_what_the_dead_shard_never_had(half: TwoShards, shell: Shell) -> None:
    admin = half.brokers[0]["admin"]
    body: dict[str, Any] = {"queues": 1, "shards": [0]}
    ask(admin, "/admin/v1/topics/living", body, method="PUT")

    def is_told() -> bool:
        return shell.run("topic", "describe", "living").returncode == 0

    wait_until(is_told, seconds_max=SECONDS_MAX, what="the name service tells of the topic")
    assert "missing" not in shell.run("consume", "living").stderr
