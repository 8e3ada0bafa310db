"""Access control in front of every handler: whose request it is, and whether that user may.

A request is its signer's; without a signature it is the one's whom the certificate names, else
`anonymous`. Clients of RocketMQ 4 receive that version's code and words, all others those of 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from imago_broker.model.access.access import AccessKind, Need, Operation
from imago_broker.model.access.users import ANONYMOUS, MEMBER
from imago_broker.model.access.white_addresses import is_listed
from imago_broker.processors.rocketmq.access.refused_requests import (
    BodyAskedError,
    RefusedRequest,
    header_only,
)
from imago_broker.processors.rocketmq.access.rights import Asked, known_to_nobody, open_to_all
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.processors.rocketmq.needs import needs_to_consume, needs_to_send
from imago_broker.service.access.grants import AccessGrants
from imago_broker.service.access.throttling import Direction
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.peer import Version
from imago_wire.remoting.signing import ACCESS_KEY, SIGNATURE, BodySignatures, is_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.model.access.users import User
    from imago_broker.processors.rocketmq.access.rights import Known, Right, TopicsAt
    from imago_broker.processors.rocketmq.exchange import Exchange, Reply
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.throttling import QuotaService
    from imago_wire.remoting.command import RemotingCommand

LIMITED: Final[Mapping[int, Direction]] = {
    Code.SEND_MESSAGE: Direction.PRODUCER,
    Code.SEND_MESSAGE_V2: Direction.PRODUCER,
    Code.SEND_BATCH_MESSAGE: Direction.PRODUCER,
    Code.PULL_MESSAGE: Direction.CONSUMER,
    Code.LITE_PULL_MESSAGE: Direction.CONSUMER,
    Code.VIEW_MESSAGE_BY_ID: Direction.CONSUMER,
    Code.QUERY_MESSAGE: Direction.CONSUMER,
    Code.CONSUMER_SEND_MSG_BACK: Direction.PRODUCER,
}
"""Requests whose rate and bytes may be limited: all that take messages, or answer with bodies."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRACING: Final = (Operation.PUBLISH, AccessKind.TOPIC, TRACE_TOPIC)
NOT_NAMED: Final = "(of that message)"
"""In place of a topic that is known by a message's place in the log alone."""
_SHOWN_KINDS: Final = {
    AccessKind.TOPIC: "Topic",
    AccessKind.GROUP: "Group",
    AccessKind.CLUSTER: "Cluster",
}
_NO_SECRET: Final = "no such secret"  # noqa: S105  what the time of a check is spent on


@dataclass(frozen=True, slots=True, kw_only=True)
class Charging:
    """How much requests may take."""

    quotas: QuotaService
    limited: Mapping[int, Direction]
    """What a request of a code takes; of others only the number counts."""
    size_at: Callable[[int], int]
    """How large the message at a log offset is."""


class AccessHook:
    """Refuses what a request's user may not do."""

    def __init__(
        self,
        access: AccessService,
        rights: Mapping[int, Right],
        topics_at: TopicsAt = lambda _: None,
        light_queues: Callable[[], bool] = lambda: False,
        known: Known = known_to_nobody,
        charging: Charging | None = None,
    ) -> None:
        """`light_queues`: whether messages go to the light queues that they name; `known`: whether
        there is a topic or group of a name; `charging`: what limits requests, if anything does."""
        self._access, self._rights, self._topics_at = access, rights, topics_at
        self._light_queues, self._known = light_queues, known
        self._charging, self._denials = charging, access.denials
        self.closed = ""
        """Why nobody is known here now: then only what is open to all is served."""
        self.grants = AccessGrants(
            access, may=partial(may, access), publish=needs_to_send, consume=needs_to_consume
        )
        """The same decisions for the fast paths of sends and pulls."""

    def before(self, exchange: Exchange) -> None:
        """Raise `RequestError` unless the request's user may have it served."""
        right = self._rights.get(exchange.command.code)
        if right is open_to_all:
            return
        try:
            needs = self._admitted(exchange, right)
            exchange.sender = _sender_of(exchange)
        except RequestError:
            if not self._is_served(exchange):
                raise
            exchange.user, needs = None, ()  # nobody's: whose it says it is is not known
            exchange.sender = ANONYMOUS
        if needs and self._charging is not None:
            self._charge(self._charging, exchange, needs)

    def _admitted(self, exchange: Exchange, right: Right | None) -> Sequence[Need]:
        """Return what a request needs that its user may have served; none: nobody asks."""
        access, address = self._access, exchange.channel.address
        if self.closed or right is None:
            text = self.closed or "this code has no right, so nobody has it"
            raise self._refusal(exchange, text, text)
        if access.outdated.why and exchange.channel.certificate_user != MEMBER:
            raise self._not_ready(access.outdated.why)
        if access.is_white(address):
            exchange.trusted = True
            return ()
        if self._is_trusted(exchange, access):
            return ()
        if exchange.user == ANONYMOUS and not access.open_to_anonymous:
            raise self._unknown(exchange)  # before its body is looked at: that may be megabytes
        needs = list(right(self._asked(exchange.command)))
        self._check(exchange, access, needs)
        return needs

    def _is_served(self, exchange: Exchange) -> bool:
        """Whether a request is served whose user is not known, or may not."""
        if not self._denials.audit:
            return False
        right = self._rights.get(exchange.command.code)
        try:
            needs = right(self._asked(exchange.command)) if right is not None else ()
            return self._denials.serves_without(needs)
        except (ProtocolError, ValueError):
            return True  # its handler says what is wrong

    def _asked(self, command: RemotingCommand) -> Asked:
        return Asked(command, self._topics_at, self._light_queues(), self._known)

    def refused_by_header(self, exchange: Exchange) -> RefusedRequest | None:
        """Return what refuses a request of which the header has come; None: read it whole.

        What `before` would say of it, as far as no right looks at the body; where one does, of
        users without any rule.
        """
        right, address = self._rights.get(exchange.command.code), exchange.channel.address
        if right is open_to_all or right is None or self.closed or self._denials.audit:
            return None
        why = self._access.outdated.why
        if why and exchange.channel.certificate_user != MEMBER:
            return RefusedRequest(exchange, partial(self._not_ready, why))
        if self._access.is_white(address):
            return None
        key = exchange.command.ext.get(ACCESS_KEY)
        if _is_listed(self._access, key, address):
            return None
        user = self._access.users.get(key) if key else None
        exchange.user = key or exchange.channel.certificate_user or ANONYMOUS
        if key and (user is None or not user.enabled):
            return RefusedRequest(exchange, partial(self._wrongly_signed, exchange, key, user))
        refusal = self._refused_needs(exchange, right)
        if refusal is None or not key or user is None:
            return refusal and RefusedRequest(exchange, refusal)
        return RefusedRequest(
            exchange,
            refusal,
            BodySignatures(self._access.signing_keys(user), exchange.command.ext),
            partial(self._wrongly_signed, exchange, key, user),
        )

    def _refused_needs(self, exchange: Exchange, right: Right) -> Callable[[], RequestError] | None:
        """Return what makes the refusal of a request's needs; None: there may be none."""
        access, name, address = self._access, exchange.user or "", exchange.channel.address
        if name == ANONYMOUS and not access.open_to_anonymous:
            return partial(self._unknown, exchange)
        needs: Sequence[Need] = ()
        try:
            needs = list(right(self._asked(header_only(exchange.command))))
        except BodyAskedError:
            user = access.users.get(name)
            if user is not None and not user.is_super and not access.rules.get(name):
                return partial(self._no_rules, exchange)
        except (ProtocolError, ValueError):
            return None  # its handler says what is wrong
        for need in needs:
            if not may(access, name, need, address):
                return partial(self._denied, exchange, need)
        return None

    def _no_rules(self, exchange: Exchange) -> RequestError:
        text = f"User:{exchange.user} has no permission at all, no matched policies."
        return self._refusal(exchange, text, f"No acl rules for {exchange.user}")

    def _check(self, exchange: Exchange, access: AccessService, needs: Sequence[Need]) -> None:
        """Raise unless the request's user has all rights that it needs."""
        user, address = exchange.user or ANONYMOUS, exchange.channel.address
        for need in needs:
            if not may(access, user, need, address):
                raise self._denied(exchange, need)

    def require(self, exchange: Exchange, needs: Sequence[Need]) -> None:
        """Raise unless the request's user may have this, too: as things are now."""
        access, address = self._access, exchange.channel.address
        if access.is_white(address) or _is_listed(access, exchange.user, address):
            return
        try:
            self._check(exchange, access, needs)
        except RequestError:
            if not self._denials.serves_without(needs):
                raise

    def after(self, exchange: Exchange, reply: Reply) -> None:
        """Charge what was read to those who have limits."""
        if exchange.accounts and self._charging is not None:
            body = reply.body
            size = len(body) if isinstance(body, bytes) else sum(map(len, body))
            pause_ms = self._charging.quotas.charge(
                exchange.accounts, Direction.CONSUMER, size, requests=0
            )
            if pause_ms:
                exchange.channel.throttle(pause_ms)

    def _charge(self, charging: Charging, exchange: Exchange, needs: Sequence[Need]) -> None:
        """Charge a request to those who have limits, or raise where they have used them up."""
        quotas = charging.quotas
        direction, channel = charging.limited.get(exchange.command.code), exchange.channel
        topic = ""
        if direction is not None:
            topic = next((need.name for need in needs if need.kind is AccessKind.TOPIC), "")
        accounts = quotas.of(exchange.user or "", topic)
        if not accounts:
            return
        refusal = quotas.no_place(accounts, channel, channel.address, channel.watch)
        if not refusal and direction is not None:
            refusal = quotas.refusal(accounts, direction)
        if refusal:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"[QUOTA]{refusal}")
        if direction is None:
            return
        reads = direction is Direction.CONSUMER
        size = 0 if reads else _size_of(exchange.command, charging.size_at)
        exchange.accounts = accounts if reads else ()
        pause_ms = quotas.charge(accounts, direction, size)
        if pause_ms:
            channel.throttle(pause_ms)

    def _is_trusted(self, exchange: Exchange, access: AccessService) -> bool:
        """Find whose request it is; True where its user needs no right from this address."""
        ext, channel = exchange.command.ext, exchange.channel
        if not (key := ext.get(ACCESS_KEY)):
            exchange.user = channel.certificate_user or ANONYMOUS
            return False
        if _is_listed(access, key, channel.address):
            exchange.user = key
            return True
        self._check_signature(exchange, key, access.users.get(key))
        exchange.user = key
        return False

    def _check_signature(self, exchange: Exchange, key: str, user: User | None) -> None:
        keys = self._access.signing_keys(user) if user is not None else ()
        right = any(is_signed(each, exchange.command) for each in keys or (_NO_SECRET,))
        shut_out = user is None or not user.enabled
        if shut_out or not right or not keys or SIGNATURE not in exchange.command.ext:
            raise self._wrongly_signed(exchange, key, user)

    def _wrongly_signed(self, exchange: Exchange, key: str, user: User | None) -> RequestError:
        """Return the refusal of a request that is not that user's."""
        if user is None:
            return self._refusal(
                exchange, f"User:{key:.64} is not found.", f"No acl config for {key:.64}"
            )
        if not user.enabled:
            return self._refusal(exchange, f"User:{key} is disabled.", f"No acl config for {key}")
        return self._refusal(
            exchange, "check signature failed.", f"Check signature failed for accessKey={key}"
        )

    def _unknown(self, exchange: Exchange) -> RequestError:
        return self._refusal(exchange, "username cannot be null.", "No accessKey is configured")

    def _denied(self, exchange: Exchange, need: Need) -> RequestError:
        key = exchange.user or ""
        shown = need.name[:127] if _is_named(need, exchange.command) else NOT_NAMED
        resource = f"{_SHOWN_KINDS.get(need.kind, need.kind)}:{shown}"
        text5 = (
            f"User:{key} has no permission to access {resource} from {exchange.channel.address}, "
            f"no matched policies. It needs {' or '.join(need.operations)}."
        )
        if need.kind is AccessKind.CLUSTER:
            code = exchange.command.code
            text4 = f"Need admin permission for request code={code}, but accessKey={key} is not"
        else:
            text4 = f"No default permission for {shown}"
        return self._refusal(exchange, text5, text4)

    def _not_ready(self, why: str) -> RequestError:
        return RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")

    def _refusal(self, exchange: Exchange, text5: str, text4: str) -> RequestError:
        command = exchange.command
        if why := self._access.awaited.why:
            return self._not_ready(why)
        served = self._is_served(exchange)
        exchange.denied = not served
        self._denials.note(exchange.channel.address, f"code={command.code}", text5, served=served)
        if command.version < Version.V5_0_0:
            return RequestError(ResponseCode.SYSTEM_ERROR, text4)
        return RequestError(ResponseCode.NO_PERMISSION, text5)


def _is_named(need: Need, command: RemotingCommand) -> bool:
    """Whether the request itself names what it needs: else it is told to nobody whose it is."""
    if need.kind is AccessKind.CLUSTER:
        return True
    named = need.name in command.body.decode(errors="replace")
    return named or any(need.name in value for value in command.ext.values())


def _sender_of(exchange: Exchange) -> str:
    """Return whose producers those of an admitted request are, as its grants say it, too.

    At an address that is trusted that is who it says it is.
    """
    ext, channel = exchange.ext, exchange.channel
    return exchange.user or ext.get(ACCESS_KEY) or channel.certificate_user or ANONYMOUS


def _is_listed(access: AccessService, key: str | None, address: str) -> bool:
    """Whether who names this user needs no right from this address."""
    user = access.users.get(key) if key else None
    listed = user.white_addresses if user is not None and user.enabled else ""
    return bool(listed) and is_listed(address, (listed,))


def may(access: AccessService, user: str, need: Need, address: str) -> bool:
    """Whether a user who has been recognised may do this from an address."""
    rights = access.rights_of(user)
    if rights.meets(need, address):
        return True
    return _is_trace(need, user) and not rights.rule_on(*TRACING)


def _is_trace(need: Need, user: str) -> bool:
    """Whether it is a trace that a client sends of itself: every user may, as at RocketMQ 4, of
    whom no rule says otherwise."""
    wanted = (need.operations, need.name) == ((Operation.PUBLISH,), TRACE_TOPIC)
    return wanted and user != ANONYMOUS


def _size_of(command: RemotingCommand, size_at: Callable[[int], int]) -> int:
    """Return how much a request puts: what it has, or has copied."""
    offset = command.ext.get("offset", "")
    if command.code != Code.CONSUMER_SEND_MSG_BACK or not offset.isdecimal():
        return len(command.body)
    return size_at(int(offset))
