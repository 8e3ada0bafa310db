"""Who of several operators works, on a fake API server and clocks that tests move."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from imago_operator.kube.credentials import Credentials
from imago_operator.main import Operator, Settings
from imago_operator.model.desired import OperatorInfo
from imago_operator.model.renewals import DURATION_S
from imago_operator.runtime.lease import RENEW_S, Leadership, LeasePlace
from imago_testing.kubernetes.fake_api_server import Call, FakeApiServer, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW = datetime(2026, 1, 2, tzinfo=UTC)
VERBS = {"GET": "get", "POST": "create", "PUT": "update"}


class LostError(Exception):
    """A process has ended itself."""


class Two:
    """Two operators, each with a clock of its own."""

    def __init__(self) -> None:
        self.kubernetes = FakeApiServer()
        self.clock = 1000.0
        self.one, self.two = self.operator("one", 0.0), self.operator("two", 5_000.0)

    def operator(self, name: str, ahead: float) -> Leadership:
        def lost(reason: str) -> None:
            raise LostError(reason)

        return Leadership(
            self.kubernetes,  # type: ignore[arg-type]  # it has `call`
            LeasePlace(namespace="imago-system", name="imago-operator", identity=name),
            clock=lambda: self.clock + ahead,
            now=lambda: NOW + timedelta(seconds=self.clock + ahead),
            lost=lost,
        )

    @property
    def holder(self) -> str:
        found = self.kubernetes.find("Lease", "imago-system", "imago-operator")
        assert found is not None
        return str(found["spec"]["holderIdentity"])


async def test_the_first_gets_it_and_the_second_waits_until_it_is_over() -> None:
    both = Two()
    assert await both.one._try()
    assert both.one.held
    assert not await both.two._try()
    both.clock += DURATION_S - 1
    assert not await both.two._try()
    both.clock += 2
    assert await both.two._try()
    assert both.holder == "two"


async def test_whoever_renews_keeps_it_whatever_the_clocks_say() -> None:
    both = Two()
    assert await both.one._try()
    for _ in range(20):
        both.clock += 2
        assert await both.one._try()
        assert not await both.two._try()
    assert both.holder == "one"


async def test_a_holder_that_was_stopped_does_nothing_more() -> None:
    both = Two()
    assert await both.one._try()
    both.one.check()
    both.clock += RENEW_S + 1
    assert not both.one.held
    with pytest.raises(LostError):
        both.one.check()


async def test_a_holder_that_finds_another_has_lost_it_at_once() -> None:
    both = Two()
    assert await both.one._try()
    await both.two._try()
    both.clock += DURATION_S + 1
    assert await both.two._try()
    assert not await both.one._try()
    assert not both.one.held
    assert both.two.held


async def test_of_two_that_write_at_once_one_wins() -> None:
    both = Two()
    assert await both.one._try()
    await both.two._try()
    both.clock += DURATION_S + 1
    third = both.operator("three", 0.0)

    def faster(call: Call) -> None:
        """Somebody changes the lease between the other's look and its write."""
        if call.verb == "update":
            both.kubernetes.before = lambda _: None
            lease = both.kubernetes.find("Lease", "imago-system", "imago-operator")
            assert lease is not None
            both.kubernetes.put({**lease, "spec": {**lease["spec"], "holderIdentity": "three"}})

    both.kubernetes.before = faster
    assert not await both.two._try()
    assert not both.two.held
    assert await third._try()


async def test_it_is_given_back_at_an_orderly_end() -> None:
    both = Two()
    assert await both.one._try()
    assert not await both.two._try()
    await both.one.release()
    assert both.holder == ""
    assert not both.one.held
    assert await both.two._try()


async def test_an_api_server_that_fails_does_not_end_it_before_time() -> None:
    both = Two()
    assert await both.one._try()

    def fail(_: Call) -> None:
        raise Refused(500, "InternalError", "injected")

    both.kubernetes.before = fail
    both.clock += RENEW_S - 1
    assert not await both.one._try()
    assert both.one.held
    both.clock += 2
    assert not both.one.held


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Serve leases alone; yield where, and what is set once another call hangs."""
    kubernetes, hung, over = FakeApiServer(), asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if "leases" not in request.path:
            hung.set()
            await over.wait()
        body = await request.read()
        said, query = json.loads(body) if body else None, dict(request.query)
        verb = VERBS[request.method]
        try:
            status, found = kubernetes.answer(verb, request.method, request.path, query, said)
        except Refused as refused:
            return web.json_response({"reason": refused.reason}, status=refused.status)
        return web.json_response(found, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", hung
    finally:
        over.set()
        await runner.cleanup()


async def test_it_is_renewed_while_all_calls_of_the_work_wait() -> None:
    place = LeasePlace(namespace="imago-system", name="imago-operator", identity="one")
    info = OperatorInfo(version="1.0.0")
    async with AsyncExitStack() as stack, hanging() as (server, hung):
        settings = Settings(credentials=Credentials(server=server), operator=info, lease=place)
        operator = await Operator.made(settings, stack)
        work = []
        while not operator._api._calls.locked():
            call = operator.kube.get("ImagoTopic", "mq", "orders")
            work.append(asyncio.create_task(call))
            await asyncio.sleep(0)
        await hung.wait()
        renewing = asyncio.create_task(operator.leadership.acquire())
        done, _ = await asyncio.wait({renewing}, timeout=50)
        renewing.cancel()
        for task in work:
            task.cancel()
        assert done
        assert operator.leadership.held
