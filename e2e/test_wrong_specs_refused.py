"""A person who writes something wrong is told so by kubectl, in our words, before it counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imago_e2e.kube import KubeError
from imago_testing.kubernetes.custom_resources import BAD_EDITS, BadEdit

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

pytestmark = pytest.mark.smoke
NEW = [each for each in BAD_EDITS if each.old is None and each.by_rule]


def test_new_objects_are_refused_with_our_message(kube: Kube, operator: Operator) -> None:
    assert operator.installed()
    whole = [_refusal(kube, each) for each in NEW]
    wrong = [f"{each.said!r}: {said}" for each, said in zip(NEW, whole, strict=True) if said]
    assert not wrong


def _refusal(kube: Kube, bad: BadEdit) -> str:
    """Return what is wrong with the refusal; "" when it says what it should."""
    try:
        kube.run("create", "--dry-run=server", "-f", "-", text=json.dumps(bad.object))
    except KubeError as error:
        return "" if bad.said in str(error) else str(error)
    return "it was accepted"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("/spec/brokers/storage/size", "1Gi", "size cannot shrink"),
        ("/spec/zookeeper/managed/storage/storageClassName", "pinned", "cannot be changed"),
        ("/spec/brokers/minInSync", 4, "minInSync"),
    ],
)
def test_an_edit_of_a_running_cluster_is_refused(
    whole: Brokers, path: str, value: object, said: str
) -> None:
    before = whole.kube.get("imc", whole.name, "-n", whole.namespace)
    patch = json.dumps([{"op": "add", "path": path, "value": value}])
    with pytest.raises(KubeError, match=said):
        whole.kube.run(
            "patch", "imc", whole.name, "-n", whole.namespace, "--type=json", "-p", patch
        )
    after = whole.kube.get("imc", whole.name, "-n", whole.namespace)
    assert after["spec"] == before["spec"]
