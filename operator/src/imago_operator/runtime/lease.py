"""Who of several operators works: the one that holds the Lease.

The others look every two seconds. A lease counts as over when nobody has renewed it for fifteen
seconds by the watcher's own clock, so that clocks of machines need not agree. Its holder renews
it every two seconds and stops the whole process when it could not for ten: before anybody else
begins. A holder that was stopped for a while finds out by its own clock, before it does anything.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import OperatorError, RetryError
from imago_operator.kube.failures import ExistsError, GoneError
from imago_operator.kube.resources import RESOURCES
from imago_operator.model.renewals import DURATION_S, Renewals

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from imago_operator.kube.http import ApiServer

log = logging.getLogger(__name__)

RENEW_S: Final = 10.0
RETRY_S: Final = 2.0
LEASE: Final = RESOURCES["Lease"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlace:
    """Which lease, and who we are."""

    namespace: str
    name: str
    identity: str


class Leadership:
    """Holds the lease, or waits for it."""

    def __init__(
        self,
        api: ApiServer,
        place: LeasePlace,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        lost: Callable[[str], None],
    ) -> None:
        """`clock`: seconds that go on while the process is stopped, and never back.

        `lost`: ends the process at once.
        """
        self._api, self._place = api, place
        self._clock, self._now, self._lost = clock, now, lost
        self._renewed: float | None = None
        self._renewals = Renewals(clock)

    @property
    def held(self) -> bool:
        """Whether the lease is ours, by our own clock."""
        return self._renewed is not None and self._clock() - self._renewed < RENEW_S

    def check(self) -> None:
        """End the process unless the lease is ours now: to be called before anything is done."""
        if not self.held:
            self._lost("the lease has run out")

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(RETRY_S)
        log.info("leads: %s holds lease %s", self._place.identity, self._place.name)

    async def keep(self) -> None:
        """Renew the lease until cancelled; ends the process when that fails for too long."""
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                kept = await asyncio.wait_for(self._try(), RENEW_S)
            except TimeoutError:
                kept = False
            if not kept and not self.held:
                self._lost("the lease could not be renewed")

    async def release(self) -> None:
        """Give the lease back, so that another need not wait for its end."""
        if not self.held:
            return
        self._renewed = None
        try:
            found = await self._read()
            if found is not None and found["spec"].get("holderIdentity") == self._place.identity:
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._replace({**found, "spec": spec})
        except OperatorError as error:
            log.warning("the lease was not given back: %s", error)

    async def _try(self) -> bool:
        """Take or renew the lease; False: it is another's, or nobody can say."""
        at = self._clock()  # before the call: what counts is when it was surely ours
        try:
            found = await self._read()
            if found is None:
                await self._create()
            elif self._is_free(found["spec"]):
                await self._replace({**found, "spec": self._spec(found["spec"])})
            else:
                self._renewed = None
                return False
        except (OperatorError, KeyError) as error:
            log.warning("lease %s: %s", self._place.name, error)
            return False
        self._renewed = at
        return True

    def _is_free(self, spec: Any) -> bool:
        holder = spec.get("holderIdentity")
        return holder == self._place.identity or self._renewals.over(spec)

    def _spec(self, before: Any) -> dict[str, Any]:
        mine = before.get("holderIdentity") == self._place.identity
        said = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            **before,
            "holderIdentity": self._place.identity,
            "leaseDurationSeconds": DURATION_S,
            "acquireTime": before.get("acquireTime", said) if mine else said,
            "renewTime": said,
            "leaseTransitions": transitions if mine else transitions + 1,
        }

    async def _read(self) -> Any:
        path = LEASE.path(self._place.namespace, self._place.name)
        try:
            return await self._api.call("get", "GET", path, what=self._what)
        except GoneError:
            return None

    async def _create(self) -> None:
        metadata = {"namespace": self._place.namespace, "name": self._place.name}
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": {**self._spec({}), "leaseTransitions": 0},
        }
        path = LEASE.path(self._place.namespace)
        try:
            await self._api.call("create", "POST", path, what=self._what, body=body)
        except ExistsError as error:
            raise RetryError(str(error), delay_s=RETRY_S) from error

    async def _replace(self, body: Any) -> None:
        """Write what was read and changed; refused when it has changed since."""
        path = LEASE.path(self._place.namespace, self._place.name)
        await self._api.call("update", "PUT", path, what=self._what, body=body)

    @property
    def _what(self) -> str:
        return f"leases {self._place.name}"
