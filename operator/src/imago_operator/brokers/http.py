"""Calls to brokers' admin HTTP: the token, the operator's epoch, limits on everything."""

from __future__ import annotations

import json
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from imago_operator.errors import (
    BlockedError,
    InvalidError,
    OperatorError,
    RetryError,
    TakenBackError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EPOCH: Final = "Imago-Operator-Epoch"
ONCE: Final = "Idempotency-Key"
READ: Final = aiohttp.ClientTimeout(total=5, sock_connect=2)
CHANGE: Final = aiohttp.ClientTimeout(total=45, sock_connect=2)
"""A handover waits for a follower, and a change of topics for every shard."""
CALLS_MAX: Final = 64
ANSWER_MAX: Final = 16 << 20
TEXT_MAX: Final = 600
RETRY_S: Final = 2.0
CONTEXTS_MAX: Final = 256
"""As many clusters keep what their brokers are checked with."""
UNCONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
UNDONE: Final = frozenset(
    {
        "changed_meanwhile",
        "no_master",
        "not_replicated",
        "registry_unavailable",
        "users_awaited",
    }
)
"""Codes of brokers that refuse before they do anything, or have taken it back."""


class SilentError(RetryError):
    """A broker did not answer at all."""


class UnaskedError(SilentError):
    """A broker could not be connected to: it was not asked for anything."""


class UndoneError(RetryError):
    """A broker has refused before it did anything, for a reason that another may not have."""


class StaleOperatorError(RetryError):
    """Another operator has taken over: its epoch is in force (409)."""


class MissingError(InvalidError):
    """What the call is about is not there (404)."""


class BrokerHttp:
    """One session with the brokers of all clusters; to be entered in the loop that uses it."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        """`new_id`: a fresh id for each request, so that brokers tell repeats from new ones."""
        self._new_id = new_id
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=CALLS_MAX, limit_per_host=4)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    def with_token(self, token: str | None, trusted: str = "") -> BrokerCalls:
        """Return the calls to one cluster's brokers; `trusted`: PEM of who signs for them."""
        return BrokerCalls(self, token, context_of(trusted) if trusted else None)

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        query: Mapping[str, str] | None,
        body: Any,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[int, Any]:
        """Return status and decoded answer; SilentError where there is none, UnaskedError where it
        was not asked either."""
        assert self._session is not None, "to be entered first"
        changes = method != "GET"
        sent = {"Accept": "application/json", **headers}
        if changes:
            sent |= {"Content-Type": "application/json", ONCE: self._new_id()}
        try:
            async with self._session.request(
                method,
                url,
                params=query,
                data=None if body is None else json.dumps(body).encode(),
                headers=sent,
                timeout=CHANGE if changes else READ,
                # Without a context no https is spoken: nobody would vouch for the other side.
                ssl=tls or True,
            ) as answer:
                raw = await _bounded(answer)
                return answer.status, json.loads(raw) if raw else {}
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            text = f"{method} {url}: {type(error).__name__} {error}".rstrip()
            kind = UnaskedError if isinstance(error, UNCONNECTED) else SilentError
            raise kind(text[:TEXT_MAX], delay_s=RETRY_S) from error


class BrokerCalls:
    """Calls to the brokers of one cluster. A broker is its base address."""

    def __init__(
        self, http: BrokerHttp, token: str | None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._http, self._tls = http, tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def get(self, broker: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the answer to a question; errors as in `refusal`, RetryError for none."""
        status, answer = await self._http.call(
            "GET", broker + path, headers=self._headers, query=query, body=None, tls=self._tls
        )
        if status >= 400:
            raise refusal(f"GET {broker}{path}", status, answer)
        return answer

    async def get_at_any(
        self, brokers: Sequence[str], path: str, query: Mapping[str, str] | None = None
    ) -> Any:
        """Return the answer of the first broker that has one to give."""
        last: OperatorError = SilentError("no broker has an address", delay_s=RETRY_S)
        for broker in brokers:
            try:
                return await self.get(broker, path, query)
            except RetryError as error:
                last = error
        raise last

    async def change(
        self, method: str, broker: str, path: str, body: Any, *, epoch: int | None
    ) -> Any:
        """Have one broker change something, under the operator's epoch."""
        headers = dict(self._headers)
        if epoch is not None:
            headers[EPOCH] = str(epoch)
        status, answer = await self._http.call(
            method, broker + path, headers=headers, query=None, body=body, tls=self._tls
        )
        if status >= 400:
            raise refusal(f"{method} {broker}{path}", status, answer)
        return answer

    async def change_at_any(
        self,
        method: str,
        brokers: Sequence[str],
        path: str,
        body: Any,
        *,
        epoch: int | None,
        once: bool = False,
    ) -> Any:
        """Have the first broker that can change something do it.

        `once`: repeated it is another change, so nobody else is asked where it may have been done.
        """
        last: OperatorError = SilentError("no broker has an address", delay_s=RETRY_S)
        for broker in brokers:
            try:
                return await self.change(method, broker, path, body, epoch=epoch)
            except StaleOperatorError:
                raise
            except (UnaskedError, UndoneError) as error:
                last = error
            except RetryError as error:
                if once:
                    raise
                last = error
        raise last


@lru_cache(maxsize=CONTEXTS_MAX)
def context_of(trusted: str) -> ssl.SSLContext:
    """Return a context for brokers whose certificates these authorities have signed.

    Pods are called by addresses, which certificates do not name: these authorities sign for the
    cluster's members alone.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=trusted)
    return context


def refusal(what: str, status: int, answer: Any) -> OperatorError:
    """Return the error that an answer of 400 or above stands for.

    Brokers say `{"error": code, "message": …, "cure": …}`. 409 means that a fact is another one
    than the caller had seen, or that one has to change first.
    """
    said = answer if isinstance(answer, dict) else {}
    code = str(said.get("error", ""))
    text = f"{what}: {status} {said.get('message', '')}"[:TEXT_MAX]
    if code == "stale_operator":
        return StaleOperatorError(text, delay_s=RETRY_S)
    if code == "taken_back":
        return TakenBackError(text, until="another request arrives")
    if status == 409:
        return BlockedError(text, until=str(said.get("cure", "")) or code)
    if status == 404:
        return MissingError(text)
    if status in (400, 403, 413, 422):
        # It goes into a resource's status, whose readers know no broker's address.
        words = (str(said.get(part, "")).strip() for part in ("message", "cure"))
        return InvalidError(" ".join(filter(None, words))[:TEXT_MAX] or text)
    kind = UndoneError if status == 401 or code in UNDONE else RetryError
    return kind(text, delay_s=RETRY_S)


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    raw = await answer.content.read(ANSWER_MAX + 1)
    parts = [raw]
    size = len(raw)
    while raw and size <= ANSWER_MAX:
        raw = await answer.content.read(ANSWER_MAX + 1 - size)
        parts.append(raw)
        size += len(raw)
    if size > ANSWER_MAX:
        raise ValueError(f"an answer of more than {ANSWER_MAX} bytes")
    return b"".join(parts)
