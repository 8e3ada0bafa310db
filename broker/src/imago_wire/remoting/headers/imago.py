"""Headers with fields of Imago's own. Other brokers and clients leave them unread."""

from __future__ import annotations

from enum import StrEnum

from imago_wire.remoting.fields import Header, Int, Long, TopicHeader, header
from imago_wire.remoting.headers.admin import CreateTopicRequestHeader
from imago_wire.remoting.headers.send import SendMessageRequestHeader


class TopicChange(StrEnum):
    """What UPDATE_AND_CREATE_TOPIC is to do where it is not RocketMQ's make or replace."""

    CREATE = "create"
    """Make the topic; a refusal where there is one."""
    ENSURE = "ensure"
    """Make the topic; one with the same settings will do, another is a refusal."""
    ALTER = "alter"
    """Change the named settings of a topic that there is."""


QUEUES = "queues"
PERM = "perm"


@header
class ChangeTopicRequestHeader(CreateTopicRequestHeader):
    """UPDATE_AND_CREATE_TOPIC as our clients ask: the broker itself checks what exists."""

    imago_change: str | None = None
    imago_named: str | None = None
    """Those of `queues` and `perm` that the caller named, joined with commas."""
    imago_hide_messages: bool = False


@header
class ChangeTopicResponseHeader(Header):
    """Absent from the answers of other brokers."""

    imago_hidden: Int | None = None
    """How many messages readers no longer find."""


@header
class StageBatchRequestHeader(SendMessageRequestHeader):
    """A batch that nobody reads before PUBLISH_STAGED names the attempt that it is of."""

    imago_sink: str
    imago_batch: Long
    imago_attempt: str
    imago_part: Int
    """Which one of the attempt's on this shard: from 0 on."""


@header
class PublishStagedRequestHeader(TopicHeader):
    """The body names attempts, and how many parts each has on this shard, as JSON."""

    topic: str
    """One that the sink writes to."""
    imago_sink: str
    imago_batch: Long
    imago_commit: bool = True
    """False: roll back what is staged of the sink up to this batch."""
