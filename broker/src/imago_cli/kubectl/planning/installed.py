"""The operator that is installed: its version, and the images that it gives to what it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_cli import distribution
from imago_cli.kubectl.tool import Kubectl, KubectlError
from imago_operator.model import names
from imago_operator.model.desired import OperatorInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

OPTIONS: Final = {
    "--broker-image": "broker_image",
    "--zookeeper-image": "zookeeper_image",
    "--spark-image": "spark_image",
}
VARIABLE: Final = "IMAGO_OPERATOR_"
CONTAINER: Final = "operator"


def installed(
    kube: Kubectl, namespace: str, status: Mapping[str, Any]
) -> tuple[OperatorInfo, list[str]]:
    """Return the operator that works on a cluster, and what of it could not be seen.

    `namespace` and `status`: of the cluster, which knows the version; the images
    stand in the operator's Deployment.
    """
    version = status.get("operatorVersion") or distribution.version()
    try:
        found = kube.all_of(
            "deployments.apps", labels=f"app.kubernetes.io/name={names.MANAGER}", everywhere=True
        )
    except KubectlError as error:
        found, why = [], error.message
    else:
        why = "there is no Deployment of one that looks after the namespace"
    chosen = _responsible(found, namespace)
    if chosen is None:
        unseen = f"the operator's own images; its defaults are taken: {why}"
        return OperatorInfo(version=version), [unseen]
    given = _given(chosen)
    images = {field: given[option] for option, field in OPTIONS.items() if option in given}
    own = chosen["metadata"].get("namespace", "imago-system")
    return OperatorInfo(version=version, namespace=own, **images), []


def _responsible(
    deployments: Iterable[Mapping[str, Any]], namespace: str
) -> Mapping[str, Any] | None:
    """Return the operator that looks after a namespace: one of its own before one of all."""
    by_scope: dict[bool, Mapping[str, Any]] = {}
    for one in deployments:
        scope = _given(one).get("--namespaces", "")
        if not scope or namespace in scope.split(","):
            by_scope.setdefault(bool(scope), one)
    return by_scope.get(True) or by_scope.get(False)


def _given(deployment: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that a Deployment gives its operator; those on the line win."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    container = next((one for one in containers if one["name"] == CONTAINER), containers[0])
    return dict((*_variables(container), *_words(container)))


def _variables(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in container.get("env") or ():
        if one["name"].startswith(VARIABLE) and one.get("value"):
            yield "--" + one["name"].removeprefix(VARIABLE).lower().replace("_", "-"), one["value"]


def _words(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    words = container.get("args") or []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option.startswith("--"):
            yield option, value if equals else following
