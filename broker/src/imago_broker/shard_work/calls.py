"""Calls of one broker to another."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import aiohttp
import orjson
from yarl import URL

from imago_broker.shard_work.errors import AdminError
from imago_broker.shard_work.signing import CALLER, SCHEME, admin_token, caller_hash, signature

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Clock


TIMEOUT = aiohttp.ClientTimeout(total=10)
_UNKNOWN_CALLER = 401
FORWARDED = "Imago-Forwarded"
"""Header of what a broker asks of another one, on behalf of a caller or for itself."""


class Caller(Protocol):
    """What a call is signed and secured with: `ShardServices`, or `CallerParts`."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def peer_tls(self) -> Callable[[], ssl.SSLContext | None]: ...


@dataclass(frozen=True, slots=True)
class CallerParts:
    """A caller that has no admin interface of its own."""

    config: BrokerConfig
    clock: Clock
    peer_tls: Callable[[], ssl.SSLContext | None]


def own_headers() -> dict[str, str]:
    """What this broker sends with calls of its own to other masters."""
    return {FORWARDED: "1", "Content-Type": "application/json"}


async def refusal_of(answer: aiohttp.ClientResponse) -> AdminError:
    """Return a refusal as the other broker words it, with its status.

    One without our words, or about this broker's own signature, is no answer to the caller.
    """
    text = await answer.text()
    try:
        said = orjson.loads(text)
        told = AdminError(answer.status, said["error"], said["message"], said["cure"])
    except (ValueError, KeyError, TypeError):
        told = None
    if told is None or answer.status == _UNKNOWN_CALLER:
        what = f"It answers {answer.status}: {text:.200}"
        return AdminError(502, "shard_failed", what, "Repeat the call.")
    return told


@asynccontextmanager
async def call(
    session: aiohttp.ClientSession,
    services: Caller,
    to: BrokerRecord,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Ask another broker; `path` is as encoded on its way, with its query.

    Over TLS where we have a certificate; without it only if nothing was said over TLS, and the
    configuration does not rule it out.
    """
    target, said = f"{to.host}:{to.admin}", dict(headers)
    token = admin_token(services.config.admin.token_file)
    if token:
        now_ms = services.clock.epoch_ms()
        signed = signature(token, now_ms, method, target, path, body)
        said["Authorization"] = f"{SCHEME} {now_ms} {signed}"
        said["Host"] = target
        if CALLER in said:
            said[CALLER] += f" {caller_hash(token, said['Authorization'], said[CALLER])}"
    ask = partial(session.request, method, data=body, headers=said)
    context = services.peer_tls()
    if context is not None:
        try:
            found = await ask(URL(f"https://{target}{path}", encoded=True), ssl=context)
        except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError):
            if services.config.tls.calls == "enforcing":
                raise
        else:
            async with found:
                yield found
            return
    async with ask(URL(f"http://{target}{path}", encoded=True)) as found:
        yield found
