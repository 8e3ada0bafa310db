"""Access control of a process that has no log: a name service of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.app.access import name_hooks
from imago_broker.service.access.access import AccessService
from imago_broker.service.access.copied_records import CopiedRecords
from imago_broker.shard_work.access_following import AccessFollower
from imago_broker.shard_work.calls import CallerParts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.exchange import Hook


def follow_access(
    config: BrokerConfig,
    view: Callable[[], ClusterView],
    clock: Clock,
    peer_tls: Callable[[], ssl.SSLContext | None],
) -> tuple[Sequence[Hook], AccessFollower]:
    """Return the check of each request, and what keeps its users like the brokers'."""
    records = CopiedRecords()
    access = AccessService(records, clock=clock, shard=config.broker.shard, audit=config.acl.audit)
    (hook,) = hooks = name_hooks(config, access)
    caller = CallerParts(config, clock, peer_tls)
    return hooks, AccessFollower(caller, view, records, access, hook)
