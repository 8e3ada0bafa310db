"""Whether a caller comes from where its member is registered.

A registration names a host; its addresses are looked up beside the event loop and kept for a
while. What keeps strangers out who know a member's ids is no proof of who calls: that is the
task of credentials.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ipaddress import IPv4Network, IPv6Network

    from imago_broker.model.registry.cluster import BrokerRecord

logger = logging.getLogger(__name__)

Address = IPv4Address | IPv6Address

KNOWN_MS = 5000
"""How long the addresses of a name are believed; callers come again until they are known."""
NAMES_MAX = 256
OWN_MAX = 16
LOOPBACK = frozenset({IPv4Address("127.0.0.1"), IPv6Address("::1")})


class _KnownPeer(NamedTuple):
    addresses: frozenset[Address] | None
    """None: the name is not known anywhere at the moment."""
    at_ms: int


class Addresses:
    """The addresses of members, by the hosts that they have registered."""

    def __init__(self, networks: str, *, now_ms: Callable[[], int]) -> None:
        """`networks`: from these everybody may call, where addresses are translated."""
        self._networks = parsed_networks(networks)
        self._now_ms = now_ms
        self._known: dict[str, _KnownPeer] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def problem(self, peer: str, host: str, own: Iterable[str] = ()) -> str | None:
        """Return why a caller is not the member that is registered at this host, or None.

        `own`: further addresses of its machine, as registered.
        """
        caller = _parsed(peer)
        if caller is None:
            return f"{peer} is no address"
        if any(caller in network for network in self._networks):
            return None
        if caller not in LOOPBACK and any(caller == _parsed(each) for each in own):
            return None
        literal = _parsed(host)
        if literal is not None:
            return None if _same(caller, {literal}) else _said(caller, host, {literal})
        known = self._known.get(host)
        if known is None or self._now_ms() - known.at_ms >= KNOWN_MS:
            self._ask(host)
        if known is None:
            return f"the addresses of {host} are being looked up"
        if known.addresses is None or _same(caller, known.addresses):
            return None
        self._ask(host)
        return _said(caller, host, known.addresses)

    def includes(self, peer: str, members: Iterable[BrokerRecord]) -> bool:
        """Whether a caller that has said nothing comes from where one of these is registered.

        Hosts are looked up again when what is known of them is old, however many call.
        """
        caller = _parsed(peer)
        if caller is None:
            return False
        if any(caller in network for network in self._networks):
            return True
        return any(self._registered(caller, each) for each in members)

    def _registered(self, caller: Address, member: BrokerRecord) -> bool:
        if caller not in LOOPBACK and any(caller == _parsed(each) for each in member.addresses):
            return True
        literal = _parsed(member.host)
        if literal is not None:
            return _same(caller, {literal})
        known = self._known.get(member.host)
        if known is None or self._now_ms() - known.at_ms >= KNOWN_MS:
            self._ask(member.host)
        return known is not None and known.addresses is not None and _same(caller, known.addresses)

    def close(self) -> None:
        """Look nothing up any more."""
        for task in self._asking.values():
            task.cancel()

    def _ask(self, host: str) -> None:
        if host not in self._asking:
            self._asking[host] = asyncio.get_running_loop().create_task(self._look_up(host))

    async def _look_up(self, host: str) -> None:
        found: frozenset[Address] | None = None
        try:
            rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            parsed = (_parsed(str(row[4][0])) for row in rows)
            found = frozenset(address for address in parsed if address is not None)
        except OSError as error:
            # A name service that is down must not end replication: ids have to do then.
            logger.warning("member_address_unknown host=%s reason=%s", host, error)
        finally:
            del self._asking[host]
        if len(self._known) >= NAMES_MAX:
            self._known.clear()
        self._known[host] = _KnownPeer(found, self._now_ms())


def own_addresses() -> tuple[str, ...]:
    """Return the addresses of this machine by which others see it; `OWN_MAX` at most.

    As Linux lists them; none elsewhere, where the registered host has to do.
    """
    found = {address for text in _local_addresses() if (address := _parsed(text)) is not None}
    told = sorted(str(a) for a in found if not (a.is_loopback or a.is_link_local))
    return tuple(told[:OWN_MAX])


def _local_addresses() -> Iterator[str]:
    try:
        with Path("/proc/net/fib_trie").open(encoding="ascii") as routes:
            address = ""
            for line in routes:
                if "|-- " in line:
                    address = line.partition("|-- ")[2].strip()
                elif "/32 host LOCAL" in line:
                    yield address
        with Path("/proc/net/if_inet6").open(encoding="ascii") as interfaces:
            for line in interfaces:
                digits = line.partition(" ")[0]
                yield ":".join(digits[at : at + 4] for at in range(0, 32, 4))
    except OSError:
        return


def parsed_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the networks of a list that commas part; ValueError names what is none."""
    return tuple(ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


def _parsed(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _same(caller: Address, registered: Iterable[Address]) -> bool:
    """A machine that calls a loopback address of its own does so from the first."""
    known = set(registered)
    return caller in known or (caller in LOOPBACK and any(each.is_loopback for each in known))


def _said(caller: Address, host: str, known: Iterable[Address]) -> str:
    listed = ", ".join(sorted(map(str, known)))
    return (
        f"calls from {caller}, and is registered at {host} ({listed}); where addresses are"
        " translated set replication.peer_networks"
    )
