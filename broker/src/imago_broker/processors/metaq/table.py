"""The commands of the text protocol: which processor serves which.

Puts and gets come from the scanner in parts; all other commands are values, found by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.processors.metaq import texts
from imago_broker.processors.metaq.filters import GroupFilters
from imago_broker.processors.metaq.gets import GetProcessor
from imago_broker.processors.metaq.patterns import TopicPatterns
from imago_broker.processors.metaq.puts import PutProcessor
from imago_broker.processors.metaq.stats import StatsProcessor
from imago_broker.processors.metaq.syncs import SyncProcessor
from imago_broker.processors.metaq.transactions import MetaqTransactionProcessor
from imago_wire.text.commands import (
    OPAQUE_DEFAULT,
    Auth,
    Command,
    Offset,
    Quit,
    Result,
    Stats,
    Sync,
    Transaction,
    Value,
    Version,
)
from imago_wire.text.encoder import result
from imago_wire.text.handshake import OPEN
from imago_wire.text.items import BAD, GET, OTHER
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.processors.metaq.assembly import MetaqAssembly
    from imago_broker.processors.metaq.identity import MetaqFace
    from imago_broker.processors.metaq.peer import Peer
    from imago_wire.text.items import Item


class MetaqProcessors:
    """All commands of the MetaQ port."""

    def __init__(
        self,
        *,
        puts: PutProcessor,
        gets: GetProcessor,
        stats: StatsProcessor,
        syncs: SyncProcessor | None,
        transactions: MetaqTransactionProcessor,
        face: MetaqFace,
    ) -> None:
        self._puts = puts
        self.take_puts = puts.take
        """The fast path of a read that begins with puts: (peer, data) to where they end."""
        self.stats_text = stats.text
        """What ``stats`` answers to an item."""
        self._gets = gets
        self._settings, self._counters = face.settings, face.counters
        self._transactions = transactions
        self._others: dict[type, Callable[[Peer, Any], None]] = {
            Auth: _open,
            Offset: self._gets.offset,
            Quit: lambda peer, _: peer.finish(),
            # An answer to nothing that was asked: the original looks for a waiting call, finds
            # none and goes on.
            Result: _ignore,
            Stats: stats.stats,
            Sync: self._no_sync if syncs is None else syncs.sync,
            Value: _ignore,
            Version: self._version,
        }

    def ask_who(self, answer: Callable[[Peer, Auth], None]) -> None:
        """Have this answer those who say who they are; before, nobody is asked."""
        self._others[Auth] = answer

    def met(self, peer: Peer) -> None:
        """Meet a new connection: it may do all."""

    def refusal(self, peer: Peer, command: Command) -> bytes | None:
        """Refuse no command by its line: all may be read whole."""

    def run(self, peer: Peer, items: Sequence[Item], at: int = 0) -> int:
        """Work on scanned commands from `at` on; return the index of the first one left.

        One is left where the peer has so many answers waiting that it must read first, where a
        put waits for clients to be told of its topic, a transaction for the log to be read, and
        all that is asked behind long statistics for those.
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
                command = item.command
                if not isinstance(command, Transaction):
                    self._others[type(command)](peer, command)
                elif not self._transactions.transaction(peer, command):
                    return at - 1
            else:
                assert item.kind == BAD, "all puts were taken just now"
                self._counters.malformed += 1
                peer.finish()
            if at == count or _has_to_wait(peer):
                return at
        return count

    def _version(self, peer: Peer, command: Version) -> None:
        opaque = OPAQUE_DEFAULT if command.opaque is None else command.opaque
        peer.reply(result(Status.SUCCESS, self._settings.current.version, opaque))

    def _no_sync(self, peer: Peer, command: Sync) -> None:
        _no_handler(peer, "SyncCommand", command.opaque)


def build_processors(parts: MetaqAssembly) -> MetaqProcessors:
    """Build the processors, each from what it uses."""
    face, store = parts.face, parts.messages.store
    patterns = TopicPatterns(face.settings, parts.patterns, parts.topics)
    transactions = MetaqTransactionProcessor(
        transactions=parts.transactions,
        settings=face.settings,
        serving_rules=face.serving_rules,
        counters=face.counters,
    )
    return MetaqProcessors(
        puts=PutProcessor(
            face=face,
            messages=parts.messages,
            rng=parts.rng,
            patterns=patterns,
            when_published=parts.when_published,
            transactions=transactions,
        ),
        gets=GetProcessor(
            face=face,
            store=store,
            budget=parts.budget,
            patterns=patterns,
            filters=GroupFilters(parts.topics),
        ),
        stats=StatsProcessor(
            face=face,
            store=store,
            topics=parts.topics,
            connections=parts.connections,
            config_file=parts.config_file,
        ),
        syncs=_syncs(parts, patterns),
        transactions=transactions,
        face=face,
    )


def _syncs(parts: MetaqAssembly, patterns: TopicPatterns) -> SyncProcessor | None:
    """Return what serves `sync`; None: this broker is nobody's gregor slave."""
    if not parts.face.settings.current.gregor:
        return None
    return SyncProcessor(
        identity=parts.face.identity,
        messages=parts.messages,
        topics=parts.topics,
        clock=parts.face.clock,
        counters=parts.face.counters,
        patterns=patterns,
    )


def _has_to_wait(peer: Peer) -> bool:
    """Whether what the connection asks next waits, for an answer or for others to be read."""
    return peer.held or peer.is_full()


def _no_handler(peer: Peer, java_class: str, opaque: int) -> None:
    text = texts.NO_HANDLER + java_class
    peer.reply(result(Status.SERVICE_UNAVAILABLE, text, opaque))


def _open(peer: Peer, command: Auth) -> None:
    """Answer that nobody has to say who he is."""
    peer.reply(result(Status.SUCCESS, OPEN, command.opaque))


def _ignore(_peer: Peer, _command: Command) -> None:
    """Serve a command that asks for nothing."""
