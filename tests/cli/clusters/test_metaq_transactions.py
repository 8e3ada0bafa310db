"""`imago metaq transactions` against a broker."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from imago_testing.command_lines import run_line
from imago_testing.processes.broker import broker_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_testing.processes.broker import BrokerProcess

pytestmark = [pytest.mark.processes]
KEY = "XID:1:aa:bb:uq"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings: dict[str, dict[str, object]] = {
        "topics.orders": {"queues": 1},
        "admin": {"loopback_trusted": True},
    }
    with broker_process(tmp_path_factory.mktemp("broker"), settings) as started:
        yield started


def prepare(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.metaq)) as peer:
        for line, answer in (
            (f"transaction {KEY} s BEGIN 1\r\n", "result 200 0 1\r\n"),
            (f"put orders 0 2 0 -1 {KEY} 2\r\nhi", "result 200 "),
            (f"transaction {KEY} s PREPARE 3\r\n", "result 200 1 3\r\n0"),
        ):
            peer.sendall(line.encode())
            assert peer.recv(4096).decode().startswith(answer)


def run(broker: BrokerProcess, *words: str) -> str:
    arguments = ["metaq", "transactions", *words, "--admin", f"http://127.0.0.1:{broker.admin}"]
    done = run_line(arguments)
    assert done.exit_code == 0, done
    return done.stdout


def test_what_is_prepared_is_listed_decided_and_forgotten(broker: BrokerProcess) -> None:
    prepare(broker)
    [shown] = json.loads(run(broker, "list", "--json"))
    assert (shown["key"], shown["state"], shown["messages"]) == (KEY, "prepared", 1)
    assert KEY in run(broker, "list")
    run(broker, "rollback", KEY, "--yes")
    [shown] = json.loads(run(broker, "list", "--json"))
    assert (shown["state"], shown["decided"]) == ("decided", "rolled back")
    run(broker, "forget", KEY)
    assert json.loads(run(broker, "list", "--json")) == []
