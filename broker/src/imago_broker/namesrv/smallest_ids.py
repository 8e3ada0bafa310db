"""Tells foreign brokers that the smallest id of their name has changed (RocketMQ's code 905).

Brokers of 5.x that let a slave act as the master want to hear at once who has the smallest id now.
As with the originals they are told only while `notifyMinBrokerIdChanged` is set, on the port that
they registered, and without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import FLAG_ONEWAY, RemotingCommand
from imago_wire.remoting.frame import encode_frame
from imago_wire.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.model.registry.cluster import ForeignBroker

log = logging.getLogger(__name__)

TELLING_SECONDS_MAX: Final = 3.0
"""How long a broker may take to be reached and told."""


def joined(members: Mapping[int, ForeignBroker], broker: ForeignBroker) -> list[ForeignBroker]:
    """Return whom to tell of a broker that has come: those that were there, if its id is smaller.

    `members`: those that were there, by id.
    """
    if not members or broker.broker_id >= min(members):
        return []
    return [one for number, one in members.items() if number != broker.broker_id]


def left(members: Mapping[int, ForeignBroker], broker: ForeignBroker) -> list[ForeignBroker]:
    """Return whom to tell of a broker that has gone: those that are left, if its id was smallest.

    `members`: those that are left. Only brokers that may act as masters are told.
    """
    if not members or broker.broker_id > min(members):
        return []
    return [one for one in members.values() if one.acting_master]


def notice(smallest: ForeignBroker, *, gone: str = "", ha_address: str = "") -> bytes:
    """Return the request that says who has the smallest id now.

    `gone`: the address of the broker whose going has changed that.
    """
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=smallest.broker_id,
        min_broker_addr=smallest.address,
        offline_broker_addr=gone or None,
        ha_broker_addr=ha_address or None,
    )
    return encode_frame(
        RemotingCommand(
            code=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, flag=FLAG_ONEWAY, ext=header.to_ext()
        )
    )


async def tell(brokers: Collection[ForeignBroker], frame: bytes) -> None:
    """Send a notice to all of them; who cannot be reached learns it by asking (901)."""
    await asyncio.gather(*(_told(broker, frame) for broker in brokers))


async def _told(broker: ForeignBroker, frame: bytes) -> None:
    host, _, port = broker.address.rpartition(":")
    try:
        async with asyncio.timeout(TELLING_SECONDS_MAX):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(frame)
                await writer.drain()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, ValueError, OverflowError) as error:
        log.info("foreign_broker_not_told address=%.100s reason=%s", broker.address, error)
