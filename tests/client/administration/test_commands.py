"""The commands that are clients: topic, group, produce, consume."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.config.sections.cluster_sections import ZookeeperSection
from imago_broker.features.pop.request_modes import RequestMode
from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.messages.produce import SEND_TIMEOUT_S
from imago_client import Message
from imago_testing.command_lines import run_line
from imago_testing.peers.features import pop_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_client import Client, ReceivedMessage
    from imago_testing.command_lines import Ran

    RunBody = Callable[[Callable[["Commands"], None]], Any]


class Commands:
    """Runs commands against the test's broker."""

    def __init__(self, bootstrap: str, metaq: str) -> None:
        self._env = {"IMAGO_BOOTSTRAP": bootstrap, "IMAGO_METAQ": metaq, "COLUMNS": "160"}

    def run(self, line: str, stdin: str | bytes | None = None) -> Ran:
        return run_line(line.split(), stdin, self._env)

    def ok(self, line: str, stdin: str | bytes | None = None) -> str:
        result = self.run(line, stdin)
        if result.exception:
            raise result.exception
        assert result.exit_code == Exit.DONE
        return result.stdout

    def json(self, line: str) -> Any:
        return json.loads(self.ok(line + " --json"))

    def rows(self, line: str) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.ok(line + " --json").splitlines()]


@pytest.fixture
def commands(bootstrap: str, metaq_server: str) -> RunBody:
    """Run a test's body beside the broker's loop."""
    made = Commands(bootstrap, metaq_server)
    return lambda body: asyncio.to_thread(body, made)


async def test_topics_are_created_listed_described_and_deleted(
    commands: RunBody,
) -> None:
    def body(run: Commands) -> None:
        assert run.json("topic create orders --queues 3") == {
            "topic": "orders",
            "queues": 3,
            "shards": ["shard-0"],
        }
        assert run.json("topic list") == [{"topic": "orders", "shards": 1, "queues": 3}]
        assert "TBW102" in run.ok("topic list --all")
        run.ok("produce orders a b c")
        described = run.json("topic describe orders")
        assert sum(queue["maxOffset"] for queue in described["queues"]) == 3
        assert "3 messages" in run.ok("topic describe orders")
        (held,) = run.json("topic list --long")
        assert held["messages"] == 3
        assert held["updatedMs"] == max(queue["updatedMs"] for queue in described["queues"])
        run.ok("group reset billing orders --to earliest --create --yes")
        assert run.json("topic describe orders")["lag"] == {"billing": 3}
        told = run.ok("topic describe orders --look 0.01")
        assert "it gets 0.0 messages a second\nlag: billing 3" in told
        run.ok("topic delete orders --yes")
        assert run.json("topic list") == []

    await commands(body)


async def test_what_goes_in_by_one_protocol_comes_out_by_both(
    commands: RunBody,
) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 1")
        run.ok("produce orders --tags paid --key k", "one\ntwo\n")
        run.ok("produce orders --protocol metaq --tags sent --in-flight 1", b"three\nfo\xffur\n")
        rows = run.rows("consume orders")
        assert [row.get("body") for row in rows] == ["one", "two", "three", None]
        assert rows[3]["bodyBase64"] == "Zm//dXI="
        assert [row["tags"] for row in rows] == ["paid", "paid", "sent", "sent"]
        assert rows[0]["keys"] == ["k"]
        by_metaq = run.rows("consume orders --protocol metaq")
        assert [row.get("body") for row in by_metaq] == ["one", "two", "three", None]
        assert [row["attribute"] for row in by_metaq] == ["paid", "paid", "sent", "sent"]
        assert run.ok("consume orders --tags paid --count 1") == "one\n"
        assert run.ok("consume orders --filter TAGS='sent' --count 1") == "three\n"
        assert run.ok("consume orders --from latest") == ""

    await commands(body)


async def test_group_goes_on_where_it_stopped_and_can_be_moved(
    commands: RunBody,
) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 1")
        run.ok("produce orders 1 2 3 4 5 --in-flight 1")
        assert run.ok("consume orders --group g --count 2") == "1\n2\n"
        assert run.ok("consume orders --group g --count 2") == "3\n4\n"
        assert run.json("group describe g")["lag"] == 1
        assert {row["group"]: row["lag"] for row in run.json("group list")}["g"] == 1
        assert "lag 1" in run.ok("group describe g")
        moved = run.json("group reset g orders --to earliest --yes")
        assert moved["queues"] == [{"shard": "shard-0", "queue": 0, "offset": 0, "before": 4}]
        assert run.ok("consume orders --group g --count 1") == "1\n"
        run.ok("group delete g --yes")
        assert "g" not in {row["group"] for row in run.json("group list")}
        assert run.ok("consume orders --group g --count 1") == "1\n", "it begins anew"

    await commands(body)


async def test_metaq_group_keeps_its_place_in_a_file(commands: RunBody, tmp_path: Path) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 1")
        run.ok("produce orders 1 2 3 --protocol metaq --in-flight 1")
        line = f"consume orders --protocol metaq --group g --offsets {tmp_path / 'offsets.json'}"
        assert run.ok(f"{line} --count 2") == "1\n2\n"
        assert run.ok(f"{line} --count 1") == "3\n"

    await commands(body)


async def test_repeated_message_is_counted(
    commands: RunBody,
) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 2")
        sent = run.json("produce orders hello --count 100 --in-flight 8")
        assert (sent["sent"], sent["bytes"]) == (100, 500)
        assert run.ok("consume orders") == "hello\n" * 100
        assert len(run.ok("consume orders --follow --count 60").splitlines()) == 60

    await commands(body)


@pytest.mark.parametrize(
    ("line", "kind", "why"),
    [
        ("topic describe nothing", CommandError, "no topic nothing"),
        ("topic delete nothing --yes", CommandError, "no topic nothing"),
        ("topic create no!name", CommandUsageError, "only letters"),
        ("group describe nothing", CommandError, "no group nothing"),
        ("group reset g orders --to soon --yes", CommandUsageError, "no place in a topic"),
        ("produce orders x --protocol metaq --key k", CommandUsageError, "have no keys"),
        ("consume orders --offsets f", CommandUsageError, "only with --protocol metaq"),
        ("consume orders --protocol metaq --tags a", CommandUsageError, "do not filter"),
        ("consume orders --protocol metaq --filter a=1", CommandUsageError, "--filter: MetaQ"),
        ("consume orders --tags a --filter a=1", CommandUsageError, "not beside --tags"),
    ],
)
async def test_mistakes_are_told_with_their_cause(
    commands: RunBody,
    line: str,
    kind: type[CommandError],
    why: str,
) -> None:
    def body(run: Commands) -> None:
        error = run.run(line).exception
        assert type(error) is kind
        assert why in str(error)

    await commands(body)


@pytest.mark.parametrize(
    ("line", "code", "why", "cure"),
    [
        ("topic create orders", 1, "the topic orders exists already", "imago topic alter orders"),
        ("topic create orders --if-absent --queues 3", 1, "already, with 2 queues", "topic alter"),
        ("topic alter orders", 2, "nothing to change", "--queues"),
        ("topic alter ordrs --queues 4", 1, "no topic ordrs", "did you mean orders?"),
        ("topic alter orders --queues 1", 1, "2 messages would be hidden", "--hide-messages"),
        ("topic alter orders --set nonsense=1", 2, "no setting nonsense", "retention.ms"),
        ("topic alter orders --set retention=1h", 2, "no setting retention", "retention.ms"),
        ("topic create o --set retention_ms=1h", 2, "no setting", "did you mean retention.ms?"),
        ("topic create o --set retention.ms=7", 2, "that is 7 ms", "retention.ms=7d"),
        ("topic create o --set retention.ms=soon", 2, "whole number", "1h30m"),
        ("topic create o --set retention.bytes=1h", 2, "whole number", "64MiB"),
        ("topic create o --set retention.ms", 2, "is not name=value", "retention.ms=7d"),
        ("topic create o --set acknowledgement=all", 2, "one of leader", "configuration"),
        ("topic create o --set queues=3", 2, "no setting queues", "--queues"),
        ("topic create o --set materialised=true", 2, "no setting materialised", "there are"),
        ("topic create o --perm 9", 2, "perm: 9", ""),
        ("topic describe ordrs", 1, "no topic ordrs", "did you mean orders?"),
        ("topic delete ordrs --yes", 1, "no topic ordrs", "did you mean orders?"),
        ("group describe billng", 1, "no group billng", "did you mean billing?"),
        ("group delete billng --yes", 1, "no group billng", "did you mean billing?"),
        ("group delete nosuch --yes", 1, "no group nosuch", "imago group list"),
        ("group reset nosuch orders --to latest --yes", 1, "no group nosuch", "--create"),
        ("group reset billing ordrs --to latest --yes", 1, "no topic ordrs", "orders?"),
        ("topic delete nosuch --yes", 1, "no topic nosuch", "imago topic list"),
        ("group reset billing nosuch --to latest --yes", 1, "no topic nosuch", "imago topic list"),
        ("produce ordrs x", 1, "no topic ordrs", "did you mean orders? or --create"),
        ("produce ordrs x --protocol metaq", 1, "no topic ordrs", "did you mean orders?"),
        ("produce orders x --delay 345600", 1, "code 13", "rocketmq.timer_delay_ms_max"),
        ("consume ordrs", 1, "no topic ordrs", "did you mean orders?"),
        ("consume ordrs --group g", 1, "no topic ordrs", "did you mean orders?"),
        ("consume nosuch --protocol metaq", 1, "no topic nosuch", "imago topic create nosuch"),
        ("consume nosuch --protocol metaq --group g", 1, "no topic nosuch", "topic create"),
        ("consume nosuch --protocol metaq --follow", 1, "no topic nosuch", "topic create"),
    ],
)
async def test_mistyped_names_change_nothing_and_are_told_with_the_nearest(
    commands: RunBody, line: str, code: int, why: str, cure: str
) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 2")
        run.ok("produce orders a b c d --in-flight 1")
        run.ok("group reset billing orders --to earliest --create --yes")
        before = (run.ok("topic list --all --json"), run.ok("group list --json"))
        error = run.run(line).exception
        assert isinstance(error, CommandError)
        assert error.code == code
        assert why in str(error)
        assert cure in error.cure
        assert (run.ok("topic list --all --json"), run.ok("group list --json")) == before

    await commands(body)


async def test_topic_is_altered_by_name_and_kept_otherwise(commands: RunBody) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 8 --set retention.ms=1h30m")
        settings = run.json("topic describe orders")["settings"]
        assert [each["attributes"]["retention.ms"] for each in settings.values()] == ["5400000"]
        assert "settings: queues=8 perm=6 retention.ms=5400000" in run.ok("topic describe orders")
        run.ok("produce orders m --count 80 --in-flight 1")
        run.ok("topic alter orders --set acknowledgement=leader-fsync --set retention.bytes=1GiB")
        assert run.json("topic create orders --if-absent --queues 8 --set retention.ms=90m") == {
            "topic": "orders",
            "queues": 8,
            "shards": ["shard-0"],
        }
        assert run.json("topic create orders --if-absent --set retention.bytes=1073741824")
        assert len(run.rows("consume orders")) == 80
        kept = len([row for row in run.rows("consume orders") if row["queue"] < 3])
        hidden = run.json("topic alter orders --queues 3 --hide-messages")
        assert hidden == {"topic": "orders", "hiddenMessages": 80 - kept}
        assert len(run.rows("consume orders")) == kept
        assert run.json("topic alter orders --queues 8") == {
            "topic": "orders",
            "hiddenMessages": 0,
        }
        assert len(run.rows("consume orders")) == 80, "they were hidden, not lost"

    await commands(body)


async def test_what_is_to_be_made_is_named(commands: RunBody) -> None:
    def body(run: Commands) -> None:
        assert run.json("produce fresh a b --create")["sent"] == 2
        assert run.json("produce fresh c --create")["sent"] == 1
        bench = "bench --topic fresh --seconds 0.5 --protocol rocketmq"
        assert run.run(bench).exit_code == 0
        sent, read = run.json(f"{bench} --rate 20 --consumers 2")
        assert sent["messages"] == 10, "when they are due, whatever the answers take"
        assert read["messages"] >= 10
        assert len(run.rows("consume fresh --count 3")) == 3
        run.ok("group reset early fresh --to latest --create --yes")
        assert run.json("group describe early")["lag"] == 0

    await commands(body)


async def test_deleting_asks_first_and_refuses_where_nobody_answers(
    commands: RunBody,
) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders")
        error = run.run("topic delete orders").exception
        assert isinstance(error, CommandUsageError)
        assert error.cure == "add --yes"
        assert run.json("topic list")[0]["topic"] == "orders"

    await commands(body)


async def test_filter_on_an_empty_topic_is_told_with_its_place(commands: RunBody) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 1")
        for line in ("consume orders --filter price>", "consume orders --group g --filter price>"):
            error = run.run(line).exception  # also where there is no message to try it on
            assert isinstance(error, CommandError)
            assert "at line 1, column" in str(error)

    await commands(body)


async def test_request_prints_the_reply_and_fails_without_one(
    commands: RunBody, client: Client
) -> None:
    producer = client.producer()

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await producer.reply(message, message.body[::-1])

    def body(run: Commands) -> None:
        assert run.ok("request orders abc --timeout 50") == "cba\n"
        shown = run.json("request orders abc --timeout 50 --key k --tags t")
        assert shown["body"] == "cba"
        assert shown["properties"]["MSG_TYPE"] == "reply"
        error = run.run("request order abc").exception
        assert isinstance(error, CommandError)
        assert error.cure.startswith("did you mean orders?")
        error = run.run("request silent abc --timeout 0.1").exception
        assert isinstance(error, CommandError)
        assert "no reply within 0.1 s" in str(error)

    for topic in ("orders", "silent"):
        await client.admin.create_topic(topic, queues=2)
    async with client.push_consumer("repliers", ["orders"], handler):
        await commands(body)


async def test_group_is_switched_between_pull_and_pop(commands: RunBody, broker: Broker) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 2")
        assert isinstance(run.run("group mode nobody orders pop").exception, CommandError)
        run.ok("produce orders a")
        run.ok("consume orders --group g --count 1")
        assert isinstance(run.run("group mode g none pop").exception, CommandError)
        assert run.run("group mode g orders push").exit_code == Exit.USAGE
        run.ok("group mode g orders pop --share 2")
        assert pop_of(broker).modes.get("g", "orders") == RequestMode("POP", 2)
        run.ok("group mode g orders pull")
        assert pop_of(broker).modes.get("g", "orders") == RequestMode("PULL", 0)

    await commands(body)


@pytest.mark.parametrize("delay", ["-1", "inf", "nan", "864000", "5s"])
def test_delay_that_no_broker_takes_is_wrong_usage(delay: str) -> None:
    done = run_line(["produce", "orders", "x", "--delay", delay])
    assert done.exit_code == Exit.USAGE


def test_producing_waits_for_longer_than_an_election() -> None:
    assert 2 * ZookeeperSection().session_timeout_ms < SEND_TIMEOUT_S * 1000


def test_unreachable_cluster_is_one_sentence() -> None:
    error = Commands("127.0.0.1:1", "127.0.0.1:1").run("topic list").exception
    assert isinstance(error, CommandError)
    assert "127.0.0.1:1" in str(error)


async def test_idempotent_producing(commands: RunBody) -> None:
    def body(run: Commands) -> None:
        run.ok("topic create orders --queues 1")
        assert run.json("produce orders one two --idempotent --count 20")["sent"] == 40
        assert len(run.rows("consume orders --group g --from earliest --count 40")) == 40
        refused = run.run("produce orders one --protocol metaq --idempotent")
        assert isinstance(refused.exception, CommandUsageError)

    await commands(body)


@pytest.mark.parametrize("protocol", ["rocketmq", "metaq"])
async def test_member_ends_when_nobody_reads_what_it_prints(
    client: Client, bootstrap: str, metaq_server: str, protocol: str
) -> None:
    await client.admin.create_topic("orders", queues=2)
    for number in range(20):
        await client.producer().send(Message("orders", b"%d" % number * 5000))
    line = f"{sys.executable} -m imago_cli consume orders --group g --protocol {protocol} | head -1"
    environment = os.environ | {"IMAGO_BOOTSTRAP": bootstrap, "IMAGO_METAQ": metaq_server}
    running = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(50):
        _, said = await running.communicate()
    told = b"note: MetaQ's brokers keep no positions: --offsets FILE would keep those of g\n"
    assert (running.returncode, said) == (0, told if protocol == "metaq" else b"")


@pytest.mark.parametrize("tags", [" ", "a||b", "*", "a\n"])
def test_a_tag_that_nobody_can_ask_for_is_not_sent(tags: str) -> None:
    words = ["produce", "orders", "x", "--tags", tags, "--bootstrap", "127.0.0.1:1"]
    done = run_line(words)
    assert isinstance(done.exception, CommandUsageError)
    assert f"--tags: {tags!r}, must be one name" in str(done.exception)
