"""Asks every server of a ZooKeeper address list what session it would grant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.cluster.session.handshake import granted_session_timeout_ms
from imago_broker.cluster.session.kazoo_parts import parse_hosts
from imago_broker.cluster.tree import TreeConfigurationError

if TYPE_CHECKING:
    import ssl

    from imago_broker.cluster.session.tree_access import TreeAccess


def granted_ms(
    connect: str, wanted_ms: int, *, access: TreeAccess | None, seconds_max: float
) -> dict[str, int | str]:
    """Return, for each server, the session time-out it grants, or why there was no answer."""
    try:
        servers, _ = parse_hosts(connect)
        context = None if access is None else access.context()
    except TreeConfigurationError as error:
        return {connect: str(error)}
    return asyncio.run(_ask_all(servers, wanted_ms, context, seconds_max))


async def _ask_all(
    servers: list[tuple[str, int]],
    wanted_ms: int,
    context: ssl.SSLContext | None,
    seconds_max: float,
) -> dict[str, int | str]:
    answers = await asyncio.gather(
        *(_ask(host, port, wanted_ms, context, seconds_max) for host, port in servers)
    )
    return {f"{host}:{port}": answer for (host, port), answer in zip(servers, answers, strict=True)}


async def _ask(
    host: str, port: int, wanted_ms: int, context: ssl.SSLContext | None, seconds_max: float
) -> int | str:
    try:
        async with asyncio.timeout(seconds_max):
            return await granted_session_timeout_ms(
                host, port, wanted_ms=wanted_ms, context=context
            )
    except TimeoutError:
        return f"no answer within {seconds_max:g} s"
    except OSError as error:
        return f"not reachable ({error.strerror or error})"
