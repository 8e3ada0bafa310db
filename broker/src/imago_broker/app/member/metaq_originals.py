"""Putting together what replicates with original MetaQ brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.app.core_services import CoreServices
    from imago_broker.ports import Clock, MetaqConsumers
    from imago_broker.replication.metaq.samsa import SamsaMaster
    from imago_broker.replication.metaq.slave import MetaqSlave


def make_metaq_slave(
    core: CoreServices, consumers: MetaqConsumers, *, clock: Clock
) -> MetaqSlave | None:
    """Return what copies an original master; None: this broker is no asynchronous slave."""
    if core.metaq_settings.current.gregor:
        core.messages.copied_from = "its samsa master"
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


def make_samsa_master(core: CoreServices, *, clock: Clock) -> SamsaMaster | None:
    """Return what sends messages to a gregor slave; None: this broker has none."""
    if not core.metaq_settings.current.samsa_slave:
        return None
    from imago_broker.replication.metaq.samsa import SamsaMaster  # noqa: PLC0415  for few

    return SamsaMaster(core.metaq_settings, core.messages, clock)
