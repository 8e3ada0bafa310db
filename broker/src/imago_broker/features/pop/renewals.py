"""What push consumers of RocketMQ 5's SDKs work on: kept out for them for as long as they live.

Their messages come with a minute; long before that is over it is prolonged, by more each time, for
three hours. Clients know nothing of it, and their receipts stay as they are. Once that was done
the log says for whom: the next master goes on with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.service.groups.clients import CLIENT_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from imago_broker.features.pop.service import PopService, Queue
    from imago_broker.features.pop.waiting import PopWaiting
    from imago_broker.ports import Clock

HANDOUTS_MAX = 500_000
"""Of all clients together; what comes above that is not prolonged."""
AHEAD_MS = 45_000
"""Before the end, so that the log soon says whose it is."""
LONGEST_MS = 3 * 3600 * 1000
_STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
LEFT_BEHIND_MS = 1_000
"""After which others get what a client had that is gone."""

Client = tuple[str, str]
"""A user, and the id of one of its clients."""
_Handout = tuple["Queue", int]


class _Kept:
    """One handout, or what is left of it."""

    __slots__ = ("due_ms", "since_ms", "steps")

    def __init__(self, since_ms: int, due_ms: int) -> None:
        self.since_ms, self.due_ms = since_ms, due_ms
        self.steps = 0


class PushRenewals:
    """The messages of all push consumers of this broker."""

    def __init__(self, pops: PopService, waiting: PopWaiting, clock: Clock) -> None:
        self._pops, self._waiting, self._clock = pops, waiting, clock
        self._kept: dict[Client, dict[_Handout, _Kept]] = {}
        self._count = 0
        self._there: Container[Client] = ()
        self._back_until_ms = 0

    def __len__(self) -> int:
        return self._count

    def only_for(self, clients: Container[Client]) -> None:
        """Keep messages for these alone: who have said what they are, and have not left."""
        self._there = clients

    def start(self) -> None:
        """Go on with what the last master kept out: its clients have two minutes to come here."""
        now_ms = self._clock.epoch_ms()
        self._back_until_ms = now_ms + CLIENT_LIFE_MS
        for queue, stamp, (user, client_id, since_ms) in self._pops.kept():
            self._add((user, client_id), (queue, stamp), _Kept(since_ms, now_ms))

    def stop(self) -> None:
        """Another member decides now, or nobody."""
        self._kept.clear()
        self._count = 0

    def add(self, client: Client, queues: Iterable[Queue], stamp: int, due_ms: int) -> None:
        """Keep messages out that a client was given, for as long as it is there.

        Who never said what it is, or left while it waited, would never be gone.
        """
        if client not in self._there:
            return
        now_ms = self._clock.epoch_ms()
        for queue in queues:
            self._add(client, (queue, stamp), _Kept(now_ms, due_ms))

    def count_of(self, client: Client) -> int:
        """Return how many messages a client has."""
        found = 0
        for handout in list(self._kept.get(client, ())):
            left = self._left(handout)
            found += left
            if not left:
                self._let_go(client, handout)
        return found

    def gone(self, client: Client) -> None:
        """Let others have, soon, what a client had."""
        of_client = self._kept.pop(client, {})
        self._count -= len(of_client)
        due_ms = self._clock.epoch_ms() + LEFT_BEHIND_MS
        for handout, kept in of_client.items():
            self._prolong(client, handout, kept, due_ms)

    def tick(self) -> None:
        """Prolong what is nearly over. Call it every five seconds."""
        now_ms = self._clock.epoch_ms()
        for client, of_client in list(self._kept.items()):
            if client not in self._there and now_ms > self._back_until_ms:
                self.gone(client)
                continue
            for handout, kept in list(of_client.items()):
                if not self._left(handout) or now_ms - kept.since_ms > LONGEST_MS:
                    self._let_go(client, handout)
                elif kept.due_ms <= now_ms + AHEAD_MS:
                    step_ms = _STEPS_MS[min(kept.steps, len(_STEPS_MS) - 1)]
                    kept.steps += 1
                    self._prolong(client, handout, kept, now_ms + step_ms)

    def _left(self, handout: _Handout) -> int:
        popped = self._pops.known(handout[0])
        return 0 if popped is None else popped.state.left(handout[1])

    def _add(self, client: Client, handout: _Handout, kept: _Kept) -> None:
        of_client = self._kept.get(client, {})
        if handout not in of_client and self._count < HANDOUTS_MAX:
            self._count += 1
            self._kept.setdefault(client, of_client)[handout] = kept

    def _let_go(self, client: Client, handout: _Handout) -> None:
        of_client = self._kept[client]
        del of_client[handout]
        self._count -= 1
        if not of_client:
            del self._kept[client]

    def _prolong(self, client: Client, handout: _Handout, kept: _Kept, due_ms: int) -> None:
        kept.due_ms = due_ms
        queue, stamp = handout
        if self._pops.prolong(queue, stamp, due_ms, (*client, kept.since_ms)):
            self._waiting.out_until(*queue[1:], due_ms)
