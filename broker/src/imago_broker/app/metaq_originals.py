"""Putting together what replicates with original MetaQ brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.app.core_services import CoreServices
    from imago_broker.ports import Clock, MetaqConsumers
    from imago_broker.replication.metaq.slave import MetaqSlave


def make_metaq_slave(
    core: CoreServices, consumers: MetaqConsumers, *, clock: Clock
) -> MetaqSlave | None:
    """Return what copies an original master; None: this broker is nobody's slave."""
    if core.metaq_settings.current.slave_id < 0:
        return None
    from imago_broker.replication.metaq.slave import MetaqSlave  # noqa: PLC0415  a client, for few

    return MetaqSlave(
        core.metaq_settings,
        consumers=consumers,
        messages=core.messages,
        topics=core.topics,
        clock=clock,
    )
