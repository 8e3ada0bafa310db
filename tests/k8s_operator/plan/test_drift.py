"""Which fields have drifted, by the account that Kubernetes keeps of who says what."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from imago_operator.model import names
from imago_operator.model.state import OwnedObject
from imago_operator.plan.drift import drifted, managed_of

MANIFEST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "demo", "namespace": "mq", "labels": {"a": "b"}, "annotations": {}},
    "spec": {
        "clusterIP": None,
        "selector": {"app": "demo"},
        "ports": [
            {"name": "metaq", "port": 8123, "targetPort": "metaq"},
            {"name": "rocketmq", "port": 10911, "targetPort": "rocketmq"},
        ],
        "externalIPs": ["10.0.0.1"],
    },
}
OURS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:a": {}}},
    "f:spec": {
        "f:selector": {},
        "f:ports": {
            'k:{"port":8123,"protocol":"TCP"}': {
                ".": {},
                "f:name": {},
                "f:port": {},
                "f:targetPort": {},
            },
            'k:{"port":10911,"protocol":"TCP"}': {
                ".": {},
                "f:name": {},
                "f:port": {},
                "f:targetPort": {},
            },
        },
        "f:externalIPs": {},
    },
}


def child(ours: dict[str, Any], **others: dict[str, Any]) -> OwnedObject:
    live = copy.deepcopy(MANIFEST)
    live["spec"]["ports"][1]["targetPort"] = "else"
    live["metadata"]["managedFields"] = [
        {"manager": names.MANAGER, "operation": "Apply", "fieldsV1": ours},
        *(
            {"manager": who, "operation": "Update", "fieldsV1": fields}
            for who, fields in others.items()
        ),
    ]
    return OwnedObject(kind="Service", name="demo", uid="u", managed=managed_of(live), live=live)


def test_what_is_ours_has_not_drifted() -> None:
    assert drifted(MANIFEST, child(OURS)) == ()


def test_a_field_of_an_item_names_the_item_what_it_was_and_who_changed_it() -> None:
    ours = copy.deepcopy(OURS)
    ports = ours["f:spec"]["f:ports"]
    del ports['k:{"port":10911,"protocol":"TCP"}']["f:targetPort"]
    theirs: dict[str, Any] = {
        "f:ports": {'k:{"port":10911,"protocol":"TCP"}': {"f:targetPort": {}}}
    }
    (found,) = drifted(MANIFEST, child(ours, editor={"f:spec": theirs}))
    assert found.path == "spec.ports[port=10911].targetPort"
    assert (found.found, found.wanted, found.by) == ('"else"', '"rocketmq"', "editor")


def test_an_item_that_is_gone_is_named() -> None:
    ours = copy.deepcopy(OURS)
    del ours["f:spec"]["f:ports"]['k:{"port":10911,"protocol":"TCP"}']
    paths = [one.path for one in drifted(MANIFEST, child(ours))]
    assert paths == ["spec.ports[port=10911]"]


def test_a_part_of_which_nothing_is_ours_is_named_by_its_leaves() -> None:
    ours = {"f:metadata": OURS["f:metadata"]}
    paths = [one.path for one in drifted(MANIFEST, child(ours))]
    assert paths == ["spec.selector.app", "spec.ports", "spec.externalIPs"]


@pytest.mark.parametrize(
    "entry",
    [{"operation": "Update"}, {"operation": "Apply", "subresource": "status"}],
    ids=["patched", "a status"],
)
def test_ours_is_only_what_was_applied(entry: dict[str, str]) -> None:
    found = child(OURS)
    fields = {"manager": names.MANAGER, "fieldsV1": OURS, **entry}
    item = {"metadata": {"managedFields": [fields]}}
    other = OwnedObject(
        kind=found.kind, name=found.name, uid="u", managed=managed_of(item), live=found.live
    )
    assert "metadata.labels.a" in [one.path for one in drifted(MANIFEST, other)]


def test_where_no_account_is_shown_nothing_is_known() -> None:
    """kubectl leaves it out of what it prints."""
    assert managed_of({"metadata": {}}) is None
    assert drifted(MANIFEST, OwnedObject(kind="Service", name="demo", uid="u")) == ()
