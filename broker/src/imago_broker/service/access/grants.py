"""Decisions of access control for the fast paths, kept until users or rules change.

What a user may do from an address does not depend on the request: so it is decided once, and looked
up from then on. Requests that are not granted here go the way of all others, where the reason is
found and noted; so do those of users and topics that have limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from imago_broker.model.access.users import ANONYMOUS
from imago_broker.model.access.white_addresses import is_listed
from imago_wire.record_format.sequences import user_tag
from imago_wire.remoting.scanning.granting import UserGrants

if TYPE_CHECKING:
    from imago_broker.model.access.access import Need
    from imago_broker.service.access.access import AccessService

USERS_KEPT_MAX: Final = 1000
"""Users of one address whose decisions are kept; above it they are made again."""
DECISIONS_KEPT_MAX: Final = 10_000
"""The same of topics, and of topics in groups, of one user at one address."""

AskedT = TypeVar("AskedT")
May = Callable[[str, "Need", str], bool]
"""Whether a user may do something from an address."""


class AccessGrants:
    """What those who are connected to the ports of one protocol may send and read."""

    def __init__(
        self,
        access: AccessService,
        *,
        may: May,
        publish: Callable[[str], Sequence[Need]],
        consume: Callable[[tuple[str, str]], Sequence[Need]],
    ) -> None:
        """`publish` gives what a send to a topic needs, `consume` a read of a topic in a group."""
        self.access, self.may, self.publish, self.consume = access, may, publish, consume
        self._peers: WeakValueDictionary[tuple[str, str], PeerGrants] = WeakValueDictionary()
        access.on_change.insert(0, self._forget)  # in front of those that ask again by then

    def of(self, address: str, certificate_user: str) -> PeerGrants:
        """Return what users at an address may do; the same for as long as somebody has it."""
        place = (address, certificate_user)
        found = self._peers.get(place)
        if found is None:
            found = self._peers[place] = PeerGrants(self, address, certificate_user or ANONYMOUS)
        return found

    def _forget(self) -> None:
        for peer in list(self._peers.values()):
            peer.forget()


class PeerGrants(dict[str, UserGrants | None]):
    """What users at one address may do, by access key; "" where a request has none."""

    def __init__(self, grants: AccessGrants, address: str, unsigned: str) -> None:
        """`unsigned` is the user whose requests without a key are."""
        super().__init__()
        self._grants, self._access, self._address = grants, grants.access, address
        self.unsigned = self._granted(unsigned)
        """What may be done without a key."""

    def forget(self) -> None:
        """Decide again from now on."""
        self.clear()
        self.unsigned.publish.clear()
        self.unsigned.consume.clear()

    def __missing__(self, key: str) -> UserGrants | None:
        found = self._decide(key)
        if found is not None:
            if len(self) >= USERS_KEPT_MAX:
                self.clear()
            self[key] = found
        return found

    def _decide(self, key: str) -> UserGrants | None:
        if not key:
            return self.unsigned
        if self._access.outdated.why:
            return None
        if self._access.is_white(self._address):
            return _trusted(key)
        user = self._access.users.get(key)
        if user is None or not user.enabled:
            return None
        if user.white_addresses and is_listed(self._address, (user.white_addresses,)):
            return _trusted(key)
        return self._granted(key, user.secret) if user.secret else None

    def _granted(self, name: str, secret: str = "") -> UserGrants:
        grants = self._grants

        def may_publish(topic: str) -> bool:
            return self._may_all(name, grants.publish(topic))

        def may_consume(asked: tuple[str, str]) -> bool:
            return self._may_all(name, grants.consume(asked))

        publish, consume = _Decisions(may_publish), _Decisions(may_consume)
        if secret:
            return UserGrants.signing(secret.encode(), publish, consume, user_tag(name))
        return UserGrants(None, publish, consume, tag=user_tag(name))

    def _may_all(self, name: str, needs: Sequence[Need]) -> bool:
        may, limits, address = self._grants.may, self._access.quota_table.limits, self._address
        if self._access.outdated.why or any(limits(name, need) for need in needs):
            return False  # the long way says so, and counts what they take
        return self._access.is_white(address) or all(may(name, need, address) for need in needs)


class _Decisions(dict[AskedT, bool], Generic[AskedT]):
    """Whether it may be, decided when it is first asked."""

    def __init__(self, decide: Callable[[AskedT], bool]) -> None:
        super().__init__()
        self._decide = decide

    def __missing__(self, asked: AskedT) -> bool:
        if len(self) >= DECISIONS_KEPT_MAX:
            self.clear()
        decided = self[asked] = self._decide(asked)
        return decided


def _trusted(key: str) -> UserGrants:
    """Return what is granted to whoever says it is that user, at an address that is trusted."""
    return UserGrants(None, _Decisions(_always), _Decisions(_always), tag=user_tag(key))


def _always(_: object) -> bool:
    return True
