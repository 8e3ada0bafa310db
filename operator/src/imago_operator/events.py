"""Events for `kubectl describe`: merged where they say the same, and never many.

A repeat raises the count of the event that is there. Of Normal ones an object gets at most
`NORMAL_MAX` an hour, of warnings `WARNINGS_MAX`; what is above that is counted and not sent.
Nothing waits for an event, and one that cannot be recorded is only logged.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from imago_operator.errors import OperatorError
from imago_operator.model import names
from imago_operator.model.state import written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

log = logging.getLogger(__name__)

NORMAL_MAX: Final = 25
WARNINGS_MAX: Final = 100
HOUR_S: Final = 3600.0
KEPT_MAX: Final = 4096
"""Events and objects that are remembered; the oldest are forgotten."""
MESSAGE_MAX: Final = 1024
NAME_MAX: Final = 200


class Sender(Protocol):
    """Where events go."""

    async def post(self, event: Mapping[str, Any]) -> None:
        """Create an event."""

    async def merge(self, namespace: str, name: str, patch: Mapping[str, Any]) -> bool:
        """Change an event; False: it is no longer there."""


@dataclass(slots=True)
class _KnownEvent:
    name: str
    count: int


@dataclass(slots=True)
class _Bucket:
    """Tokens of one object and type: an hour's worth at most."""

    tokens: float
    at: datetime

    def take(self, now: datetime, most: int) -> bool:
        gained = max(0.0, (now - self.at).total_seconds()) * most / HOUR_S
        self.tokens, self.at = min(float(most), self.tokens + gained), now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Recorder:
    """Records events about objects."""

    def __init__(
        self,
        sender: Sender,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        *,
        identity: str = "",
    ) -> None:
        """`new_id`: a few random characters, for names; `identity`: who reports."""
        self._sender, self._now, self._new_id = sender, now, new_id
        self._identity = identity
        self._known: OrderedDict[tuple[str, ...], _KnownEvent] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        self.suppressed = 0
        """Events that were not sent because there were too many."""

    async def record(self, about: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        """Record an event about an object, given as its manifest."""
        uid, now = about["metadata"].get("uid", ""), self._now()
        if not self._allowed(uid, type_, now):
            self.suppressed += 1
            return
        try:
            await self._send(about, type_, reason, message[:MESSAGE_MAX], now)
        except OperatorError as error:
            log.warning("event %s about %s: %s", reason, about["metadata"]["name"], error)

    def _allowed(self, uid: str, type_: str, now: datetime) -> bool:
        most = NORMAL_MAX if type_ == "Normal" else WARNINGS_MAX
        bucket = self._buckets.setdefault((uid, type_), _Bucket(float(most), now))
        _keep(self._buckets, (uid, type_))
        return bucket.take(now, most)

    async def _send(
        self, about: Mapping[str, Any], type_: str, reason: str, message: str, now: datetime
    ) -> None:
        metadata = about["metadata"]
        # By its text as well: what happened to one pod must not take the place of another's.
        key = (metadata.get("uid", ""), reason, message)
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            patch = {"count": known.count, "lastTimestamp": written(now)}
            if await self._sender.merge(_namespace(about), known.name, patch):
                _keep(self._known, key)
                return
        new = _KnownEvent(f"{metadata['name'][:NAME_MAX]}.{self._new_id()}", 1)
        event = self._event(about, new.name, now)
        await self._sender.post(event | {"type": type_, "reason": reason, "message": message})
        self._known[key] = new
        _keep(self._known, key)

    def _event(self, about: Mapping[str, Any], name: str, now: datetime) -> dict[str, Any]:
        metadata = about["metadata"]
        shown = {"name": metadata["name"], "namespace": metadata.get("namespace", "")}
        if metadata.get("uid"):
            shown["uid"] = metadata["uid"]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _namespace(about)},
            "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], **shown},
            "count": 1,
            "firstTimestamp": written(now),
            "lastTimestamp": written(now),
            "source": {"component": names.MANAGER},
            "reportingComponent": f"{names.GROUP}/operator",
            "reportingInstance": self._identity,
        }


def _namespace(about: Mapping[str, Any]) -> str:
    return str(about["metadata"].get("namespace") or "default")


def _keep(entries: OrderedDict[Any, Any], key: tuple[str, ...]) -> None:
    entries.move_to_end(key)
    while len(entries) > KEPT_MAX:
        entries.popitem(last=False)
