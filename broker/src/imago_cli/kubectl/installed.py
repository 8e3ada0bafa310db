"""The operator that is installed: its version, and the images that it gives to what it makes."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any, Final

from imago_cli.kubectl.tool import Kubectl, KubectlError
from imago_operator import names
from imago_operator.desired import OperatorInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OPTIONS: Final = {
    "--broker-image": "broker_image",
    "--zookeeper-image": "zookeeper_image",
    "--spark-image": "spark_image",
}
VARIABLE: Final = "IMAGO_OPERATOR_"
CONTAINER: Final = "operator"


def installed(kube: Kubectl, status: Mapping[str, Any]) -> tuple[OperatorInfo, list[str]]:
    """Return the operator that works on a cluster, and what of it could not be seen.

    `status`: of the cluster. It knows the version; its images stand in the operator's Deployment.
    """
    version = status.get("operatorVersion") or importlib.metadata.version("imago")
    running = {status["version"]} if status.get("version") else set()
    supported = tuple(sorted(running - {version}))
    try:
        found = kube.all_of(
            "deployments.apps", labels=f"app.kubernetes.io/name={names.MANAGER}", everywhere=True
        )
    except KubectlError as error:
        found, why = [], error.message
    else:
        why = "there is no Deployment of it"
    if not found:
        unseen = f"the operator's own images; its defaults are taken: {why}"
        return OperatorInfo(version=version, supported=supported), [unseen]
    given = dict(_given(found[0]))
    namespace = found[0]["metadata"].get("namespace", "imago-system")
    return (
        OperatorInfo(version=version, supported=supported, namespace=namespace, **given),
        [],
    )


def _given(deployment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the images that a Deployment names, by the fields that they belong to."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    container = next((one for one in containers if one["name"] == CONTAINER), containers[0])
    for one in container.get("env") or ():
        option = "--" + one["name"].removeprefix(VARIABLE).lower().replace("_", "-")
        if one["name"].startswith(VARIABLE) and option in OPTIONS and one.get("value"):
            yield OPTIONS[option], one["value"]
    words = container.get("args") or []
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in OPTIONS:
            yield OPTIONS[option], value if equals else words[place + 1]
