"""The blocking face of administration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.blocking.faces import blocking
from imago_client.blocking.rocketmq.driver import Inline
from imago_client.rocketmq.admin import Admin as AsyncAdmin

if TYPE_CHECKING:
    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.core.state import ClientState


class Admin:
    """Topics, groups, offsets and the cluster; `Client.admin`. A refusal raises BrokerError."""

    def __init__(self, state: ClientState, driver: BlockingDriver) -> None:
        self._face = AsyncAdmin(state, Inline(driver))

    shards = blocking(AsyncAdmin.shards)
    missing_shards = blocking(AsyncAdmin.missing_shards)
    placed_queues = blocking(AsyncAdmin.placed_queues)
    metaq_servers = blocking(AsyncAdmin.metaq_servers)
    topics = blocking(AsyncAdmin.topics)
    create_topic = blocking(AsyncAdmin.create_topic)
    alter_topic = blocking(AsyncAdmin.alter_topic)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    topic_settings = blocking(AsyncAdmin.topic_settings)
    topic_bounds = blocking(AsyncAdmin.topic_bounds)
    messages_by_key = blocking(AsyncAdmin.messages_by_key)
    groups = blocking(AsyncAdmin.groups)
    group_settings = blocking(AsyncAdmin.group_settings)
    has_group = blocking(AsyncAdmin.has_group)
    create_group = blocking(AsyncAdmin.create_group)
    delete_group = blocking(AsyncAdmin.delete_group)
    describe_group = blocking(AsyncAdmin.describe_group)
    committed_offsets = blocking(AsyncAdmin.committed_offsets)
    group_owners = blocking(AsyncAdmin.group_owners)
    set_request_mode = blocking(AsyncAdmin.set_request_mode)
    group_delays = blocking(AsyncAdmin.group_delays)
    reset_targets = blocking(AsyncAdmin.reset_targets)
    reset_group = blocking(AsyncAdmin.reset_group)
    move_group = blocking(AsyncAdmin.move_group)
