"""Which rights the operator's code needs: read off its calls, its watches and its lease.

A call through `KubePort` whose kind does not stand in the call itself is explained in `MEANT`.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import imago_operator
from imago_operator.kube.resources import RESOURCES
from imago_operator.manifests.render import render
from imago_operator.model.desired import Desired, OperatorInfo, desired_of
from imago_operator.observing.observed import CHILD_KINDS
from imago_operator.plan.objects import REMOVABLE
from imago_operator.runtime.watched import CHILDREN, OWN
from imago_operator.spec.kinds import KINDS
from imago_testing.kubernetes.custom_resources import manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCE: Final = Path(imago_operator.__file__).parent
VERBS: Final = {
    "apply": ("create", "patch"),
    "apply_status": ("patch",),
    "list": ("list",),
    "get": ("get",),
    "create": ("create",),
    "delete": ("delete",),
    "patch": ("patch",),
    "event": ("create", "patch"),
}
"""Verbs that a call of each method of `KubePort` may need."""
BY_MANIFEST: Final = ("apply", "apply_status", "create", "event")


class Used(NamedTuple):
    """One right: verb on a resource of a group."""

    group: str
    resource: str
    verb: str


class Call(NamedTuple):
    """One place of the source where `KubePort` is called."""

    module: str
    method: str
    said: str
    """The first argument, as it is written; of a call or a dictionary, only how it begins."""

    def __str__(self) -> str:
        return f"{self.module}: {self.method}({self.said})"


def rendered_kinds() -> frozenset[str]:
    """Return the kinds of everything that a cluster with all its parts is made of."""
    listener = {"name": "out", "type": "LoadBalancer", "advertisedHostTemplate": "{pod}.mq"}
    listener["bootstrapHost"] = "mq"
    tls = {"ca": {"mode": "CertManager", "issuerRef": {"name": "issuer"}}}
    cluster = manifest("ImagoCluster", {"spec.listeners": [listener], "spec.tls": tls})
    desired = desired_of(cluster, OperatorInfo(version="0.1.0"))
    assert isinstance(desired, Desired)
    return frozenset(made["kind"] for made in render(desired, [0]))


REBALANCE: Final = "ImagoRebalance"
CLUSTER: Final = "ImagoCluster"
TOPIC: Final = "ImagoTopic"
GROUP: Final = "ImagoConsumerGroup"
PIPELINE: Final = "ImagoPipeline"
USER: Final = "ImagoUser"
BACKUP: Final = "ImagoBackup"
MIRRORED: Final = frozenset({"ConfigMap", "Deployment", "NetworkPolicy", "Service"})
"""What a mirror is made of."""
RUNS: Final = frozenset({"Job", "CronJob", "SparkApplication", "ScheduledSparkApplication"})
OWN_KINDS: Final = frozenset(kind.name for kind in KINDS)
CLAIM: Final = "PersistentVolumeClaim"
SET: Final = "StatefulSet"
MEANT: Final[dict[Call, frozenset[str]]] = {
    Call("apply", "apply", "action.manifest"): rendered_kinds() | {REBALANCE},
    Call("apply", "create", "token_secret("): frozenset({"Secret"}),
    Call("apply", "create", "registry_user_secret("): frozenset({"Secret"}),
    Call("apply", "apply", "made"): frozenset({"Secret"}),
    Call("apply", "delete", "action.kind"): REMOVABLE | {SET, REBALANCE},
    Call("apply", "patch", "kind"): frozenset({"Pod", CLAIM}),
    Call("runtime.audit", "list", "watched.kind"): OWN_KINDS,
    Call("runtime.audit", "get", "key.kind"): OWN_KINDS,
    Call("observing.observed", "list", "kind"): frozenset(
        {*CHILD_KINDS, "Pod", CLAIM, "Certificate"}
    ),
    Call("observing.volumes", "list", "kind"): frozenset({"Node", "StorageClass"}),
    Call("reconcilers.cluster", "get", "key.kind"): frozenset({CLUSTER}),
    Call("reconcilers.cluster", "get", "self.kind"): frozenset({CLUSTER}),
    Call("reconcilers.cluster", "apply_status", "{"): frozenset({CLUSTER}),
    Call("reconcilers.cluster", "event", "manifest"): frozenset({CLUSTER}),
    Call("observing.installations", "get", "LEASE"): frozenset({"Lease"}),
    Call("reconcilers.attending", "get", "key.kind"): OWN_KINDS - {CLUSTER},
    Call("reconcilers.claims", "list", "kind.name"): frozenset({TOPIC, GROUP, USER}),
    Call("reconcilers.claims", "apply_status", "{"): OWN_KINDS - {CLUSTER},
    Call("reconcilers.claims", "patch", "manifest['kind']"): frozenset(
        {TOPIC, GROUP, USER, BACKUP}
    ),
    Call("reconcilers.backup", "list", "BACKUP.name"): frozenset({BACKUP}),
    Call("reconcilers.backup", "create", "scheduling.backup_of("): frozenset({BACKUP}),
    Call("reconcilers.backup", "delete", "BACKUP.name"): frozenset({BACKUP}),
    Call("reconcilers.mirror", "list", "kind"): MIRRORED,
    Call("reconcilers.mirror", "apply", "made"): MIRRORED,
    Call("reconcilers.claims", "event", "manifest"): OWN_KINDS - {CLUSTER},
    Call("reconcilers.user", "apply", "secret_of("): frozenset({"Secret"}),
    Call("reconcilers.dependents", "list", "USER.name"): frozenset({USER}),
    Call("observing.authorities", "list", "USER.name"): frozenset({USER}),
    Call("reconcilers.pipeline", "list", "kind"): frozenset({"ServiceAccount"}),
    Call("reconcilers.pipeline", "apply", "made"): frozenset({"ConfigMap", CLAIM, USER}),
    Call("reconcilers.pipeline", "create", "made"): RUNS,
    Call("reconcilers.pipeline", "delete", "kind"): RUNS,
    Call("reconcilers.pipeline", "patch", "kind"): RUNS,
}
"""The kinds of calls that do not name them."""


def calls() -> Iterator[Call]:
    """Yield every call through `KubePort`, outside of what carries it out."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module.startswith("kube."):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                where = ast.unparse(node.func.value)
                if node.func.attr in VERBS and where.endswith("kube"):
                    said = re.split(r"(?<=[({])", ast.unparse(node.args[0]))[0]
                    yield Call(module, node.func.attr, said)


def kinds_of(call: Call) -> frozenset[str] | None:
    """Return the kinds that a call may be about; None: nobody has said."""
    if call in MEANT:
        return MEANT[call]
    if call.method in BY_MANIFEST:
        return None
    try:
        named = ast.literal_eval(call.said)
    except ValueError:
        module = importlib.import_module(f"imago_operator.{call.module}")
        named = getattr(module, call.said, None)
    return frozenset({named}) if isinstance(named, str) else None


def used() -> frozenset[Used]:
    """Return every right that the code may need."""
    found = {right for call in calls() for right in _of_call(call)}
    found |= set(_rights((w.kind for w in (*OWN, *CHILDREN)), ("list", "watch")))
    found |= set(_rights(["Lease"], ("get", "create", "update")))
    # Owner references that block; asked for where the API server enforces it.
    for kind in (CLUSTER, PIPELINE):
        found |= set(_rights([kind], ["update"], "/finalizers"))
    # kopf looks for kinds that come later, where it may look at all.
    found |= set(_rights(["CustomResourceDefinition"], ("list", "watch")))
    return frozenset(found)


def _of_call(call: Call) -> Iterator[Used]:
    kinds = kinds_of(call)
    assert kinds is not None, f"{call}: say in {__name__}.MEANT which kinds these are"
    if call.method == "event":
        yield from _rights(["Event"], VERBS["event"])
    else:
        part = "/status" if call.method == "apply_status" else ""
        yield from _rights(kinds, VERBS[call.method], part)


def _rights(kinds: Iterable[str], verbs: Iterable[str], part: str = "") -> Iterator[Used]:
    verbs = tuple(verbs)
    for kind in kinds:
        resource = RESOURCES[kind]
        group = resource.api_version.rpartition("/")[0]
        yield from (Used(group, resource.plural + part, verb) for verb in verbs)
