"""What one client knows between operations: routes, ids, clocks. Plain data, no I/O."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from imago_client.core.gate import Gate
from imago_client.core.unique_ids import UniqueKeys
from imago_client.core.warning_pace import WarningPace
from imago_client.observing.watch import Watch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from imago_client.config import ClientConfig
    from imago_client.core.routing import TopicRoute
    from imago_client.errors import ClientError

LISTED_AGE_MAX_S: Final = 10.0
"""For how long the names of all topics serve errors: the list may be long."""


class RouteLookup:
    """A question for a route that is on its way, and what came of it."""

    def __init__(self) -> None:
        self.ended = Gate()
        self.route: TopicRoute | None = None
        self.error: ClientError | None = None


class ClientState:
    """Shared by every operation of one client; belongs to one thread."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        host: str,
        process_id: Callable[[], int],
        rng: random.Random,
        clock_s: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.rng = rng
        self.clock_s = clock_s
        """Monotonic seconds: ages and time-outs."""
        self.clock_ms = clock_ms
        """ms since 1970: stamps in messages."""
        self.patience_s = config.failover_timeout_s
        """How long operations look for the master of a shard that has lost its own."""
        number = rng.getrandbits(32)
        self.client_id = f"{host}@{process_id()}#{number}"
        address = bytes(int(part) for part in host.split(".")) if host.count(".") == 3 else bytes(4)
        self.unique_keys = UniqueKeys(address=address, process_id=process_id, number=number)
        self._name_server = rng.randrange(len(config.bootstrap))
        self._routes: dict[str, tuple[float, TopicRoute]] = {}
        self._listed: tuple[float, Sequence[str] | None] = (0.0, None)
        self.lookups: dict[str, RouteLookup] = {}
        """By topic; one leaves it when it has ended."""
        self.warnings = WarningPace(clock_s)
        self.watch = Watch(config.interceptors)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Have operations ask a shard's next master at once, or fail, in this block alone.

        For the blocking client: on asyncio other operations would run within the block.
        """
        before, self.patience_s = self.patience_s, 0.0
        try:
            yield
        finally:
            self.patience_s = before

    def name_servers(self) -> list[str]:
        """Return all name-service addresses, the one in use first."""
        addresses, first = self.config.bootstrap, self._name_server
        return [*addresses[first:], *addresses[:first]]

    def prefer_name_server(self, address: str) -> None:
        """Stay with the one that answered."""
        self._name_server = self.config.bootstrap.index(address)

    def cached_route(self, topic: str) -> TopicRoute | None:
        """Return the route read last, unless it is too old or was dropped."""
        found = self._routes.get(topic)
        if found is None or self.clock_s() - found[0] > self.config.route_age_max_s:
            return None
        return found[1]

    def stale_route(self, topic: str) -> TopicRoute | None:
        """Return the route read last however old: better than none while nobody answers."""
        found = self._routes.get(topic)
        return found[1] if found else None

    def keep_route(self, route: TopicRoute) -> None:
        self._routes[route.topic] = (self.clock_s(), route)

    def listed_topics(self) -> Sequence[str] | None:
        """Return the names of all topics as they were a moment ago; None: they are not known."""
        at_s, names = self._listed
        return names if names is not None and self.clock_s() - at_s < LISTED_AGE_MAX_S else None

    def keep_listed_topics(self, names: Sequence[str]) -> None:
        """Keep the names for errors that follow soon."""
        self._listed = (self.clock_s(), names)

    def drop_route(self, topic: str) -> None:
        """Have the route read again before its next use."""
        found = self._routes.get(topic)
        if found:
            self._routes[topic] = (float("-inf"), found[1])
