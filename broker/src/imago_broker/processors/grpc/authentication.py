"""Whose call it is, by its signature, and what it needs that no request behind it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.model.access.users import ANONYMOUS
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.rocketmq.needs import PUBLISH, SUBSCRIBE, of_group, of_topic
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.headers import credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.model.access.access import Need
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.service.access.access import AccessService

_NO_SECRET = "no such secret"  # noqa: S105  what the time of a check is spent on


class CallUsers:
    """Finds a call's user. Most rights are asked for by the requests that calls become."""

    def __init__(self, access: AccessService, *, enabled: bool) -> None:
        self._access, self._enabled = access, enabled

    def identify(self, call: Call) -> None:
        """Note whose call it is, of which nothing but its headers has come; CallError: nobody's."""
        if self._enabled:
            call.user = self._user(call)

    def check(self, call: Call, method: str, request: Any) -> None:
        """Look whether its user may make a call; CallError: it may not."""
        if not self._enabled:
            return
        for needs in _needs(method, request):
            if not any(self.may(call.user, need, call.stream.address) for need in needs):
                raise self._refused(call, f"{call.user} has no permission to {needs[0].name}")

    def may(self, user: str, need: Need, address: str) -> bool:
        """Whether a user may have this."""
        return not self._enabled or self._access.may(user or ANONYMOUS, need, address)

    def grant(self, call: Call, needs: Sequence[Need]) -> bool:
        """Whether a fast path may serve what needs this: its user may, and nobody counts it."""
        if not self._enabled:
            return True
        access, user = self._access, call.user or ANONYMOUS
        limits, address = access.quota_table.limits, call.stream.address
        if access.outdated.why or any(limits(user, need) for need in needs):
            return False
        return all(access.may(user, need, address) for need in needs)

    def _user(self, call: Call) -> str:
        told, access = credentials(call.headers), self._access
        if told is None:
            name = call.stream.certificate_user or ANONYMOUS
            if name == ANONYMOUS and not self._open_to_anonymous(call):
                raise self._refused(call, "username cannot be null.")
            return name
        user = access.users.get(told.user)
        keys = access.signing_keys(user) if user is not None else ()
        right = told.signed_by(keys or (_NO_SECRET,))
        if user is None or not user.enabled or not keys or not right or not told.signed:
            if access.denials.audit:
                self._refused(call, "check signature failed.")
                return ANONYMOUS
            raise self._refused(call, "check signature failed.")
        return told.user

    def _open_to_anonymous(self, call: Call) -> bool:
        access = self._access
        return (
            access.open_to_anonymous or access.denials.audit or access.is_white(call.stream.address)
        )

    def _refused(self, call: Call, text: str) -> CallError:
        audit = self._access.denials.audit
        self._access.denials.note(call.stream.address, "grpc", text, served=audit)
        return CallError(SdkCode.UNAUTHORIZED, text)


def _needs(method: str, request: Any) -> list[tuple[Need, ...]]:
    """Return what a call needs itself; of each one need is enough."""
    if method == "QueryRoute":
        topic = request.topic.name
        return [(of_topic(topic, PUBLISH), of_topic(topic, SUBSCRIBE))]
    if method == "RecallMessage":
        return [(of_topic(request.topic.name, PUBLISH),)]
    if method == "QueryAssignment":
        topic, group = request.topic.name, request.group.name
        return [(of_topic(topic, SUBSCRIBE),), (of_group(group, SUBSCRIBE),)]
    if method in ("NotifyClientTermination", "Heartbeat") and request.group.name:
        return [(of_group(request.group.name, SUBSCRIBE),)]
    return []
