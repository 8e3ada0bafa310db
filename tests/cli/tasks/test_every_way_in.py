"""One of two shards is dead: every command and every route is asked for its truth.

Both are taken from the tables of the code: a new one has to be put down here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.cli.tasks.test_shard_away import SECONDS_MAX, has_no_master

from imago_broker.admin.routes import ROUTES
from imago_cli import commands
from imago_cli.clusters.admin_http import ask
from imago_cli.line.declared import all_commands
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from tests.cli.tasks.conftest import Shell, TwoShards

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

AWAY: Final = "shard-1"
API: Final = "/admin/v1/"
SAID: Final[dict[str, Any]] = {
    "GET cluster": None,
    "GET cluster/topics": None,
    "GET cluster/topics/{topic}": None,
    "GET cluster/groups": None,
    "GET cluster/groups/{group}": None,
    "GET cluster/brokers": None,
    "GET cluster/clients": None,
    "GET cluster/scheduled": None,
    "GET cluster/halves": None,
    "GET audit": None,
    "GET history": None,
    "GET live": None,
    "GET messages": None,
    "GET shards/{shard}/remaining": None,
    "DELETE cluster/clients/{client}": None,
    "PUT topics/{topic}": {"queues": 3},
    "DELETE topics/{topic}": None,
    "POST topics/{topic}/move": {"from": 1, "to": [0]},
    "POST topics/{topic}/spread": {"to": [0, 1]},
    "PUT groups/{group}": {"retry_max_times": 3},
    "POST groups/{group}/reset": {"topic": "orders", "to": "latest"},
    "POST groups/{group}/replay": {},
    "DELETE groups/{group}": None,
    "PUT users/{user}": {"password": "long enough, is it not", "enabled": True},
    "DELETE users/{user}": None,
    "POST users/{user}/tokens": {"note": "n", "expiresSeconds": 3600},
    "DELETE users/{user}/tokens/{number}": None,
    "PUT quotas/{subject}": {"quotas": {"producerBytesPerSecond": 1000}},
    "DELETE quotas/{subject}": None,
    "PUT access": {"whiteAddresses": ["10.0.0.1"]},
}
"""Routes about the whole cluster, with what is sent: each answer names the shard that is away."""
QUERIES: Final = {
    "GET live": "?path=/admin/v1/cluster/topics",
    "GET messages": "?topic=orders&newest=true",
}
PLACES: Final = {
    "topic": "orders",
    "group": "billing",
    "client": "nobody",
    "shard": "1",
    "user": "ann",
    "number": "1",
    "subject": "user:ann",
}
OF_ONE: Final = re.compile(
    r"(GET|POST) /($|dashboard/|healthz|livez|readyz|writez|metrics|login|logout)"
    r"|\w+ /\{function:"
    r"|GET /admin/v1/(session|status|shard|restart-check|restart-done|pipelines/|topics|groups"
    r"|readers|users|quotas|access|metaq|config|features|cluster/backups)"
    r"|POST /admin/v1/(handover|elect|cordon|uncordon|drain|undrain|shards/|operator-epoch|features"
    r"|pipelines/|topics/\{topic\}/(open|seal)|readers|access/exchange|metaq/|messages)"
    r"|PATCH /admin/v1/config"
    r"|(POST|DELETE) /admin/v1/(cluster/backups|fence)"
)
"""Routes about the broker that is asked, its own shard, a shard's mark, what the registry has or a
bucket."""
COMMANDS: Final[dict[str, str]] = {
    "cluster status": "",
    "cluster explain": "",
    "cluster top": "",
    "cluster features": "",
    "cluster report": "--file {folder}/report.tar.gz",
    "shard list": "",
    "shard show": "1",
    "topic list": "",
    "topic describe": "orders",
    "topic create": "fresh --queues 1",
    "topic alter": "orders --queues 2",
    "export": "",
    "group list": "",
    "group describe": "billing",
    "group reset": "billing orders --to latest --yes",
    "group pause": "billing --yes",
    "group resume": "billing",
    "client list": "",
    "client kill": "nobody --yes",
    "consume": "orders",
    "message get": "--topic orders --key nothing",
    "message scheduled": "",
    "message half": "",
    "dlq list": "",
    "dlq show": "billing",
    "dlq replay": "billing --yes",
    "config get": "",
    "config set": "acknowledgement.timeout_ms=5000 --live",
    "user allow": "ann topic:orders publish",
    "group delete": "billing --yes",
    "topic delete": "orders --yes",
}
"""Commands about the whole cluster: each names the shard that is away, and ends with 1."""
OTHERS: Final = re.compile(
    r"(up|down|demo|backup \w+|mirror \w+|security init|produce|request|profile \w+|bench"
    r"|broker|namesrv|operator"
    r"|log \w+|config (show|defaults|convert)|doctor|spark|java-home|watch)$"
    r"|shard (handover|elect|drain|undrain|drained|remove)$|metaq "
    r"|(apply|topic (move|spread)|group mode|message (resend|recall|trace))$|user (?!allow)"
)
"""Commands that are about this machine, one message, one broker or one shard, or make what the
routes above make."""


def test_no_route_and_no_command_is_left_out() -> None:
    routes = {f"{method} {path}" for method, path, _, _ in ROUTES}
    asked = {f"{m} {API}{p}" for m, _, p in (one.partition(" ") for one in SAID)}
    assert asked - routes == set()
    assert [one for one in routes - asked if not OF_ONE.match(one)] == []
    assert [one for one in asked if OF_ONE.match(one) and one.startswith("PATCH")] == []
    trees = [commands.build(name) for name in commands.COMMANDS]
    there = {" ".join(path) for tree in trees for path, _ in all_commands(tree)}
    assert COMMANDS.keys() - there == set()
    assert [one for one in there - COMMANDS.keys() if not OTHERS.match(one)] == []


@pytest.fixture(scope="module")
def half(two_shards: TwoShards) -> TwoShards:
    """The cluster with messages on both shards, a user and a group, once the second was killed."""
    from imago_client import Message, ResetTo
    from imago_client.blocking import Client

    admin = two_shards.brokers[0]["admin"]
    with Client(two_shards.running.ready["namesrv"]) as client:
        for topic in ("orders", "%DLQ%billing", "%RETRY%billing"):
            client.admin.create_topic(topic, queues=1)
            client.admin.reset_group("billing", topic, ResetTo.EARLIEST)
        for number in range(4):
            client.producer().send(Message("orders", b"%d" % number))
    for user in ("ann", "eve"):
        ask(admin, f"{API}users/{user}", {"password": "long enough, is it not"}, method="PUT")
    os.kill(two_shards.brokers[1]["pid"], signal.SIGKILL)
    wait_until(lambda: has_no_master(admin, 1), seconds_max=SECONDS_MAX, what="shard-1 is missed")
    return two_shards


@pytest.mark.parametrize("route", SAID)
def test_a_route_names_the_shard_that_is_away(half: TwoShards, route: str) -> None:
    method, _, path = route.partition(" ")
    places = PLACES | ({"user": "eve"} if method == "DELETE" else {})
    path = re.sub(r"\{(\w+)\}", lambda found: places[found[1]], path) + QUERIES.get(route, "")
    sent = None if SAID[route] is None else json.dumps(SAID[route]).encode()
    request = urllib.request.Request(
        half.brokers[0]["admin"] + API + path,
        data=sent,
        method=method,
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, said = answer.status, (answer.readline() if "live" in path else answer.read())
    except urllib.error.HTTPError as error:
        with error:
            status, said = error.code, error.read()
    assert AWAY in said.decode(), (status, said)
    if method == "GET" and status == 200 and route not in ("GET cluster", "GET live"):
        assert [one["shard"] for one in json.loads(said)["missing"]] == [AWAY]
    if method in ("PUT", "DELETE") and "clients" not in path:
        assert status in (502, 503), (status, said)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_shard_that_is_away(
    half: TwoShards, shell: Shell, command: str, tmp_path: Any
) -> None:
    del half
    ended = shell.run(*command.split(), *COMMANDS[command].format(folder=tmp_path).split())
    assert AWAY in ended.stdout + ended.stderr, ended
    told = ("cluster explain", "cluster report", "shard list", "shard show")
    if command not in told:  # they say of each shard how it is
        assert ended.returncode == 1, ended
