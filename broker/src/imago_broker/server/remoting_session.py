"""One connection of RocketMQ's remoting protocol, and what the connections of one port share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.rows import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """What one connection may cost. Bytes and milliseconds."""

    frame_bytes_max: int = 16 << 20
    output_bytes_max: int = 64 << 20
    """A peer that lets more than this pile up unread is cut off."""
    output_bytes_pause: int = 4 << 20
    """Above this nothing more is read from the peer until it has read its answers."""
    idle_ms: int = 120_000
    calls_max: int = 1024
    """Requests of ours to the client that wait for its answer."""


class RemotingServer:
    """One port: its table and its connections. `session` is the protocol factory."""

    def __init__(
        self,
        table: Table,
        *,
        loop: asyncio.AbstractEventLoop,
        limits: RemotingLimits = RemotingLimits(),
    ) -> None:
        self.table = table
        self.loop = loop
        self.limits = limits
        self.sessions: set[RemotingSession] = set()

    def session(self) -> RemotingSession:
        """Make the protocol object of a new connection."""
        return RemotingSession(self)


class RemotingSession(asyncio.Protocol):
    """One connection: bytes to requests, answers to bytes, both in bounded memory."""

    def __init__(self, server: RemotingServer) -> None:
        self.server = server
