"""The table of rights against what the operator's code calls."""

from __future__ import annotations

from collections import Counter

from imago_operator.kube.resources import RESOURCES
from imago_operator.rights import KINDS as PLURALS
from imago_operator.rights import RIGHTS, Where
from imago_operator.spec.kinds import KINDS
from imago_testing.kubernetes.used_rights import MEANT, Used, calls, kinds_of, used

WIDE = {Where.FACTS, Where.CLUSTER}


def granted() -> list[tuple[Used, Where]]:
    return [
        (Used(right.group, resource, verb), right.where)
        for right in RIGHTS
        for resource in right.resources
        for verb in right.verbs
    ]


def test_every_call_says_which_kinds_it_is_about() -> None:
    silent = [str(call) for call in calls() if kinds_of(call) is None]
    assert silent == [], (
        "say in imago_testing/kubernetes/used_rights.py (MEANT) which kinds these are"
    )


def test_nothing_is_explained_that_nobody_calls() -> None:
    assert set(MEANT) - set(calls()) == set()


def test_the_operator_has_every_right_that_it_needs() -> None:
    assert sorted(used() - {right for right, _ in granted()}) == []


def test_the_operator_has_no_right_that_it_does_not_need() -> None:
    assert sorted({right for right, _ in granted()} - used()) == []


def test_no_right_is_given_twice() -> None:
    counted = Counter(granted())
    assert [given for given, times in counted.items() if times > 1] == []


def test_only_what_no_namespace_has_is_asked_for_in_the_clusters_scope() -> None:
    known = {
        (resource.api_version.rpartition("/")[0], resource.plural): resource.namespaced
        for resource in RESOURCES.values()
    }
    wrong = [
        right
        for right, where in granted()
        if known[right.group, right.resource.partition("/")[0]] == (where in WIDE)
    ]
    assert wrong == []


def test_nothing_is_granted_wholesale_and_nothing_that_gives_rights() -> None:
    words = {word for r, _ in granted() for word in r}
    assert not words & {"*", "escalate", "bind", "impersonate", "deletecollection", "pods/exec"}
    assert not words & {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}


def test_the_table_knows_every_kind() -> None:
    assert set(PLURALS) == {kind.plural for kind in KINDS}
