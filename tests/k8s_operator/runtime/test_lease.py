"""Who of several operators works, on a fake API server and clocks that tests move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from imago_operator.model.renewals import DURATION_S
from imago_operator.runtime.lease import RENEW_S, Leadership, LeasePlace
from imago_testing.kubernetes.fake_api_server import Call, FakeApiServer, Refused

NOW = datetime(2026, 1, 2, tzinfo=UTC)


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
