"""Decisions of compiled rights, held against the rules' plain meaning."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imago_broker.model.access import access
from imago_broker.model.access.access import (
    CLUSTER_NAME,
    AccessKind,
    AccessRule,
    Operation,
    Resource,
    Rights,
    host_problem,
    rules_problem,
)
from imago_testing.searching import examples

NAMES = st.text("ab-", max_size=4)
KINDS = st.sampled_from(
    [AccessKind.TOPIC, AccessKind.GROUP, AccessKind.CLUSTER, AccessKind.PIPELINE]
)
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.0/8", "192.168.0.0/16", "::1", "2001:db8::/32"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.9.9.9", "192.168.3.4", "::1", "::ffff:10.0.0.1", "?"])
OPERATIONS = st.frozensets(st.sampled_from(list(Operation)), min_size=1)
RESOURCES = st.builds(Resource, st.sampled_from(list(AccessKind)), NAMES, st.booleans()).map(
    lambda r: Resource(r.kind) if r.kind is AccessKind.CLUSTER else r
)
RULES = st.lists(
    st.builds(
        AccessRule,
        RESOURCES,
        OPERATIONS,
        st.lists(HOSTS, max_size=2).map(tuple),
        st.booleans(),
    ),
    max_size=8,
)


def allowed(
    rules: list[AccessRule], operation: Operation, kind: AccessKind, name: str, address: str
) -> bool:
    """The plain meaning: of all rules about it, the most specific one."""
    about = [
        rule
        for rule in rules
        if rule.resource.covers(kind, name)
        and operation in rule.operations
        and (not rule.hosts or _is_among(address, rule.hosts))
    ]
    return bool(about) and min(about, key=lambda rule: rule.rank).allow


def _is_among(address: str, hosts: tuple[str, ...]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in ip_network(host, strict=False) for host in hosts)


@settings(max_examples=examples(300), deadline=None)
@given(RULES, st.lists(st.tuples(st.sampled_from(list(Operation)), KINDS, NAMES, ADDRESSES)))
@example([], [(Operation.PUBLISH, AccessKind.TOPIC, "a", "10.0.0.1")])
def test_compiled_rights_decide_as_the_rules_say(
    rules: list[AccessRule], asked: list[tuple[Operation, AccessKind, str, str]]
) -> None:
    rights = Rights(rules)
    for operation, kind, given_name, address in [*asked, *asked]:
        name = CLUSTER_NAME if kind is AccessKind.CLUSTER else given_name
        wanted = allowed(rules, operation, kind, name, address)
        assert rights.allows(operation, kind, name, address) is wanted


def test_decisions_are_bounded_and_survive_their_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "DECISIONS_KEPT_MAX", 2)
    publish = frozenset({Operation.PUBLISH})
    rights = Rights([AccessRule(Resource(AccessKind.TOPIC, "a", True), publish)])
    for name in ("a", "ab", "b", "ac", "a", "b", "ab"):
        decided = rights.allows(Operation.PUBLISH, AccessKind.TOPIC, name, "10.0.0.1")
        assert decided is name.startswith("a")
        assert len(rights._decided) <= 2


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        (Resource(AccessKind.TOPIC), "names none"),
        (Resource(AccessKind.CLUSTER, "x"), "names none: there is one"),
        (Resource(AccessKind.TOPIC, "a*b"), "whole ending"),
        (Resource(AccessKind.TOPIC, "\u0430bc"), "printable ASCII"),  # Cyrillic
        (Resource(AccessKind.TOPIC, "a\n"), "printable ASCII"),
        (Resource(AccessKind.TOPIC, "a" * 256), "256 characters"),
    ],
)
def test_rules_that_could_be_misread_are_refused(resource: Resource, words: str) -> None:
    problem = rules_problem([AccessRule(resource, frozenset({Operation.LIST}))])
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize("host", ["10.0.0", "*", "localhost", "10.0.0.0/33", ""])
def test_hosts_that_name_no_network_are_refused(host: str) -> None:
    assert "no address and no network" in (host_problem(host) or "")
