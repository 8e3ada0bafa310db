"""Calls to the API server: who we are, limits, and what each failure asks for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import orjson

from imago_operator.errors import RetryError
from imago_operator.kube.failures import RETRY_S, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_operator.kube.credentials import Credentials

LIMITS: Final = aiohttp.ClientTimeout(total=30, sock_connect=10)
CALLS_MAX: Final = 16
"""At one time, so that many clusters at once do not look like an attack."""
JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
"""JSON is YAML, too."""
MERGE: Final = "application/merge-patch+json"


class ApiServer:
    """One session with the API server; to be entered in the loop that uses it."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: aiohttp.ClientTimeout = LIMITS,
        counted: Callable[[str, str, int], None] | None = None,
    ) -> None:
        """`counted`: told verb, resource and status (0: no answer) of every call."""
        self._credentials = credentials
        self._limits = limits
        self._counted = counted or _uncounted
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._credentials.tls() or True, limit=CALLS_MAX)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> Any:
        """Return the decoded answer; raises what `failure` makes of one above 399.

        `what`: the resource, and the object where there is one, for messages.
        """
        headers = self._headers() | {"Accept": accept}
        data = None
        if body is not None:
            data = orjson.dumps(body)
            headers["Content-Type"] = content
        url = self._credentials.server + path
        assert self._session is not None, "to be entered first"
        try:
            async with (
                self._calls,
                self._session.request(
                    method, url, params=query, data=data, headers=headers
                ) as answer,
            ):
                raw = await answer.read()
                status, given = answer.status, answer.headers
        except (aiohttp.ClientError, TimeoutError) as error:
            self._counted(verb, what.partition(" ")[0], 0)
            text = f"{verb} {what}: {type(error).__name__} {error}".rstrip()
            raise RetryError(text, delay_s=RETRY_S) from error
        self._counted(verb, what.partition(" ")[0], status)
        if status >= 400:
            raise failure(verb, what, status, raw, given)
        try:
            return orjson.loads(raw) if raw else {}
        except ValueError as error:
            raise RetryError(f"{verb} {what}: no JSON: {raw[:80]!r}", delay_s=RETRY_S) from error

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": "imago-operator"}
        try:
            token = self._credentials.token()
        except OSError as error:
            raise RetryError(f"the account's token: {error.strerror}", delay_s=RETRY_S) from error
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _uncounted(verb: str, resource: str, status: int) -> None:
    """Count nothing."""
