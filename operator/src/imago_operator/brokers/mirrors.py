"""What a mirror's process says of itself over HTTP: no token, and nothing is changed."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from imago_operator.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.brokers.http import BrokerHttp

AGAIN_S = 5.0


class MirrorTeller:
    """Asks processes of mirrors."""

    def __init__(self, http: BrokerHttp) -> None:
        self._http = http

    async def __call__(self, address: str, port: int) -> Mapping[str, Any]:
        """Return what `/status` says. RetryError: nothing that can be read."""
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{port}/status"
        code, found = await self._http.call("GET", url, headers={}, query=None, body=None)
        if code != HTTPStatus.OK or not isinstance(found, dict):
            raise RetryError(f"{url}: {code}", delay_s=AGAIN_S)
        return found
