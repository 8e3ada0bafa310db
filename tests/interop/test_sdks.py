"""RocketMQ 5's own SDKs, which speak gRPC: each as its documentation uses it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import ConsumerConfig, Message, StartFrom
from imago_client.blocking import Client
from imago_testing.interop.members import Members
from imago_testing.interop.sdk_original import put_there
from imago_testing.interop.sdk_programs import SdkProgram, SteadySdk, ran
from imago_testing.interop.targets import TargetName, chosen_target, imago_up
from imago_testing.java.driver import java_command
from imago_testing.java.modules import ROCKETMQ5_SDK
from imago_testing.java.originals import rocketmq_proxy
from imago_testing.processes.certificates import Authority
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OTHERS = Path(__file__).parent / "others"
TEN = [f"n{number}" for number in range(10)]
ODD = [f"n{number}" for number in range(1, 10, 2)]
CHECKS = [
    "--set",
    "rocketmq.transaction_timeout_ms=1000",
    "--set",
    "rocketmq.transaction_check_interval_ms=1000",
]


ORIGINAL = chosen_target() is TargetName.ROCKETMQ_ORIGINAL
OURS = pytest.mark.skipif(ORIGINAL, reason="asks for what the original has in other ways")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """Ours of two shards, or the original proxy, of one."""
    folder = tmp_path_factory.mktemp("sdks")
    if ORIGINAL:
        with rocketmq_proxy(folder) as places:
            yield {**places, "brokers": [places], "home": folder}
        return
    with imago_up(folder, shards=2, options=CHECKS) as ready:
        yield ready


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> SdkProgram:
    """The SDK, in an environment of its own."""
    home = tmp_path_factory.mktemp("python-sdk")
    wanted, uv = OTHERS / "python-sdk" / "requirements.txt", Path(sys.executable).parent / "uv"
    options = ("pip", "install", "-q", "--require-hashes", "-r", wanted)
    ran(uv, *options, "--target", home / "lib", cwd=home)
    # Without the site's packages: they have protobuf, too.
    command = (sys.executable, "-S", OTHERS / "python-sdk" / "main.py")
    return SdkProgram(command, home, {"PYTHONPATH": str(home / "lib"), "HOME": str(home)})


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> SdkProgram:
    """The SDK, with TLS as by its default."""
    home = tmp_path_factory.mktemp("java-sdk")
    command = java_command(ROCKETMQ5_SDK, "dev.imago.interop.sdk.Main", home)
    return SdkProgram(tuple(command), home, {})


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> SdkProgram:
    """The SDK, with TLS as by its default."""
    home = tmp_path_factory.mktemp("go-sdk")
    ran("go", "build", "-o", home / "main", ".", cwd=OTHERS / "go-sdk")
    return SdkProgram((home / "main",), home, {"HOME": str(home)})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> SdkProgram:
    """The SDK, without TLS as by its default."""
    home = shutil.copytree(OTHERS / "node-sdk", tmp_path_factory.mktemp("node-sdk") / "node")
    ran("npm", "ci", "-s", "--no-audit", "--no-fund", "--ignore-scripts", cwd=home)
    return SdkProgram(("node", "main.js"), home, {"HOME": str(home)})


JAVA = pytest.param("java", marks=pytest.mark.interop)
PYTHON = pytest.param("python", marks=[pytest.mark.interop, pytest.mark.full])
GO = pytest.param("go", marks=pytest.mark.others)
NODE = pytest.param("node", marks=pytest.mark.others)


@pytest.fixture(params=[PYTHON, JAVA, GO, NODE])
def sdk(request: pytest.FixtureRequest) -> SdkProgram:
    found: SdkProgram = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic's name of the test's own."""
    return "sdk-" + "".join(each if each.isalnum() else "-" for each in request.node.name)[:60]


def make_topic(ready: Mapping[str, Any], name: str, kind: str, *shards: str) -> None:
    """Make it on one shard: SDKs in several languages choose shards by hashes of their own."""
    told = {"queues": 4, "attributes": {"message.type": kind}, "shards": shards or ["shard-0"]}
    put(ready, f"topics/{name}", told)


def grpc(ready: Mapping[str, Any]) -> str:
    return str(ready["brokers"][0]["grpc"])


def all_grpc(ready: Mapping[str, Any]) -> str:
    return ";".join(str(broker["grpc"]) for broker in ready["brokers"])


@pytest.mark.shows("send", "group", "filter")
def test_messages_go_there_and_back(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "NORMAL")
    found = sdk("normal", grpc(cluster), topic)
    assert (found["bodies"], found["odd"], found["sql"]) == (TEN, ODD, ODD)
    assert (found["tag"], found["keys"], found["attempt"]) == ("odd", ["k1"], 1)
    assert found.get("properties", {"colour": "red"}) == {"colour": "red"}


@pytest.mark.shows("send-ordered")
def test_messages_of_a_group_stay_in_order(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "FIFO")
    found = sdk("fifo", grpc(cluster), topic)
    assert found == {str(group): [f"f{n}" for n in range(group, 12, 3)] for group in range(3)}


@pytest.mark.shows("timer")
def test_messages_wait_for_their_time_or_are_recalled(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "DELAY", "shard-1")  # they ask another shard to recall
    found = sdk("delay", grpc(cluster), topic)
    assert found == {"bodies": ["late"], "early": False, "more": []}


@pytest.mark.shows("transactions")
def test_transactions_end_as_said_or_are_asked_about(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "TRANSACTION")
    assert sdk("transaction", grpc(cluster), topic) == {"bodies": ["commit", "orphan"]}


@pytest.mark.shows("retry", "pop")
def test_a_push_consumer_gets_again_what_it_failed_with(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "NORMAL")
    seen = [
        tuple(each.split()) if isinstance(each, str) else (each[0], str(each[1]))
        for each in sdk("push", grpc(cluster), topic)["seen"]
    ]
    expected = [("p0", "1"), ("p0", "2"), *((f"p{n}", "1") for n in range(1, 5))]
    assert sorted(seen) == expected


@pytest.mark.shows("send-ordered", "retry")
def test_an_ordered_group_waits_for_what_it_failed_with(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "FIFO")
    put(cluster, f"groups/{topic}-stubborn", {"consume_message_orderly": True})
    found = sdk("stubborn", grpc(cluster), topic)
    # Python's SDK does not count what it tries again by itself.
    assert [each.split()[0] for each in found["seen"]] == ["s0", "s0", "s1", "s2"]


@pytest.mark.shows("priority")
def test_the_highest_priority_comes_first(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "PRIORITY")
    assert sdk("urgent", grpc(cluster), topic) == {"bodies": ["u3", "u2", "u1"]}


@pytest.mark.shows("lite-topics")
def test_a_client_takes_up_lite_topics_one_by_one(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    """Its access point is one broker, and its topic on both: each is told what it wants."""
    make_topic(cluster, topic, "LITE", "shard-0", "shard-1")
    assert sdk("chats", grpc(cluster), topic) == {"ann": ["a0", "a1", "a2"], "bob": ["b0"]}


@pytest.mark.shows("retry")
def test_what_is_hidden_for_longer_comes_again(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "NORMAL")
    assert sdk("again", grpc(cluster), topic) == {"attempts": [1, 2]}


@pytest.mark.shows("dead")
def test_what_fails_too_often_is_a_dead_letter(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "NORMAL")
    put(cluster, f"groups/{topic}-letters", {"retry_max_times": 1})
    found = sdk("letters", grpc(cluster), topic)
    assert found == {"dead": ["dead"], "seen": ["dead 1", "dead 2"]}


@OURS
@pytest.mark.shows("across")
def test_clients_of_the_other_protocol_read_the_same(
    sdk: SdkProgram, cluster: Mapping[str, Any], topic: str
) -> None:
    make_topic(cluster, topic, "NORMAL")
    with Client(cluster["namesrv"]) as client:
        producer = client.producer()
        for number in range(3):
            producer.send(Message(topic, f"r{number}".encode()))
        assert sdk("send", grpc(cluster), topic) == {"sent": 1}
        found = sdk("read", grpc(cluster), topic)
        assert found == {"bodies": ["r0", "r1", "r2", "sent"]}
        config = ConsumerConfig(group=f"{topic}-remoting", start_from=StartFrom.EARLIEST)
        reader = client.group_consumer(config, [topic])
        read: set[bytes] = set()

        def has_all() -> bool:
            read.update(each.body for each in reader.poll())
            return len(read) == 4

        wait_until(has_all, what="all four by the remoting protocol")
        reader.close()
    assert read == {b"r0", b"r1", b"r2", b"sent"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """A cluster with a user, who may do everything with one topic of two."""
    options = ["--set", "acl.enabled=true"]
    with imago_up(tmp_path_factory.mktemp("guarded"), shards=1, options=options) as ready:
        token = (Path(str(ready["data"])) / "admin-token").read_text().strip()
        rules = [
            {
                "resource": {"type": "Topic", "name": "orders"},
                "operations": ["publish", "subscribe"],
            }
        ]
        for name in ("orders", "other"):
            put(ready, f"topics/{name}", {"queues": 1}, token)
        put(ready, "users/ann", {"password": "password-of-ann", "rules": rules}, token)
        yield ready


@OURS
@pytest.mark.shows("users")
def test_credentials_and_rules_are_those_of_all_clients(
    sdk: SdkProgram, guarded: Mapping[str, Any]
) -> None:
    endpoints = grpc(guarded)
    assert sdk("send", endpoints, "orders", "ann", "password-of-ann") == {"sent": 1}
    for told in (
        ("orders", "ann", "password-of-eve"),
        ("orders", "bob", "password-of-bob"),
        ("other", "ann", "password-of-ann"),
    ):
        assert "refused" in sdk("send", endpoints, *told), told


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where a broker with a certificate is, and the authority that gave it."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    server = authority.issue("server")
    named = {"certificate_file": server.certificate, "key_file": server.key}
    options = [part for key, file in named.items() for part in ("--set", f"tls.{key}={file}")]
    with imago_up(tmp_path_factory.mktemp("secured"), shards=1, options=options) as ready:
        make_topic(ready, "orders", "NORMAL")
        yield grpc(ready), authority.file


@OURS
@pytest.mark.shows("tls")
@pytest.mark.parametrize("sdk", [PYTHON, NODE], indirect=True)
def test_one_port_takes_tls_of_who_is_trusted_and_plain_text(
    sdk: SdkProgram, secured: tuple[str, Path]
) -> None:
    trusting = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(secured[1])}
    words = ("send", secured[0], "orders")
    assert sdk(*words) == sdk(*words, "tls", **trusting) == {"sent": 1}
    assert "refused" in sdk(*words, "tls"), "nobody has said that this authority is good"


@OURS
@pytest.mark.shows("send")
@pytest.mark.parametrize("sdk", [JAVA, GO], indirect=True)
def test_one_port_takes_tls_of_anybody_and_plain_text(
    sdk: SdkProgram, secured: tuple[str, Path]
) -> None:
    """Java's and Go's SDKs take any certificate."""
    words = ("send", secured[0], "orders")
    assert sdk(*words) == sdk(*words, "plain") == {"sent": 1}


@OURS
@pytest.mark.shows("killed")
@pytest.mark.parametrize(
    "sdks",
    [
        pytest.param("java python", marks=[pytest.mark.interop, pytest.mark.full]),
        pytest.param("go node", marks=pytest.mark.others),
    ],
)
def test_nothing_acknowledged_is_lost_or_comes_again_when_masters_go(
    request: pytest.FixtureRequest, sdks: str, tmp_path: Path
) -> None:
    """One is killed, the next stops in order; what clients see of it are errors to try again."""
    with imago_up(tmp_path, shards=1, replicas=3) as ready:
        members = Members(ready)
        members.settled(3)
        endpoints = all_grpc(ready)
        running = []
        for name in sdks.split():
            program: SdkProgram = request.getfixturevalue(name)
            topic = {"queues": 1, "attributes": {"message.type": "NORMAL"}}
            put(ready, f"topics/steady-{name}", topic)
            # Node's SDK takes one address.
            place = grpc(ready) if name == "node" else endpoints
            running.append(SteadySdk(program, place, f"steady-{name}"))
        for number in (signal.SIGKILL, signal.SIGTERM):
            for each in running:
                each.goes_on(60)
            master = members.master("shard-0")
            assert master is not None
            before = master.pid
            master.signal(number)
            for each in running:
                each.goes_on(60)
            members.until_restarted(master, before)
            members.settled(3)
        for found in (each.ended() for each in running):
            print(found["faults"])
            assert (found["lost"], found["again"]) == ([], [])
            assert found["sent"] >= 240


def put(ready: Mapping[str, Any], path: str, value: Mapping[str, Any], token: str = "") -> None:
    if ORIGINAL:
        put_there(ready, path, value)
        return
    request = urllib.request.Request(
        f"{ready['brokers'][0]['admin']}/admin/v1/{path}",
        data=json.dumps(value).encode(),
        method="PUT",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    with urllib.request.urlopen(request, timeout=50) as answer:
        assert answer.status in (200, 201)
