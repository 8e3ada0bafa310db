"""What a person sees of a whole cluster at once, and hands on to who was not there."""

from __future__ import annotations

import json
import os
import signal
import stat
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from imago_cli.clusters import missing, report
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.tasks.conftest import Shell, TwoShards

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def filled(two_shards: TwoShards) -> None:
    from imago_client import Message
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        client.admin.create_topic("orders", queues=1)
        client.producer().send(Message("orders", b"the body of a message"))
        client.admin.reset_group("billing", "orders", "earliest")


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        assert {one.mode for one in archive} == {0o600}
        found = {}
        for one in archive:
            file = archive.extractfile(one)
            assert file is not None
            found[one.name.partition("/")[2]] = file.read().decode()
        return found


@pytest.mark.usefixtures("filled")
def test_top_shows_every_member_as_often_as_is_said(shell: Shell) -> None:
    shown = shell.done("cluster", "top")
    assert [shown.count(name) for name in ("shard-0", "shard-1", "memory MB")] == [1, 1, 1]
    both = shell.json("cluster", "top", "--count", "2", "--every", "0.5")
    for one in both:
        assert [member["shard"] for member in one["members"]] == ["shard-0", "shard-1"]
        assert {member["role"] for member in one["members"]} == {"master"}
        assert all(member["messagesInPerSecond"] >= 0 for member in one["members"])


@pytest.mark.usefixtures("filled")
def test_a_report_has_what_brokers_say_and_no_message(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    assert f"{path}: " in shell.done("cluster", "report", "-f", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = read(path)
    assert "missing.txt" not in files
    assert {one["name"] for one in json.loads(files["topics.json"])} == {"orders"}
    assert "billing" in files["groups.json"]
    for shard in ("shard-0", "shard-1"):
        assert json.loads(files[f"brokers/{shard}-0/config.json"])
    assert "the body of a message" not in "".join(files.values())
    ended = shell.run("cluster", "report", "-f", path)
    assert (ended.returncode, "exists" in ended.stderr) == (2, True)


@pytest.mark.usefixtures("filled")
def test_a_list_that_is_too_long_is_cut_and_that_is_said(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "PAGES_MAX", 0)
    path = tmp_path / "report.tar.gz"
    shell.done("cluster", "report", "-f", path)
    assert "topics.json: what is behind page 0\n" in read(path)["missing.txt"]


def test_clients_are_listed_and_ended_by_name(
    shell: Shell, two_shards: TwoShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    from imago_client import Message
    from imago_client.blocking import Client

    with Client(two_shards.running.ready["namesrv"]) as client:
        client.admin.create_topic("bills", queues=1)
        client.producer().send(Message("bills", b"x"))
        listed = shell.json("client", "list")
        assert listed["missing"] == []
        monkeypatch.setattr(missing, "PAGE_LIMIT", 1)
        names = [one["name"] for one in listed["clients"]]
        assert len(names) > 1
        assert [one["name"] for one in shell.json("client", "list")["clients"]] == names
        found = listed["clients"][0]
        assert [one["protocol"] for one in found["connections"]] == ["rocketmq"]
        assert shell.json("client", "list", "--group", "nobody")["clients"] == []
        ended = shell.run("client", "kill", found["name"])
        assert (ended.returncode, "add --yes" in ended.stderr) == (2, True)
        assert f"Close 1 connection of client {found['name']}?" in ended.stderr
        near = shell.run("client", "kill", found["name"] + "0", "--yes")
        assert (near.returncode, f"did you mean {found['name']}?" in near.stderr) == (1, True)
        closed = shell.json("client", "kill", found["name"], "--yes")
        assert sum(one["connections"] for one in closed["items"]) == 1
    gone = shell.run("client", "kill", found["name"], "--yes")
    assert (gone.returncode, "no client" in gone.stderr) == (1, True)


@pytest.mark.usefixtures("filled")
def test_topics_and_groups_become_as_a_file_says(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(before := shell.done("export"))
    tree = yaml.safe_load(before)
    assert tree["topics"]["orders"]["queues"] == 1
    assert "billing" in tree["groups"]
    assert shell.json("export") == tree
    assert "nothing differs" in shell.run("apply", "-f", file).stderr
    tree["topics"]["orders"]["queues"] = 2
    tree["topics"]["invoices"] = {"queues": 3, "attributes": {"retention.ms": "7d"}}
    tree["groups"]["billing"]["retry_max_times"] = 5
    tree["groups"]["clerks"] = {}
    file.write_text(json.dumps(tree))
    wanted = [
        "topic orders: queues 1 -> 2",
        "topic invoices: new, queues 3, retention.ms 604800000",
        "group billing: retry_max_times 16 -> 5",
        "group clerks: new",
    ]
    dry = shell.run("apply", "-f", file, "--dry-run")
    assert (dry.stdout.splitlines(), "4 changes would be made" in dry.stderr) == (wanted, True)
    assert shell.done("export") == before
    done = shell.run("apply", "-f", file)
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted)
    wait_until(
        lambda: "nothing differs" in shell.run("apply", "-f", file, "--dry-run").stderr,
        seconds_max=SECONDS_MAX,
        what="the registry has what the shards say",
    )
    after = shell.json("export")
    assert after["topics"]["invoices"]["queues"] == 3
    assert after["groups"]["billing"]["retry_max_times"] == 5


@pytest.mark.usefixtures("filled")
def test_what_a_file_lacks_goes_by_a_prune_alone(shell: Shell, tmp_path: Path) -> None:
    file, bad = tmp_path / "before.yaml", tmp_path / "bad.yaml"
    file.write_text(before := shell.done("export"))
    bad.write_text("topics:\n  orders: {queue: 1}\n")
    ended = shell.run("apply", "-f", bad)
    assert (ended.returncode, "topic orders: no such key: queue" in ended.stderr) == (2, True)
    more = tmp_path / "more.json"
    more.write_text('{"topics": {"prunes": {}}, "groups": {"pruned": {}}}')
    shell.done("apply", "-f", more)
    wait_until(
        lambda: "prunes" in shell.json("export")["topics"],
        seconds_max=SECONDS_MAX,
        what="the registry has the topic",
    )
    asked = shell.run("apply", "-f", file, "--prune")
    assert (asked.returncode, "add --yes" in asked.stderr) == (2, True)
    assert "Delete 1 topic with all messages (prunes) and 1 group with all" in asked.stderr
    assert "prunes" in shell.json("export")["topics"], "nothing was changed before it asked"
    pruned = shell.json("apply", "-f", file, "--prune", "--yes")
    assert [(one["name"], one["change"]) for one in pruned["changes"]] == [
        ("prunes", "delete"),
        ("pruned", "delete"),
    ]
    wait_until(
        lambda: shell.done("export") == before,
        seconds_max=SECONDS_MAX,
        what="the cluster is as the file says",
    )


@pytest.mark.usefixtures("filled")
def test_what_is_away_is_said_by_both(shell: Shell, two_shards: TwoShards, tmp_path: Path) -> None:
    os.kill(two_shards.brokers[1]["pid"], signal.SIGKILL)

    def is_said() -> bool:
        ended: Any = shell.run("cluster", "top")
        return ended.returncode == 1 and "missing: shard-1" in ended.stderr

    wait_until(is_said, seconds_max=SECONDS_MAX, what="a shard is away")
    assert shell.run("cluster", "top", "--partial").returncode == 0
    listed = shell.run("client", "list")
    assert (listed.returncode, "missing: shard-1" in listed.stderr) == (1, True)
    assert shell.run("client", "list", "--partial").returncode == 0
    file = tmp_path / "none.yaml"
    file.write_text(shell.run("export", "--partial").stdout)
    refused = shell.run("apply", "-f", file, "--prune", "--yes")
    assert (refused.returncode, "made while shards were away" in refused.stderr) == (2, True)
    file.write_text("groups: {}")
    pruned = shell.run("apply", "-f", file, "--prune", "--yes")
    assert (pruned.returncode, "nothing was changed" in pruned.stderr) == (1, True)
    path = tmp_path / "report.tar.gz"
    assert "not read, see missing.txt" in shell.done("cluster", "report", "-f", path)
    assert "shard-1" in read(path)["missing.txt"]
