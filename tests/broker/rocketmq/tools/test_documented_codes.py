"""The page for RocketMQ users lists exactly the codes that the tables serve."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.namesrv.server import NameService
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.processors.rocketmq.table import build_processors
from imago_tools import rocketmq_codes as codes
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

PAGE = Path(__file__).parents[4] / "docs" / "rocketmq.md"


def numbers(text: str) -> set[int]:
    return {int(word) for word in re.findall(r"\b\d+\b", text)}


async def test_codes_of_the_broker(broker: Broker) -> None:
    part = (
        PAGE.read_text().split("## What a broker serves")[1].split("A broker sends to clients")[0]
    )
    listed = [numbers(line.split("|")[1]) for line in part.splitlines() if line.startswith("| ")]
    documented = set().union(*listed)
    processors = build_processors(broker.rocketmq, asyncio.get_running_loop())
    assert documented == set(processors.main.rows)
    assert sum(map(len, listed)) == len(documented), "a code stands in two lines"


async def test_codes_of_the_name_service(broker: Broker) -> None:
    text = PAGE.read_text().split("The name service serves ")[1].split(". It")[0]
    table = NameService(NameServiceConfig(), broker.coordinator, broker.clock).table
    assert numbers(text) == set(table.rows)


async def test_every_needed_code_is_served_or_said_to_be_absent(broker: Broker) -> None:
    rows = build_processors(broker.rocketmq, asyncio.get_running_loop()).main.rows
    names = NameService(NameServiceConfig(), broker.coordinator, broker.clock).table.rows
    for server, table in (("broker", rows), ("name service", names)):
        assert set(codes.served(server)) == set(table), "the page reads the tables another way"
        missing = set(codes.NEEDED[server]) - set(table)
        assert missing <= codes.ABSENT.keys(), "neither served nor said to be absent"
    absent = codes.ABSENT.keys() & (rows.keys() | names.keys())
    assert absent == set(), "served: take them out of ABSENT"


async def test_every_served_code_has_a_test() -> None:
    served = [row for server in codes.SOURCES for row in codes.served(server).values()]
    assert [row.code.name for row in served if codes.test_of(row.code) is None] == []


async def test_codes_that_nobody_serves_are_answered_as_the_original_does(
    peer: RemotingPeer,
) -> None:
    for code in (*codes.NEVER, *codes.ABSENT):
        answer = await peer.call(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported"
