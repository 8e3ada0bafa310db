"""Who may do what to which resource, from where: rules, and decisions over them.

A rule allows or denies a user some operations on one resource, or on all whose names begin alike.
The most specific rule about a request decides: one that names the kind of resource before one for
all kinds, a whole name before a prefix, a longer prefix before a shorter one, a denial before a
permission. Where no rule says anything, it is denied. (This is the order of RocketMQ 5.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Network = IPv4Network | IPv6Network

NAME_SIZE_MAX: Final = 255
HOSTS_MAX: Final = 64
RULES_MAX: Final = 1000
"""Of one user."""
DECISIONS_KEPT_MAX: Final = 10_000
"""Of one user; above it they are made again."""
CLUSTER_NAME: Final = "cluster"
"""There is one cluster: requests about it ask for this name, and rules about it need none."""


class Operation(StrEnum):
    """What is done to a resource."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    DESCRIBE = "describe"
    LIST = "list"
    ADMINISTER = "administer"
    """Change the cluster itself: its settings, members, users and their rights."""


class AccessKind(StrEnum):
    """What a resource is."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTION = "transaction"
    PIPELINE = "pipeline"
    ANY = "any"
    """Of rules only: every kind."""


READ: Final = (Operation.DESCRIBE, Operation.SUBSCRIBE)
SHOW: Final = (Operation.DESCRIBE, Operation.LIST)
RUN: Final = (Operation.ADMINISTER, Operation.ALTER)
RULE: Final = (Operation.ADMINISTER,)
"""Who gives rights can give himself all of them: to alter the cluster is not enough."""


class Need(NamedTuple):
    """One resource, and operations of which one has to be allowed."""

    operations: tuple[Operation, ...]
    kind: AccessKind
    name: str

    @property
    def runs_cluster(self) -> bool:
        """Whether only who runs the cluster has it: such a right outlives the request, so it is
        asked for in earnest also while nobody else is refused (`acl.audit`)."""
        return self.kind is AccessKind.CLUSTER and self.operations in (RUN, RULE)


ALL_OPERATIONS: Final = frozenset(Operation)


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """One resource, or all of a kind whose names begin with `name`."""

    kind: AccessKind
    name: str = ""
    prefix: bool = False

    def covers(self, kind: AccessKind, name: str) -> bool:
        """Whether it is this resource, or has it among its own."""
        if self.kind not in (kind, AccessKind.ANY):
            return False
        if self.kind is AccessKind.CLUSTER:
            return True
        return name.startswith(self.name) if self.prefix else name == self.name

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """How specific it is: the lowest decides."""
        return (self.kind is AccessKind.ANY, self.prefix, -len(self.name) if self.prefix else 0)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One permission or denial."""

    resource: Resource
    operations: frozenset[Operation]
    hosts: tuple[str, ...] = ()
    """Addresses and networks that it is about; empty: all."""
    allow: bool = True

    @property
    def rank(self) -> tuple[tuple[bool, bool, int], bool]:
        """The lowest decides."""
        return self.resource.rank, self.allow


def rules_problem(rules: Iterable[AccessRule]) -> str | None:
    """Return why these cannot be a user's rules, or None."""
    given = list(rules)
    if len(given) > RULES_MAX:
        return f"{len(given)} rules, at most {RULES_MAX} of one user"
    return next(filter(None, map(_rule_problem, given)), None)


def _rule_problem(rule: AccessRule) -> str | None:
    resource = rule.resource
    if not rule.operations:
        return "a rule names no operation"
    if len(resource.name) > NAME_SIZE_MAX:
        return f"a resource's name has {len(resource.name)} characters, at most {NAME_SIZE_MAX}"
    if not resource.name.isascii() or not resource.name.isprintable():
        return f"{resource.name!a:.80} is no name: printable ASCII only"
    if "*" in resource.name:
        return f"{resource.name!r:.80}: only a whole ending is left open, as a prefix"
    if resource.kind is AccessKind.CLUSTER and resource.name:
        return "a rule about the cluster names none: there is one"
    if not resource.name and not resource.prefix and resource.kind is not AccessKind.CLUSTER:
        return f"a rule about a {resource.kind} names none"
    if len(rule.hosts) > HOSTS_MAX:
        return f"{len(rule.hosts)} hosts in one rule, at most {HOSTS_MAX}"
    return next((p for host in rule.hosts if (p := host_problem(host))), None)


def host_problem(host: str) -> str | None:
    """Return why this is no address and no network, or None."""
    try:
        ip_network(host, strict=False)
    except ValueError:
        return f"{host!a:.80} is no address and no network: 10.1.2.3, 10.1.0.0/16, 2001:db8::/32"
    return None


class Rights:
    """The rules of one user, ready for decisions. Never changed: new rules make a new one."""

    def __init__(self, rules: Iterable[AccessRule], *, everything: bool = False) -> None:
        """`everything`: of who may do all, whatever the rules say."""
        self._everything = everything
        whole: dict[tuple[AccessKind, str], list[_Compiled]] = {}
        prefixes: dict[AccessKind, list[_Compiled]] = {}
        for rule in sorted(rules, key=lambda rule: rule.rank):
            compiled = _Compiled(rule)
            resource = rule.resource
            name = CLUSTER_NAME if resource.kind is AccessKind.CLUSTER else resource.name
            if resource.prefix and resource.kind is not AccessKind.CLUSTER:
                prefixes.setdefault(resource.kind, []).append(compiled)
            else:
                whole.setdefault((resource.kind, name), []).append(compiled)
        self._whole, self._prefixes = whole, prefixes
        self._decided: dict[tuple[Operation, AccessKind, str], bool] = {}
        """Decisions that do not depend on where the request comes from."""

    def allows(self, operation: Operation, kind: AccessKind, name: str, address: str) -> bool:
        """Whether the user may do this from an address."""
        if self._everything:
            return True
        asked = (operation, kind, name)
        decided = self._decided.get(asked)
        return decided if decided is not None else self._decide(asked, address)

    def meets(self, need: Need, address: str) -> bool:
        """Whether the user may do one of what a need names."""
        operations, kind, name = need
        return any(self.allows(each, kind, name, address) for each in operations)

    def rule_on(self, operation: Operation, kind: AccessKind, name: str) -> bool:
        """Whether any rule is about this: what it does not allow is denied on purpose."""
        return any(operation in rule.operations for rule in self._about(kind, name))

    def _decide(self, asked: tuple[Operation, AccessKind, str], address: str) -> bool:
        operation, kind, name = asked
        depends = allowed = False
        for rule in self._about(kind, name):
            if operation not in rule.operations:
                continue
            if rule.networks is None:
                allowed = rule.allow
                break
            depends = True
            if _is_within(address, rule.networks):
                allowed = rule.allow
                break
        if not depends:
            if len(self._decided) >= DECISIONS_KEPT_MAX:
                self._decided.clear()
            self._decided[asked] = allowed
        return allowed

    def _about(self, kind: AccessKind, name: str) -> Iterable[_Compiled]:
        for each in (kind, AccessKind.ANY):
            yield from self._whole.get((each, name), ())
            for rule in self._prefixes.get(each, ()):
                if name.startswith(rule.name):
                    yield rule


NOTHING: Final = Rights(())
EVERYTHING: Final = Rights((), everything=True)


class _Compiled:
    __slots__ = ("allow", "name", "networks", "operations")

    def __init__(self, rule: AccessRule) -> None:
        self.name = rule.resource.name
        self.operations = rule.operations
        self.allow = rule.allow
        self.networks = tuple(map(_network, rule.hosts)) if rule.hosts else None


@lru_cache(maxsize=4096)
def _network(host: str) -> Network:
    return ip_network(host, strict=False)


@lru_cache(maxsize=4096)
def _is_within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
