"""Calls to masters of other shards, while a cluster changes over to TLS."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.server.broker_calls import MasterCalls
from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.certificates import Authority
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.ports import Registry


def registry_of(port: int) -> Registry:
    record = SimpleNamespace(broker_name="other", host="127.0.0.1", rocketmq=port)
    view = SimpleNamespace(brokers=(record,), leads=lambda _: True)
    return cast("Registry", cast("Any", SimpleNamespace(view=lambda: view)))


@pytest.mark.parametrize("own", ["permissive", "enforcing"])
@pytest.mark.parametrize("others", ["permissive", "enforcing"])
async def test_a_master_is_asked_in_the_way_that_it_serves(
    tmp_path: Path, own: str, others: str
) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("server")
    settings = [
        f"tls.certificate_file={pair.certificate}",
        f"tls.key_file={pair.key}",
        f"tls.ca_file={authority.file}",
        "tls.metaq_port=0",
    ]
    async with (
        running_broker(tmp_path / "own", *settings, f"tls.mode={own}") as asking,
        running_broker(tmp_path / "other", *settings, f"tls.mode={others}") as asked,
    ):
        calls = MasterCalls(
            registry_of(asked.rocketmq_port), ways=asking.ports.rocketmq_ways, introductions=None
        )
        if own == "enforcing" and others == "permissive":
            assert len(asking.ports.rocketmq_ways()) == 1, "never without TLS"
        ext = {"topic": "TBW102", "queueId": "0"}
        answer = await calls.ask("other", RequestCode.GET_MIN_OFFSET, ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
