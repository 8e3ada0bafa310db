"""Rates that are kept by delay, in a simulation of tenants that share brokers and behave badly."""

from __future__ import annotations

from random import Random

import pytest

from imago_broker.core.token_bucket import TokenBucket
from imago_broker.model.access.quotas import Limit, QuotaSubject, SubjectKind
from imago_broker.service.access.throttling import (
    BUSY_AFTER_MS,
    PAUSE_MS_MAX,
    Direction,
    QuotaAccount,
)
from imago_testing.searching import examples

PRODUCER = Direction.PRODUCER
SECONDS = 120


def test_what_is_taken_too_early_is_waited_for() -> None:
    bucket = TokenBucket(100, 0)
    assert bucket.take(100, 0) == 0, "one second's worth may be taken at once"
    assert bucket.take(50, 0) == 500
    assert bucket.owed_ms(400) == pytest.approx(100)
    assert bucket.take(10, 500) == pytest.approx(100)
    assert bucket.owed_ms(10_000) == 0
    assert bucket.take(150, 10_000) == 500, "no more than that is saved up"
    assert bucket.owed_ms(9_000) == 500, "a clock that goes back pays nothing"


def test_another_rate_is_in_force_at_once() -> None:
    bucket = TokenBucket(100, 0)
    bucket.take(200, 0)
    bucket.change(1000, 0)
    assert bucket.owed_ms(0) == 100
    bucket.change(1, 100)
    assert bucket.take(1, 100) == 1000, "what was saved up at another rate does not last"


class Tenant:
    """Connections of one user that send as fast as they are read, and repeat what is refused."""

    def __init__(self, account: QuotaAccount, rng: Random, connections: int, size_max: int) -> None:
        self.account, self.rng, self.size_max = account, rng, size_max
        self.next_ms = [rng.uniform(0, 10) for _ in range(connections)]
        self.served: list[tuple[float, int]] = []
        self.delays = 0.0

    def step(self, now_ms: float) -> None:
        for number, due_ms in enumerate(self.next_ms):
            if due_ms > now_ms:
                continue
            if self.account.exceeded(PRODUCER, now_ms) is not None:
                self.next_ms[number] = now_ms + self.rng.uniform(1, 100)
                continue
            size = self.rng.randint(1, self.size_max)
            owed_ms = min(PAUSE_MS_MAX, self.account.charge(PRODUCER, size, 1, now_ms))
            self.served.append((now_ms, size))
            self.delays += owed_ms
            self.next_ms[number] = now_ms + max(owed_ms, self.rng.uniform(0.5, 5))


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_tenant_gets_its_rate_and_no_more_whatever_it_does(seed: int) -> None:
    rng = Random(seed)
    rate, size_max = rng.choice([1_000, 50_000]), rng.choice([10, 500, 5_000, 200_000])
    subject = QuotaSubject(SubjectKind.USER, "ann")
    account = QuotaAccount(subject, {Limit.PRODUCER_BYTES: rate}, 0)
    tenant = Tenant(account, rng, connections=rng.choice([1, 3, 40]), size_max=size_max)
    now_ms = 0.0
    while now_ms < SECONDS * 1000:
        tenant.step(now_ms)
        now_ms += 1.0
    # No window has more than its time, one second's worth, what may be owed, and one request.
    most_at_once = rate + rate * BUSY_AFTER_MS / 1000 + size_max
    total, begin = 0, 0
    for end, (end_ms, size) in enumerate(tenant.served):
        total += size
        while end_ms - tenant.served[begin][0] > 10_000:
            total -= tenant.served[begin][1]
            begin += 1
        window_ms = end_ms - tenant.served[begin][0]
        assert total <= rate * window_ms / 1000 + most_at_once, (end, window_ms)
    offered = len(tenant.next_ms) * size_max / 2 / 0.00275  # a second, as it sends without limits
    if offered > 2 * rate:
        served = sum(size for _, size in tenant.served)
        assert served >= rate * SECONDS * 0.9 - size_max, "its own rate is its right"
        assert tenant.delays > 0


@pytest.mark.parametrize("seed", range(examples(5)))
def test_who_stays_below_its_limits_never_waits(seed: int) -> None:
    rng = Random(seed)
    limits = {Limit.PRODUCER_BYTES: 10_000, Limit.PRODUCER_REQUESTS: 100}
    account = QuotaAccount(QuotaSubject(SubjectKind.USER, "bob"), limits, 0)
    for at in range(0, 60_000, 20):
        assert account.charge(PRODUCER, rng.randint(1, 199), 1, at) == 0
        assert account.exceeded(PRODUCER, at) is None


def test_connections_are_counted_once_and_by_address() -> None:
    limits = {Limit.CONNECTIONS: 3, Limit.CONNECTIONS_PER_ADDRESS: 2}
    account = QuotaAccount(QuotaSubject(SubjectKind.USER, "ann"), limits, 0)
    assert [account.admit(n, "a") for n in (1, 1, 2)] == [None, None, None]
    assert account.admit(3, "a") is Limit.CONNECTIONS_PER_ADDRESS
    assert account.admit(4, "b") is None
    assert account.admit(5, "c") is Limit.CONNECTIONS
    account.leave(1)
    account.leave(1)
    assert account.admit(3, "a") is None
