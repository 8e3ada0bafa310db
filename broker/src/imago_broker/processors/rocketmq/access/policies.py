"""Rules as RocketMQ 5 writes them: `Topic:orders*`, `Pub`, `Allow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.model.access.access import (
    ALL_OPERATIONS,
    AccessKind,
    AccessRule,
    Operation,
    Resource,
    host_problem,
)
from imago_broker.processors.rocketmq import rules as refusals
from imago_wire.remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CUSTOM: Final = "Custom"
ALL: Final = "All"
_ACTIONS: Final = {
    Operation.PUBLISH: "Pub",
    Operation.SUBSCRIBE: "Sub",
    Operation.CREATE: "Create",
    Operation.ALTER: "Update",
    Operation.DELETE: "Delete",
    Operation.DESCRIBE: "Get",
    Operation.LIST: "List",
    Operation.ADMINISTER: "Administer",
}
"""RocketMQ has no word for the last one: `All` has it, and our tools."""
_OPERATIONS: Final = {name.lower(): operation for operation, name in _ACTIONS.items()}
_KINDS: Final = {
    AccessKind.CLUSTER: "Cluster",
    AccessKind.TOPIC: "Topic",
    AccessKind.GROUP: "Group",
    AccessKind.TRANSACTION: "Transaction",
    AccessKind.PIPELINE: "Pipeline",
    AccessKind.ANY: "Any",
}
_KINDS_BY_NAME: Final = {name.lower(): kind for kind, name in _KINDS.items()}
EVERYTHING: Final = "*"


def acl_info(
    name: str, rules: Sequence[AccessRule], cluster: str, resource_filter: str = ""
) -> AclInfo:
    """Return a user's rules; with a filter those whose resource has it in its name."""
    entries = [_entry(rule, cluster) for rule in rules]
    wanted = tuple(entry for entry in entries if resource_filter in (entry.resource or ""))
    return AclInfo(
        subject=f"User:{name}",
        policies=(PolicyInfo(policy_type=CUSTOM, entries=wanted),) if wanted else (),
    )


def rules_of(info: AclInfo, cluster: str) -> list[AccessRule]:
    """Read what a tool asks for, or refuse it in RocketMQ's words."""
    if not info.policies:
        raise refusals.forbidden("The policies is empty.")
    found = []
    for policy in info.policies:
        if not policy.entries:
            raise refusals.forbidden("The policy entries is empty.")
        found += [_rule(entry, cluster) for entry in policy.entries]
    return found


def with_rules(old: Iterable[AccessRule], new: Sequence[AccessRule]) -> list[AccessRule]:
    """Return rules with those about the resources of new ones replaced."""
    changed = {rule.resource for rule in new}
    return [rule for rule in old if rule.resource not in changed] + list(new)


def resource_of(text: str, cluster: str) -> Resource:
    """Read `Topic:name`, `Topic:name*` or `*`, or refuse it."""
    if text == EVERYTHING:
        return Resource(AccessKind.ANY, "", prefix=True)
    kind_name, colon, name = text.partition(":")
    kind = _KINDS_BY_NAME.get(kind_name.strip().lower())
    if kind is None or not colon:
        raise refusals.forbidden("The resource type is null.")
    if not name:
        raise refusals.forbidden("The resource pattern is null.")
    if kind is AccessKind.CLUSTER:
        if name not in (EVERYTHING, cluster):
            raise refusals.forbidden(f"The cluster is {cluster}, not {name:.64}.")
        return Resource(kind)
    return Resource(kind, name.removesuffix("*"), name.endswith("*"))


def resource_text(resource: Resource, cluster: str) -> str:
    """Return a resource as tools show it."""
    if resource.kind is AccessKind.ANY and not resource.name:
        return EVERYTHING
    name = cluster if resource.kind is AccessKind.CLUSTER else resource.name
    return f"{_KINDS[resource.kind]}:{name}{'*' if resource.prefix else ''}"


def _entry(rule: AccessRule, cluster: str) -> PolicyEntryInfo:
    every = rule.operations == ALL_OPERATIONS
    return PolicyEntryInfo(
        resource=resource_text(rule.resource, cluster),
        actions=(ALL,) if every else tuple(_ACTIONS[o] for o in Operation if o in rule.operations),
        source_ips=rule.hosts or None,
        decision="Allow" if rule.allow else "Deny",
    )


def _rule(entry: PolicyEntryInfo, cluster: str) -> AccessRule:
    if not entry.resource:
        raise refusals.forbidden("The resource is null.")
    if not entry.actions:
        raise refusals.forbidden("The actions is empty.")
    hosts = tuple(host.strip() for host in entry.source_ips or ())
    if any(map(host_problem, hosts)):
        raise refusals.forbidden("The source ip is invalid.")
    decision = (entry.decision or "").lower()
    if decision not in ("allow", "deny"):
        raise refusals.forbidden("The decision is null or illegal.")
    operations: set[Operation] = set()
    for action in entry.actions:
        operations |= _operations(action)
    resource = resource_of(entry.resource, cluster)
    return AccessRule(resource, frozenset(operations), hosts, decision == "allow")


def _operations(action: str) -> frozenset[Operation]:
    name = action.strip().lower()
    if name == "any":
        raise refusals.forbidden("The actions can not be Any.")
    if name == ALL.lower():
        return ALL_OPERATIONS
    if name not in _OPERATIONS:
        raise refusals.forbidden(f"The action {action!a:.40} is unknown.")
    return frozenset({_OPERATIONS[name]})
