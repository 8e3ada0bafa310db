"""Limits per tenant as they are kept: by delay first, then by the protocols' own busy answers.

Each subject that has limits has an account. What a request takes is charged to the accounts of its
user and its topic; where one of them owes then, the connection is not read for a while, at most
`PAUSE_MS_MAX`. Where it owes more than `BUSY_AFTER_MS`, since others share it or one request was
so large, further requests are answered as busy until it owes less. Only what has limits comes here.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from imago_broker.core.token_bucket import TokenBucket
from imago_broker.model.access.quotas import RATES, Limit, QuotaSubject, SubjectKind, quotas_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_broker.model.access.quotas import Quotas
    from imago_broker.model.groups import GroupConfig
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Clock
    from imago_broker.service.access.access import AccessService

PAUSE_MS_MAX: Final = 1000
"""A connection that is not read for longer is taken for broken."""
BUSY_AFTER_MS: Final = 2000
"""The least that clients wait for an answer by their defaults is 3 s."""
FOUND_MAX: Final = 10_000
"""Users and topics whose accounts are remembered; above it they are looked up again."""


class Direction(Enum):
    """Which limits a request is charged to."""

    PRODUCER = (Limit.PRODUCER_BYTES, Limit.PRODUCER_REQUESTS)
    CONSUMER = (Limit.CONSUMER_BYTES, Limit.CONSUMER_REQUESTS)


class QuotaAccount:
    """What one subject has taken."""

    def __init__(self, subject: QuotaSubject, quotas: Quotas, now_ms: float) -> None:
        self.subject, self.quotas = subject, quotas
        self.throttled_ms = 0.0
        """For how long its connections were not read."""
        self.refused = 0
        """Requests that were answered as busy."""
        self.connections: dict[object, str] = {}
        """Connections of a user whose number is limited, and their addresses."""
        self._of_address: Counter[str] = Counter()
        self._buckets = {
            each: TokenBucket(quotas[each], now_ms) for each in RATES if each in quotas
        }

    def change(self, quotas: Quotas, now_ms: float) -> None:
        """Have other limits from now on."""
        self.quotas = quotas
        for limit in RATES:
            bucket = self._buckets.get(limit)
            if limit not in quotas:
                self._buckets.pop(limit, None)
            elif bucket is None:
                self._buckets[limit] = TokenBucket(quotas[limit], now_ms)
            elif bucket.rate != quotas[limit]:
                bucket.change(quotas[limit], now_ms)

    def charge(self, direction: Direction, size: int, requests: int, now_ms: float) -> float:
        """Note what was taken; return for how many milliseconds nothing more should be."""
        owed = 0.0
        for limit, amount in zip(direction.value, (size, requests), strict=True):
            bucket = self._buckets.get(limit)
            if bucket is not None and amount:
                owed = max(owed, bucket.take(amount, now_ms))
        return owed

    def exceeded(self, direction: Direction, now_ms: float) -> Limit | None:
        """Return the limit that so much is owed to that requests are refused; None: none."""
        for limit in direction.value:
            bucket = self._buckets.get(limit)
            if bucket is not None and bucket.owed_ms(now_ms) > BUSY_AFTER_MS:
                return limit
        return None

    def admit(self, connection: object, address: str) -> Limit | None:
        """Count a connection, once; return the limit that leaves no place for it."""
        if connection in self.connections:
            return None
        most, of_address = (
            self.quotas.get(Limit.CONNECTIONS),
            self.quotas.get(Limit.CONNECTIONS_PER_ADDRESS),
        )
        if most is not None and len(self.connections) >= most:
            return Limit.CONNECTIONS
        if of_address is not None and self._of_address[address] >= of_address:
            return Limit.CONNECTIONS_PER_ADDRESS
        self.connections[connection] = address
        self._of_address[address] += 1
        return None

    def leave(self, connection: object) -> None:
        """A connection is gone."""
        address = self.connections.pop(connection, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    @property
    def counts_connections(self) -> bool:
        """Whether their number is limited."""
        return Limit.CONNECTIONS in self.quotas or Limit.CONNECTIONS_PER_ADDRESS in self.quotas

    def shown(self, now_ms: float) -> dict[str, Any]:
        """Return how it stands on this broker."""
        owed = {
            limit.value: round(bucket.owed_ms(now_ms)) for limit, bucket in self._buckets.items()
        }
        return {
            "connections": len(self.connections),
            "throttledMs": round(self.throttled_ms),
            "refused": self.refused,
            "owedMs": {name: ms for name, ms in owed.items() if ms},
        }


Accounts = tuple[QuotaAccount, ...]


class QuotaService:
    """The accounts of all subjects that have limits, on this broker."""

    def __init__(
        self,
        access: AccessService,
        *,
        clock: Clock,
        topics: Callable[[], Iterable[TopicConfig]],
        groups: Callable[[], Iterable[GroupConfig]],
    ) -> None:
        """`topics`, `groups`: those of this shard."""
        self._access, self._clock, self._topics, self._groups = access, clock, topics, groups
        self._accounts: dict[QuotaSubject, QuotaAccount] = {}
        self._found: dict[tuple[str, str], Accounts] = {}
        access.on_change.append(self._changed)
        self._changed()

    @property
    def accounts(self) -> Mapping[QuotaSubject, QuotaAccount]:
        """All, for those who show them."""
        return self._accounts

    def of(self, user: str, topic: str) -> Accounts:
        """Return what a request about a topic is charged to: nothing, nearly always."""
        if not self._accounts:
            return ()
        found = self._found.get((user, topic))
        if found is None:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            subjects = self._access.quota_table.of_traffic(user, topic)
            found = self._found[user, topic] = tuple(self._accounts[each] for each in subjects)
        return found

    def refusal(self, accounts: Accounts, direction: Direction) -> str:
        """Return why a request is answered as busy, and count it; "": it is not."""
        now_ms = self._clock.monotonic_ms()
        for account in accounts:
            limit = account.exceeded(direction, now_ms)
            if limit is not None:
                account.refused += 1
                return f"{account.subject} has used up {limit.value}={account.quotas[limit]}"
        return ""

    def no_place(
        self, accounts: Accounts, connection: object, address: str, watch: Callable[[Any], None]
    ) -> str:
        """Return why a connection is one too many, or count it until it is gone; "": it is not.

        `watch` has something called when it is.
        """
        for account in accounts:
            if not account.counts_connections or connection in account.connections:
                continue
            limit = account.admit(connection, address)
            if limit is not None:
                account.refused += 1
                return f"{account.subject} has {limit.value}={account.quotas[limit]} already"
            watch(lambda account=account: account.leave(connection))
        return ""

    def charge(
        self, accounts: Accounts, direction: Direction, size: int, *, requests: int = 1
    ) -> float:
        """Note what was taken; return for how many milliseconds the connection is not read."""
        now_ms, pause_ms = self._clock.monotonic_ms(), 0.0
        for account in accounts:
            owed_ms = min(PAUSE_MS_MAX, account.charge(direction, size, requests, now_ms))
            account.throttled_ms += owed_ms
            pause_ms = max(pause_ms, owed_ms)
        return pause_ms

    def topic_problem(self, wanted: TopicConfig, old: TopicConfig | None) -> str | None:
        """Return why there cannot be one more topic, or one with more queues; None: there can."""
        table = self._access.quota_table
        subjects = table.about(SubjectKind.TOPIC, wanted.name)
        if not subjects:
            return None
        grows = wanted.write_queues - (old.write_queues if old is not None else 0)
        for subject, most in table.grown(Limit.TOPICS, subjects) if old is None else ():
            count = sum(subject.covers(each.name) for each in self._topics())
            if count >= most:
                return _too_many(subject, Limit.TOPICS, most, count)
        for subject, most in table.grown(Limit.QUEUES, subjects) if grows > 0 else ():
            count = sum(each.write_queues for each in self._topics() if subject.covers(each.name))
            if count + grows > most:
                return _too_many(subject, Limit.QUEUES, most, count)
        return None

    def group_problem(self, name: str) -> str | None:
        """Return why there cannot be one more group; None: there can."""
        table = self._access.quota_table
        subjects = table.about(SubjectKind.GROUP, name)
        for subject, most in table.grown(Limit.GROUPS, subjects):
            count = sum(subject.covers(each.name) for each in self._groups())
            if count >= most:
                return _too_many(subject, Limit.GROUPS, most, count)
        return None

    def shown(self, subject: QuotaSubject) -> dict[str, Any]:
        """Return a subject's limits, and how it stands on this broker."""
        quotas = self._access.quota_table.quotas.get(subject, {})
        account = self._accounts.get(subject)
        usage = account.shown(self._clock.monotonic_ms()) if account is not None else {}
        return {"quotas": quotas_to_json(quotas), "usage": usage}

    def _changed(self) -> None:
        wanted, now_ms = self._access.quota_table.quotas, self._clock.monotonic_ms()
        if not wanted and not self._accounts:
            return
        self._found.clear()
        for subject in self._accounts.keys() - wanted.keys():
            del self._accounts[subject]
        for subject, quotas in wanted.items():
            account = self._accounts.get(subject)
            if account is None:
                self._accounts[subject] = QuotaAccount(subject, quotas, now_ms)
            elif account.quotas != quotas:
                account.change(quotas, now_ms)


def _too_many(subject: QuotaSubject, limit: Limit, most: int, count: int) -> str:
    return f"{subject} has {count} {limit.value} here, and its quota is {most}: raise it, or delete"
