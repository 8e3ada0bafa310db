"""Events on their way to the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_operator.kube.failures import ExistsError, GoneError
from imago_operator.kube.http import MERGE, ApiServer
from imago_operator.kube.resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping


class EventSender:
    """Sends events, as `events.Sender` describes it."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def post(self, event: Mapping[str, Any]) -> None:
        metadata = event["metadata"]
        path = RESOURCES["Event"].path(metadata["namespace"])
        what = f"events {metadata['name']}"
        try:
            await self._api.call("create", "POST", path, what=what, body=event)
        except (ExistsError, GoneError):
            return  # said already, or nobody left to read it

    async def merge(self, namespace: str, name: str, patch: Mapping[str, Any]) -> bool:
        path, what = RESOURCES["Event"].path(namespace, name), f"events {name}"
        try:
            await self._api.call("patch", "PATCH", path, what=what, body=patch, content=MERGE)
        except GoneError:
            return False
        return True
