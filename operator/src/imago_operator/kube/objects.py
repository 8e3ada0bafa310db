"""Objects of Kubernetes: the operator's KubePort."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import BlockedError, OperatorError, RetryError
from imago_operator.kube.failures import RETRY_S, ExistsError, GoneError
from imago_operator.kube.http import APPLY, JSON, MERGE, ApiServer
from imago_operator.kube.resources import RESOURCES, resource_of
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_operator.events import Recorder
    from imago_operator.kube.resources import ResourceKind

log = logging.getLogger(__name__)

STATUS_MANAGER: Final = f"{names.MANAGER}-status"
PAGE: Final = 500
PAGES_MAX: Final = 1000
LATE_S: Final = 0.3
RESTORED_S: Final = 15.0
"""No server is behind for so long: versions that stay lower were restored from a backup."""
METADATA: Final = f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
"""Lists without specs and statuses."""


class Kubernetes:
    """Kubernetes, as `ports.KubePort` describes it."""

    def __init__(
        self,
        api: ApiServer,
        recorder: Recorder | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds that never go back."""
        self._api = api
        self._recorder = recorder
        self._clock = clock
        self._written: dict[str, int] = {}
        """The newest version of each kind that a change of ours made."""
        self._old_since: dict[str, float] = {}
        """Since when lists of a kind are older than that."""

    async def apply(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._apply(manifest, names.MANAGER)

    async def apply_status(self, manifest: Mapping[str, Any]) -> None:
        await self._apply(manifest, STATUS_MANAGER, "status")

    async def _apply(
        self, manifest: Mapping[str, Any], manager: str, sub: str = ""
    ) -> Mapping[str, Any]:
        resource, metadata = resource_of(manifest), manifest["metadata"]
        what = _what(resource, metadata["name"], sub)
        try:
            answer = await self._api.call(
                "patch",
                "PATCH",
                resource.path(metadata.get("namespace", ""), metadata["name"], sub),
                what=what,
                query={"fieldManager": manager, "force": "true"},
                body=manifest,
                content=APPLY,
            )
        except GoneError as error:
            raise _absent(sub, what, error) from error
        except ExistsError as error:
            raise RetryError(str(error), delay_s=RETRY_S) from error
        return self._noted(resource, answer)

    async def list(
        self, kind: str, namespace: str, *, labels: str = "", metadata_only: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        resource = RESOURCES[kind]
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        found: list[Mapping[str, Any]] = []
        for _ in range(PAGES_MAX):
            answer = await self._page(resource, namespace, query, metadata_only)
            found += answer.get("items") or ()
            following = answer.get("metadata", {}).get("continue")
            if not following:
                self._refuse_old(resource, answer)
                return [_named(resource, item) for item in found]
            query["continue"] = following
        raise RetryError(f"list {resource.plural}: more than {PAGE * PAGES_MAX}", delay_s=60)

    async def _page(
        self, resource: ResourceKind, namespace: str, query: Mapping[str, str], metadata_only: bool
    ) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = await self._api.call(
                "list",
                "GET",
                resource.path(namespace),
                what=resource.plural,
                query=query,
                accept=METADATA if metadata_only else JSON,
            )
        except GoneError as error:
            raise _absent("", resource.plural, error) from error
        return answer

    def _refuse_old(self, resource: ResourceKind, answer: Mapping[str, Any]) -> None:
        """Refuse a list from before our own last change, which would have us do things twice.

        Where lists stay older, a backup of Kubernetes was restored: its versions count from then.
        """
        version = str(answer.get("metadata", {}).get("resourceVersion", ""))
        kind, written = resource.kind, self._written.get(resource.kind, 0)
        if not version.isdecimal() or int(version) >= written:
            self._old_since.pop(kind, None)
            return
        now = self._clock()
        if now - self._old_since.setdefault(kind, now) < RESTORED_S:
            raise RetryError(f"list {resource.plural}: older than our last change", delay_s=LATE_S)
        log.warning(
            "%s are at version %s, and were at %d: Kubernetes was restored from a backup",
            resource.plural,
            version,
            written,
        )
        del self._written[kind], self._old_since[kind]

    async def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        resource = RESOURCES[kind]
        try:
            answer: Mapping[str, Any] = await self._api.call(
                "get", "GET", resource.path(namespace, name), what=_what(resource, name)
            )
        except GoneError:
            return None
        return answer

    async def create(self, manifest: Mapping[str, Any]) -> None:
        resource, metadata = resource_of(manifest), manifest["metadata"]
        what = _what(resource, metadata["name"])
        try:
            answer = await self._api.call(
                "create",
                "POST",
                resource.path(metadata.get("namespace", "")),
                what=what,
                query={"fieldManager": names.MANAGER},
                body=manifest,
            )
        except ExistsError:
            return
        except GoneError as error:
            raise _absent("", what, error) from error
        self._noted(resource, answer)

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str, orphan: bool = False
    ) -> None:
        resource = RESOURCES[kind]
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Orphan" if orphan else "Background",
        }
        try:
            answer = await self._api.call(
                "delete",
                "DELETE",
                resource.path(namespace, name),
                what=_what(resource, name),
                body=body,
            )
        except GoneError:
            return
        self._noted(resource, answer)

    async def patch(
        self, kind: str, namespace: str, name: str, *, uid: str, patch: Mapping[str, Any]
    ) -> None:
        resource = RESOURCES[kind]
        metadata = {**patch.get("metadata", {}), "uid": uid}
        try:
            answer = await self._api.call(
                "patch",
                "PATCH",
                resource.path(namespace, name),
                what=_what(resource, name),
                query={"fieldManager": names.MANAGER},
                body={**patch, "metadata": metadata},
                content=MERGE,
            )
        except GoneError as error:
            raise RetryError(str(error), delay_s=RETRY_S) from error
        self._noted(resource, answer)

    async def event(self, about: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        if self._recorder is not None:
            await self._recorder.record(about, type_, reason, message)

    def _noted(self, resource: ResourceKind, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        version = str(answer.get("metadata", {}).get("resourceVersion", ""))
        if version.isdecimal():
            self._written[resource.kind] = max(int(version), self._written.get(resource.kind, 0))
        return answer


def _what(resource: ResourceKind, name: str, sub: str = "") -> str:
    return f"{resource.plural}{f'/{sub}' if sub else ''} {name}"


def _named(resource: ResourceKind, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Items of a list do not say what they are."""
    return {**item, "apiVersion": resource.api_version, "kind": resource.kind}


def _absent(sub: str, what: str, error: GoneError) -> OperatorError:
    """Return what it means that something cannot be put there: object, namespace or kind lack."""
    if sub:
        return RetryError(str(error), delay_s=RETRY_S)
    return BlockedError(str(error), until=f"namespace and kind of {what} exist")
