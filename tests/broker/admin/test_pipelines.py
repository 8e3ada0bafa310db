"""The fence between runs of a pipeline: over HTTP for who starts them, over a client for a run."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest

from imago_client.blocking import Client
from imago_client.errors import BrokerError, ProducerFencedError
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin

PATH = "/admin/v1/pipelines/lake.orders"


async def with_run(broker: Broker, epoch: int, work: Callable[..., None]) -> None:
    """Do blocking work as the run of an epoch, in a thread of its own."""

    def done() -> None:
        with Client(f"127.0.0.1:{broker.ports.namesrv_port}") as client:
            work(client.pipeline_run("lake.orders", epoch))

    await asyncio.to_thread(done)


async def test_the_epoch_is_raised_read_and_never_lowered(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    assert await admin.call("GET", PATH) == (
        200,
        {"pipeline": "lake.orders", "epoch": 0, "progress": None},
    )
    caplog.set_level(logging.INFO, "imago.audit")
    key = {"Idempotency-Key": "start-3"}
    for _ in range(2):
        answer = await admin.call("POST", f"{PATH}/epoch", {"epoch": 3}, **key)
        assert answer == (200, {"pipeline": "lake.orders", "epoch": 3})
    assert caplog.text.count("POST /admin/v1/pipelines/lake.orders/epoch") == 1
    status, body = await admin.call("POST", f"{PATH}/epoch", {"epoch": 2})
    assert (status, body["error"]) == (409, "stale_epoch")
    assert "3 is in force" in body["message"]
    assert (await admin.call("GET", PATH))[1]["epoch"] == 3


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (f"{PATH}/epoch", {}, "epoch: None"),
        (f"{PATH}/epoch", {"epoch": -1}, "epoch: -1"),
        (f"{PATH}/epoch", {"epoch": True}, "epoch: True"),
        (f"{PATH}/epoch", {"epoch": 1 << 63}, "no whole number"),
        (f"{PATH}/epoch", {"epoc": 1}, "Unknown key"),
        ("/admin/v1/pipelines/.hidden/epoch", {"epoch": 1}, "no name of a pipeline"),
        ("/admin/v1/pipelines/a%2Fb/epoch", {"epoch": 1}, "no name of a pipeline"),
        (f"/admin/v1/pipelines/{'a' * 201}/epoch", {"epoch": 1}, "no name of a pipeline"),
    ],
)
async def test_wrong_calls_are_refused(
    admin: Admin, path: str, body: dict[str, object], said: str
) -> None:
    status, answer = await admin.call("POST", path, body)
    assert (status, answer["error"]) == (400, "bad_request")
    assert said in answer["message"]


async def test_an_older_operator_starts_no_run(admin: Admin) -> None:
    await admin.call("POST", "/admin/v1/operator-epoch", {"epoch": 5})
    stale = {"Imago-Operator-Epoch": "4"}
    status, body = await admin.call("POST", f"{PATH}/epoch", {"epoch": 3}, **stale)
    assert (status, body["error"]) == (409, "stale_operator")
    assert (await admin.call("GET", PATH))[1]["epoch"] == 0


async def test_a_page_of_another_site_raises_nothing(admin: Admin) -> None:
    foreign = {"Origin": "http://elsewhere.example"}
    status, _ = await admin.call("POST", f"{PATH}/epoch", {"epoch": 3}, **foreign)
    assert status == 403
    assert (await admin.call("GET", PATH))[1]["epoch"] == 0


async def test_a_run_reports_until_the_next_one_is_allowed(admin: Admin, broker: Broker) -> None:
    await admin.call("POST", f"{PATH}/epoch", {"epoch": 3})
    await with_run(broker, 3, lambda run: run.check())
    await with_run(broker, 3, lambda run: run.report(rows=10, lag=2, batch=4))
    progress = (await admin.call("GET", PATH))[1]["progress"]
    assert progress.pop("at") > 1_700_000_000_000
    assert progress == {"rows": 10, "lag": 2, "batch": 4}
    await admin.call("POST", f"{PATH}/epoch", {"epoch": 4})
    for epoch in (3, 5):
        with pytest.raises(ProducerFencedError, match="4 is in force"):
            await with_run(broker, epoch, lambda run: run.check())
        with pytest.raises(ProducerFencedError, match="4 is in force"):
            await with_run(broker, epoch, lambda run: run.report(rows=11, lag=0, batch=5))
    record = (await admin.call("GET", PATH))[1]
    assert (record["epoch"], record["progress"]) == (4, None)


async def test_a_wrong_report_is_an_error_and_no_fence(admin: Admin, broker: Broker) -> None:
    await admin.call("POST", f"{PATH}/epoch", {"epoch": 3})
    with pytest.raises(BrokerError, match="rows: -1") as caught:
        await with_run(broker, 3, lambda run: run.report(rows=-1, lag=0, batch=0))
    assert not isinstance(caught.value, ProducerFencedError)
    assert (await admin.call("GET", PATH))[1]["progress"] is None


@pytest.mark.parametrize(
    ("value", "said"),
    [("{", "progress: "), ("[]", "no JSON object"), ('{"epoch":3}', "rows: None")],
)
async def test_what_a_foreign_client_puts_there_is_answered(
    broker: Broker, value: str, said: str
) -> None:
    peer = await RemotingPeer.connect(broker.ports.namesrv_port)
    where = {"namespace": "IMAGO_PIPELINES", "key": "lake.orders"}
    try:
        put = await peer.call(RequestCode.PUT_KV_CONFIG, {**where, "value": value})
        assert put.code == ResponseCode.SYSTEM_ERROR
        assert said in (put.remark or "")
        long = await peer.call(RequestCode.PUT_KV_CONFIG, {**where, "value": " " * 2000})
        assert "at most 1024" in (long.remark or "")
        slash = await peer.call(RequestCode.GET_KV_CONFIG, {**where, "key": "a/b"})
        assert "no name of a pipeline" in (slash.remark or "")
        gone = await peer.call(RequestCode.DELETE_KV_CONFIG, where)
        assert gone.code == ResponseCode.NO_PERMISSION
        told = await peer.call(RequestCode.GET_KV_CONFIG, where)
        assert json.loads(told.ext["value"]) == {"epoch": 0, "progress": None}
    finally:
        await peer.close()
