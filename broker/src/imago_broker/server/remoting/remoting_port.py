"""What the connections of one remoting port share: the table, limits, the writing of answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from imago_broker.core.budget import InputBudget, OutputBudget
from imago_broker.server.remoting.remoting_limits import RemotingLimits

if TYPE_CHECKING:
    import asyncio

    from imago_broker.processors.rocketmq.pull.pull_path import PullPath
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.processors.rocketmq.send.send_path import SendPath
    from imago_broker.service.groups.channel import Channel

Take = Callable[[Any, bytes | bytearray, int], int]
"""Takes (channel, read, limit of a frame) and returns how many bytes are done with."""
OUTPUT_BYTES_TOTAL_MAX = 256 << 20
"""Of a server that shares no budget with others."""
INPUT_BYTES_TOTAL_MAX = 40 << 20
"""The same of commands that are not whole."""


class FlushedChannel(Protocol):
    """A connection whose answers are written at the end of a turn."""

    def flush(self) -> None:
        """Write what was added."""

    def close(self) -> None:
        """Write what was added, then close."""


@dataclass(kw_only=True, eq=False)
class RemotingPort:
    """One port: its table and what its connections share."""

    table: Table
    loop: asyncio.AbstractEventLoop
    send_path: SendPath | None = None
    """Without one, sends go through the table like any other request."""
    pull_path: PullPath | None = None
    on_close: Callable[[Channel], None] | None = None
    """Receives each connection that is gone."""
    on_drain: Callable[[], None] | None = None
    """Answers, when the port is about to close, what waits for something else than the log."""
    send_wait_ms: Callable[[], int | None] = lambda: None
    """How long a send may wait on its connection; None: for as long as it has to."""
    limits: RemotingLimits = field(default_factory=RemotingLimits)
    budget: OutputBudget = field(default_factory=lambda: OutputBudget(OUTPUT_BYTES_TOTAL_MAX))
    """Of what connections have not read yet, those of other ports that share it included."""
    input_budget: InputBudget = field(default_factory=lambda: InputBudget(INPUT_BYTES_TOTAL_MAX))
    """Of what has come of commands that are not whole."""
    unsent: list[FlushedChannel] = field(default_factory=list, init=False)
    """Channels that have answers to write."""
    _flush_planned: bool = field(default=False, init=False)
    _draining: list[tuple[FlushedChannel, float]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.grants = self.table.grants
        sends, pulls = self.send_path, self.pull_path
        self.take_sends: Take = sends.take if sends else _take_nothing
        """Takes plain sends at the start of a read."""
        self.take_ends: Take = sends.take_ends if sends else _take_nothing
        """Takes ends of transactions at the start of a read, and sends behind them."""
        self.take_pulls: Take = pulls.take if pulls else _take_nothing
        """Answers pulls at the start of a read, those that find messages."""
        self.now_ms = time.monotonic_ns() // 1_000_000
        """Monotonic, as of the last sweep: good enough for idle times, and free."""

    def flush_soon(self) -> None:
        """Have the answers written at the end of this turn."""
        if not self._flush_planned:
            self._flush_planned = True
            self.loop.call_soon(self._planned_flush)

    def flush(self) -> None:
        """Write the answers of all connections, once each."""
        if self.unsent:
            channels = self.unsent.copy()
            self.unsent.clear()
            for channel in channels:
                channel.flush()
        if self._draining and self.running == 0:
            draining, self._draining = self._draining, []
            for channel, stay_seconds in draining:
                if stay_seconds:
                    self.loop.call_later(stay_seconds, channel.close)
                else:
                    channel.close()

    def _planned_flush(self) -> None:
        self._flush_planned = False
        self.flush()

    @property
    def running(self) -> int:
        """How many requests have no answer yet."""
        return sum(lane.running for lane in self.table.lanes.values())

    def drain(self, channel: FlushedChannel, stay_seconds: float = 0.0) -> None:
        """Close a connection once everything in flight on this port is answered.

        `stay_seconds`: or so much later.
        """
        self._draining.append((channel, stay_seconds))
        if self.on_drain is not None:
            self.on_drain()
        self.loop.call_soon(self.flush)


def _take_nothing(_session: Any, _data: bytes | bytearray, _size_max: int) -> int:
    """Stand where a port has no fast path."""
    return 0
