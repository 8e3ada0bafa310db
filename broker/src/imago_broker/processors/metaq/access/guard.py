"""Access control in front of MetaQ's commands.

The protocol has no credentials: a connection is the user's whom its certificate names, or whom a
client of ours has proved to be (`handshakes`), else `anonymous`. Rules say what each may do, and
from which networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_broker.model.access.access import (
    CLUSTER_NAME,
    READ,
    RUN,
    SHOW,
    AccessKind,
    Need,
    Operation,
)
from imago_broker.model.access.users import ANONYMOUS, MEMBER
from imago_broker.processors.metaq.access.handshakes import Handshakes
from imago_broker.service.access.grants import AccessGrants
from imago_broker.service.access.throttling import Direction
from imago_wire.text.commands import (
    OPAQUE_DEFAULT,
    Auth,
    Get,
    Offset,
    Put,
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
from imago_wire.text.items import GET, OTHER, PUT, OtherItem
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.processors.metaq.table import MetaqProcessors
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.throttling import Accounts, QuotaService
    from imago_wire.remoting.scanning.granting import UserGrants
    from imago_wire.text.commands import Command
    from imago_wire.text.items import Item

_PUBLISH: Final = (Operation.PUBLISH,)
_SUBSCRIBE: Final = (Operation.SUBSCRIBE,)


def _nothing(_: Any) -> Sequence[Need]:
    return ()


def _needs_to_put(topic: str) -> Sequence[Need]:
    return (Need(_PUBLISH, AccessKind.TOPIC, topic),)


def _needs_to_get(asked: tuple[str, str]) -> Sequence[Need]:
    topic, group = asked
    return (
        Need(_SUBSCRIBE, AccessKind.TOPIC, topic),
        Need(_SUBSCRIBE, AccessKind.GROUP, group),
    )


def _put(command: Any) -> Sequence[Need]:
    of_topic = _needs_to_put(command.topic)
    if command.transaction is None:
        return of_topic
    return (*of_topic, Need(_PUBLISH, AccessKind.TRANSACTION, command.transaction))


def _get(command: Any) -> Sequence[Need]:
    return _needs_to_get((command.topic, command.group))


def _offset(command: Any) -> Sequence[Need]:
    return (
        Need(READ, AccessKind.TOPIC, command.topic),
        Need(READ, AccessKind.GROUP, command.group),
    )


RIGHTS: Final[Mapping[type[Command], Callable[[Any], Sequence[Need]]]] = {
    Put: _put,
    Get: _get,
    Offset: _offset,
    Stats: lambda _: (Need(SHOW, AccessKind.CLUSTER, CLUSTER_NAME),),
    Transaction: lambda command: (Need(_PUBLISH, AccessKind.TRANSACTION, command.key),),
    Sync: lambda _: (Need(RUN, AccessKind.CLUSTER, CLUSTER_NAME),),
    # Who says who he is has proved nothing yet.
    Auth: _nothing,
    # The heartbeat, and the end.
    Version: _nothing,
    Quit: _nothing,
    # Answers to nothing that was asked: they are passed over.
    Result: _nothing,
    Value: _nothing,
}
"""What each command needs; one that is not here is denied."""


class GuardedProcessors:
    """The processors of the port, behind the rules."""

    def __init__(
        self,
        processors: MetaqProcessors,
        access: AccessService,
        quotas: QuotaService,
        settings: LiveSettings[MetaqSection],
        topics_of: Callable[[str, Peer], Iterable[str]],
    ) -> None:
        """`topics_of`: for which topics a transaction that a connection means has messages."""
        self._processors, self._access, self._quotas = processors, access, quotas
        self._topics_of = topics_of
        self._denials = access.denials
        self._grants = AccessGrants(
            access, may=self._may, publish=_needs_to_put, consume=_needs_to_get
        )
        self.handshakes = Handshakes(access, settings, self.met)
        processors.ask_who(self.handshakes.auth)
        self.take_puts = processors.take_puts
        """As there: of a peer that is `met` it takes what is allowed."""

    def met(self, peer: Peer) -> None:
        """Find what a new connection may do."""
        peer.grants = self._grants.of(peer.address, peer.certificate_user).unsigned

    def run(self, peer: Peer, items: Sequence[Item], at: int = 0) -> int:
        """Work on those commands that are allowed; see `MetaqProcessors.run`."""
        while at < len(items):
            end = at
            while end < len(items) and self._is_free(peer, items[end]):
                end += 1
            if end > at:
                at = self._processors.run(peer, items[:end], at)
            elif (need := self._denied(peer, items[at])) is None:
                end = at + 1
                at += self._run_limited(peer, items[at])
            else:
                peer.reply(self._refused(peer, items[at], need))
                at = end = at + 1
            if at < end or peer.held or peer.finishing:
                return len(items) if peer.finishing else at
            if peer.is_full():
                break
        return at

    def _is_free(self, peer: Peer, item: Item) -> bool:
        """Whether it may be worked on, and nobody's limits are about it."""
        return self._denied(peer, item) is None and not self._accounts(peer, item)

    def _accounts(self, peer: Peer, item: Item) -> Accounts:
        """Return what a put or a get is charged to."""
        if item.kind != PUT and item.kind != GET:
            return ()
        return self._quotas.of(peer.certificate_user or ANONYMOUS, item.topic)

    def _run_limited(self, peer: Peer, item: Item) -> int:
        """Work on a command within its limits, or answer as busy; 0: it has to be begun again."""
        assert item.kind == PUT or item.kind == GET, "only these are limited"
        accounts, quotas = self._accounts(peer, item), self._quotas
        direction = Direction.PRODUCER if item.kind == PUT else Direction.CONSUMER
        refusal = quotas.no_place(accounts, peer, peer.address, peer.watch)
        if refusal := refusal or quotas.refusal(accounts, direction):
            peer.reply(result(Status.SERVICE_UNAVAILABLE, refusal, item.opaque))
            return 1
        before = peer.answered_bytes
        done = self._processors.run(peer, (item,), 0)
        if done:
            size = len(item.body) if item.kind == PUT else peer.answered_bytes - before
            pause_ms = quotas.charge(accounts, direction, size)
            if pause_ms:
                peer.throttle(pause_ms)
        return done

    def _denied(self, peer: Peer, item: Item) -> Need | None:
        """Return what the connection's user may not; None: it may all."""
        if peer.grants is None:
            self.met(peer)
        if _is_granted(item, peer.grants):
            return None
        name, address = peer.certificate_user or ANONYMOUS, peer.address
        needs = (*_needs(item), *self._needs_to_commit(peer, item))
        if self._access.outdated.why and name != MEMBER:
            return None if self._denials.serves_without(needs) else next(iter(needs), None)
        if self._access.is_white(address):
            return None
        lacking = next((need for need in needs if not self._may(name, need, address)), None)
        if lacking is not None and self._denials.serves_without(needs):
            self._note(peer, lacking, served=True)
            return None
        return lacking

    def _needs_to_commit(self, peer: Peer, item: Item) -> Iterator[Need]:
        """Yield what a commit needs as things are now, whatever its puts were allowed."""
        command = item.command if item.kind == OTHER else None
        if isinstance(command, Transaction) and command.type in _COMMITS:
            for topic in self._topics_of(command.key, peer):
                yield from _needs_to_put(topic)

    def _may(self, user: str, need: Need, address: str) -> bool:
        return self._access.rights_of(user).meets(need, address)

    def refusal(self, peer: Peer, command: Command) -> bytes | None:
        """Return the answer to a command whose body has not come; None: it is to be read whole.

        Answers to nothing that was asked have none, and nobody reads them.
        """
        if isinstance(command, Result | Value):
            return b""
        if self._denials.audit:
            return None  # it is looked at once it is whole
        item = OtherItem(OTHER, command)
        need = self._denied(peer, item)
        return None if need is None else self._refused(peer, item, need)

    def _refused(self, peer: Peer, item: Item, need: Need) -> bytes:
        opaque = item.command.opaque if item.kind == OTHER else item.opaque  # type: ignore[union-attr]
        opaque = OPAQUE_DEFAULT if opaque is None else opaque
        if why := self._access.awaited.why:
            return result(Status.SERVICE_UNAVAILABLE, why, opaque)
        return result(Status.FORBIDDEN, self._note(peer, need, served=False), opaque)

    def _note(self, peer: Peer, need: Need, *, served: bool) -> str:
        """Count and tell a refusal, or what would be one; return its words."""
        user = peer.certificate_user or ANONYMOUS
        text = f"{user} may not {need.operations[0]} {need.kind} {need.name[:127]}"
        self._denials.note(peer.address, f"metaq user={user}", text, served=served)
        return text


def _is_granted(item: Item, user: UserGrants | None) -> bool:
    """Whether one look tells that a put or a get is allowed."""
    if user is None:
        return False
    if item.kind == PUT:
        return item.transaction is None and user.publish[item.topic]
    return item.kind == GET and user.consume[item.topic, item.group]


def _needs(item: Item) -> Sequence[Need]:
    if item.kind == PUT:
        return _put(item)
    if item.kind == GET:
        return _get(item)
    if item.kind == OTHER:
        right = RIGHTS.get(type(item.command))
        return right(item.command) if right is not None else _NOBODY
    return ()  # a line that is no command: the processors end the connection


_COMMITS: Final = (TransactionType.COMMIT_ONE_PHASE, TransactionType.COMMIT_TWO_PHASE)
_NOBODY: Final = (Need((Operation.ADMINISTER,), AccessKind.ANY, "a command without a right"),)
