"""Answers that depend on old messages in the bucket: given once they are here."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from imago_broker.processors.rocketmq.exchange import Exchange, Reply
from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.02
LOOKS: Final = 400
"""A client waits for its answer: after so many looks it is told to ask again."""


def when_fetched(exchange: Exchange, ask: Callable[[], Reply], looks: int = LOOKS) -> Reply | None:
    """Return the answer, or None: it is given as soon as what it depends on is here.

    Each look may lack something else: a search reads here and there.
    """
    try:
        return ask()
    except RemoteMissError as error:
        if not looks:
            return Reply(ResponseCode.SYSTEM_BUSY, str(error))

    def again() -> None:
        try:
            reply = when_fetched(exchange, ask, looks - 1)
        except RemoteAwayError as error:
            reply = Reply(ResponseCode.SYSTEM_BUSY, f"the bucket does not answer: {error}")
        except Exception:
            logger.exception("request_failed code=%d", exchange.command.code)
            reply = Reply(ResponseCode.SYSTEM_ERROR, "internal error, see the broker's log")
        if reply is not None:
            exchange.answer(reply)

    asyncio.get_running_loop().call_later(LOOK_S, again)
    return None
