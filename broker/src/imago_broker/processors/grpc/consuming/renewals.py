"""What push consumers work on: kept out for them for as long as they live.

Their messages come with a minute; shortly before that is over it is prolonged, by more each time,
for three hours. Clients know nothing of it and use the handle that they got: here is which one
counts by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.consuming.receipts import parse_handle

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.grpc.consuming.receipts import Handle

HANDLES_MAX = 500_000
"""Of all clients together; what comes above that is not prolonged."""
AHEAD_MS = 10_000
LONGEST_MS = 3 * 3600 * 1000
_STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
FAILURES_MAX = 3
LEFT_BEHIND_MS = 1_000
"""After which others get what a client had that is gone."""

Client = tuple[str, str]
Key = tuple[str, str]
"""A group, and the handle that its client was given."""


class Hiding(Protocol):
    """What has a message out for longer."""

    def hide(
        self,
        call: Call,
        group: str,
        topic: str,
        handle: Handle,
        invisible_ms: int,
        done: Callable[[Handle | CallError], None] = ...,
    ) -> None:
        """Have a message out for as long from now on."""
        ...


class _Given(NamedTuple):
    """What the messages of one receive have in common."""

    call: Call
    group: str
    topic: str
    since_ms: int
    due_ms: int


class _Kept:
    """One message."""

    __slots__ = ("asked", "failures", "given", "handle", "steps")

    def __init__(self, given: _Given) -> None:
        self.given = given
        self.handle: Handle | None = None
        """The newest; None: the one that was given."""
        self.steps = self.failures = 0
        self.asked = False

    def newest(self, told: str) -> Handle:
        """Return the handle that counts; `told`: the one that was given."""
        return self.handle or parse_handle(told)

    @property
    def due_ms(self) -> int:
        """Until when the message is out."""
        return self.given.due_ms if self.handle is None else self.handle.due_ms


class PushRenewals:
    """The messages of all push consumers of this broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Client, dict[Key, _Kept]] = {}
        self._count = 0
        self.hiding: Hiding | None = None
        """Set once, when that is made."""
        self._there: Container[Client] = ()

    def __len__(self) -> int:
        return self._count

    def only_for(self, clients: Container[Client]) -> None:
        """Keep messages for these alone: who have said what they are, and have not left."""
        self._there = clients

    def add(self, call: Call, group: str, topic: str, handles: Sequence[str]) -> None:
        """Keep messages out that a client was given, for as long as it is there.

        Who never said what it is, or left while it waited, would never be gone.
        """
        if call.key not in self._there or not handles:
            return
        due_ms = parse_handle(handles[0]).due_ms
        given = _Given(call, group, topic, self._clock.epoch_ms(), due_ms)
        of_client = self._kept.setdefault(call.key, {})
        for told in handles[: HANDLES_MAX - self._count]:
            self._count += 1
            of_client[group, told] = _Kept(given)

    def count_of(self, client: Client) -> int:
        """Return how many messages a client has."""
        return len(self._kept.get(client, ()))

    def has(self, client: Client) -> bool:
        """Whether anything is kept out for a client."""
        return client in self._kept

    def as_given(self, client: Client, group: str, handles: Iterable[str]) -> bool:
        """Whether of these handles none has been prolonged: the client's own count."""
        of_client = self._kept.get(client, {})
        found = (of_client.get((group, told)) for told in handles)
        return all(kept is None or kept.handle is None for kept in found)

    def newest(self, client: Client, group: str, told: str) -> Handle | None:
        """Return the handle that counts now for the one that a client has; None: its own."""
        kept = self._kept.get(client, {}).get((group, told))
        return None if kept is None else kept.newest(told)

    def drop(self, client: Client, group: str, told: str) -> None:
        """Let a message go: its client has said what becomes of it."""
        self._let_go(client, (group, told))

    def gone(self, client: Client) -> None:
        """Let others have, soon, what a client had."""
        of_client = self._kept.pop(client, {})
        self._count -= len(of_client)
        for (group, told), kept in of_client.items():
            assert self.hiding is not None
            given = kept.given
            self.hiding.hide(given.call, group, given.topic, kept.newest(told), LEFT_BEHIND_MS)

    def tick(self) -> None:
        """Prolong what is nearly over. Call it every five seconds."""
        now_ms = self._clock.epoch_ms()
        near_ms = now_ms + AHEAD_MS
        for client, of_client in list(self._kept.items()):
            for key, kept in list(of_client.items()):
                if kept.due_ms > near_ms or kept.asked:
                    continue
                if now_ms - kept.given.since_ms > LONGEST_MS:
                    self._let_go(client, key)
                else:
                    self._prolong(client, key, kept)

    def _let_go(self, client: Client, key: Key) -> None:
        of_client = self._kept.get(client)
        if of_client is not None and of_client.pop(key, None) is not None:
            self._count -= 1
            if not of_client:
                del self._kept[client]

    def _prolong(self, client: Client, key: Key, kept: _Kept) -> None:
        step_ms = _STEPS_MS[min(kept.steps, len(_STEPS_MS) - 1)]
        kept.asked = True

        def done(found: Handle | CallError) -> None:
            kept.asked = False
            if not isinstance(found, CallError):
                kept.handle, kept.steps, kept.failures = found, kept.steps + 1, 0
                return
            kept.failures += 1
            if kept.failures >= FAILURES_MAX:
                self._let_go(client, key)

        assert self.hiding is not None
        given = kept.given
        self.hiding.hide(given.call, given.group, given.topic, kept.newest(key[1]), step_ms, done)
