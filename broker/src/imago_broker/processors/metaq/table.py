"""The commands of the text protocol: which processor serves which.

Puts and gets come from the scanner in parts; all other commands are values, found by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.processors.metaq import texts
from imago_broker.processors.metaq.gets import GetProcessor
from imago_broker.processors.metaq.patterns import TopicPatterns
from imago_broker.processors.metaq.puts import PutProcessor
from imago_broker.processors.metaq.stats import StatsProcessor
from imago_wire.text.commands import (
    OPAQUE_DEFAULT,
    Command,
    Offset,
    Quit,
    Result,
    Stats,
    Sync,
    Transaction,
    TransactionType,
    Value,
    Version,
)
from imago_wire.text.encoder import result
from imago_wire.text.items import BAD, GET, OTHER
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.processors.metaq.services import MetaqServices, Peer
    from imago_wire.text.items import Item


class MetaqProcessors:
    """All commands of the MetaQ port."""

    def __init__(self, services: MetaqServices) -> None:
        self._services = services
        patterns = TopicPatterns(services)
        self._puts = PutProcessor(services, patterns)
        self.take_puts = self._puts.take
        """The short way of a read that begins with puts: (peer, data) to where they end."""
        self._gets = GetProcessor(services, patterns)
        stats = StatsProcessor(services)
        self._others: dict[type, Callable[[Peer, Any], None]] = {
            Offset: self._gets.offset,
            Quit: lambda peer, _: peer.finish(),
            # An answer to nothing that was asked: the original looks for a waiting call, finds
            # none and goes on.
            Result: _ignore,
            Stats: stats.stats,
            Sync: self._sync,
            Transaction: self._transaction,
            Value: _ignore,
            Version: self._version,
        }

    def run(self, peer: Peer, items: Sequence[Item], at: int = 0) -> int:
        """Work on scanned commands from `at` on; return the index of the first one left.

        One is left where the peer has so many answers waiting that it must read first, and where
        a put waits for clients to be told of its topic.
        """
        count = len(items)
        while not peer.finishing:
            at = self._puts.accept(peer, items, at)
            if at == count or peer.held:
                return at
            item = items[at]
            at += 1
            if item.kind == GET:
                self._gets.get(peer, item)
            elif item.kind == OTHER:
                self._others[type(item.command)](peer, item.command)
            else:
                assert item.kind == BAD, "all puts were taken just now"
                self._services.counters.malformed += 1
                peer.finish()
            if peer.is_full():
                return at
        return count

    def _version(self, peer: Peer, command: Version) -> None:
        opaque = OPAQUE_DEFAULT if command.opaque is None else command.opaque
        peer.reply(result(Status.SUCCESS, self._services.settings.version, opaque))

    def _transaction(self, peer: Peer, command: Transaction) -> None:
        # END has no answer, and a client that got one would find no call to match it.
        if command.type is not TransactionType.END:
            _no_handler(peer, "TransactionCommand", command.opaque)

    def _sync(self, peer: Peer, command: Sync) -> None:
        _no_handler(peer, "SyncCommand", command.opaque)


def _no_handler(peer: Peer, java_class: str, opaque: int) -> None:
    text = texts.NO_HANDLER + java_class
    peer.reply(result(Status.SERVICE_UNAVAILABLE, text, opaque))


def _ignore(_peer: Peer, _command: Command) -> None:
    """Serve a command that asks for nothing."""
