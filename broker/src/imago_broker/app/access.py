"""Access control put in front of the ports, where the configuration asks for it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.errors import ExitCode, FatalError
from imago_broker.model import names
from imago_broker.model.access.access import AccessKind
from imago_broker.processors.rocketmq.access.access_hook import AccessHook, Charging
from imago_broker.processors.rocketmq.access.rights import (
    NAME_RIGHTS,
    MessageTopics,
)
from imago_broker.server.introduction_entry import IntroductionEntry
from imago_broker.server.introductions import Introductions, target_of
from imago_broker.service.puts.copies import read_copy
from imago_broker.shard_work.signing import TOKEN_SIZE_MIN, admin_token
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.app.member.shard_member import ShardMember
    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.access.rights import Known, Right, TopicsAt
    from imago_broker.processors.rocketmq.exchange import Hook
    from imago_broker.server.client_ports import Door
    from imago_broker.server.listener import Listener
    from imago_broker.server.session import Session
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.throttling import Direction, QuotaService
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.role import RoleState
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

_WITHOUT = "; or leave admin.token_file empty, then there is no token"


def check_token(config: BrokerConfig) -> None:
    """FatalError: the settings name a file for the administrator's token, and there is none in it.

    One that may be guessed is a warning.
    """
    path = config.admin.token_file
    if not path:
        return
    if token := admin_token(path):
        if len(token) < TOKEN_SIZE_MIN:
            logger.warning(
                "admin_token_short file=%s characters=%d: who guesses it may do everything; write"
                " another into it: openssl rand -hex 32",
                path,
                len(token),
            )
        return
    try:
        reason = "is empty" if not Path(path).read_bytes().strip() else "is no text"
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    raise FatalError(
        f"admin.token_file: {path} {reason}, so that nobody could administer this broker: write a"
        f" secret into it, readable by this broker's user alone (openssl rand -hex 32 > {path};"
        f" chmod 600 {path}){_WITHOUT if not config.acl.enabled else ''}",
        exit_code=ExitCode.USAGE,
    )


def follow_copy(
    access: AccessService, member: ShardMember, role: RoleState, *, checked: bool
) -> None:
    """Have users count as far as a member's copy of the log does; `checked`: rights are."""
    access.awaited.copy_lacks.append(member.unready)
    if checked:
        role.on_change.append(lambda _: access.outdated.look())
        access.outdated.follow(member.behind)


def make_introductions(config: BrokerConfig, clock: Clock) -> Introductions | None:
    """Return what tells other brokers who asks them; None: they need not know."""
    if not config.acl.enabled:
        return None
    token_file = config.admin.token_file
    return Introductions(
        key=lambda: admin_token(token_file), epoch_ms=clock.epoch_ms, random_bytes=os.urandom
    )


def introducing(
    door: Door, introductions: Introductions, record: Callable[[], BrokerRecord]
) -> Callable[[Listener], Session]:
    """Return what makes the sessions of a port that takes introductions."""

    def make(listener: Listener) -> Session:
        own = record()
        return IntroductionEntry(
            introductions,
            target=target_of(own.host, door.port_of(own)),
            is_member=listener.places.is_member,
            make_session=listener.make_introduced,
        )

    return make


_WAITING = names.PARKING_TOPICS | {
    names.HALF_TOPIC,
    names.GIVEN_UP_TOPIC,
    names.METAQ_PREPARED_TOPIC,
}
"""Topics of messages that are meant for others."""


def known_settings(topics: TopicService, groups: GroupService) -> Known:
    """Return what tells which topics and groups there are here."""

    def known(kind: AccessKind, name: str) -> bool:
        return (topics if kind is AccessKind.TOPIC else groups).get(name) is not None

    return known


def broker_hooks(
    config: BrokerConfig,
    access: AccessService,
    messages: MessageService,
    quotas: QuotaService,
    *,
    rights: Mapping[int, Right],
    limited: Mapping[int, Direction],
    known: Known,
) -> Sequence[Hook]:
    """Return the check of each request to RocketMQ's ports.

    `rights` and `limited`: by code; `known`: whether there is a topic or group of a name.
    """
    if not config.acl.enabled:
        return ()
    store = messages.store
    hook = AccessHook(
        access,
        rights,
        topics_at(store),
        light_queues=lambda: messages.light.enabled,
        known=known,
        charging=Charging(quotas=quotas, limited=limited, size_at=size_at(store)),
    )
    return (hook,)


def name_hooks(config: BrokerConfig, access: AccessService) -> Sequence[AccessHook]:
    """Return the check of each request to the name service."""
    return (AccessHook(access, NAME_RIGHTS),) if config.acl.enabled else ()


def size_at(store: MessageStore) -> Callable[[int], int]:
    """Return what tells the size of the record at a log offset; 0 where there is none."""
    return lambda offset: len(store.record_at(offset) or b"")


def topics_at(store: MessageStore) -> TopicsAt:
    """Return what tells the topics of the message that is seen at a log offset."""

    def found(offset: int) -> MessageTopics | None:
        record = store.record_at(offset) if offset >= 0 else None
        if record is None:
            return None
        try:
            message = read_copy(record)
        except ProtocolError:
            return None
        real = message.text(b"REAL_TOPIC") if message.topic in _WAITING else ""
        return MessageTopics(message.topic, real or message.topic)

    return found
