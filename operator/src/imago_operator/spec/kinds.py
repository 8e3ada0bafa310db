"""The kinds of resources: names, types and rules of each; how an object is read.

Fields and columns of a kind are in its module: `topic`, `group`, `cluster` and `cluster_status` …
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from imago_operator.errors import InvalidError
from imago_operator.spec import (
    backup,
    group,
    mirror,
    pipeline,
    rebalance,
    rules,
    topic,
    user,
    user_rules,
)
from imago_operator.spec.backup import (
    BackupSpec,
    BackupStatus,
    ScheduledBackupSpec,
    ScheduledBackupStatus,
)
from imago_operator.spec.cluster import (
    backups,
    cluster_status,
    listener_rules,
    shape_rules,
    tiered,
    tls_rules,
    zookeeper,
)
from imago_operator.spec.cluster.cluster import ClusterSpec
from imago_operator.spec.cluster.cluster_status import ClusterStatus
from imago_operator.spec.group import GroupSpec, GroupStatus
from imago_operator.spec.mirror import MirrorSpec, MirrorStatus
from imago_operator.spec.pipeline import PipelineSpec, PipelineStatus
from imago_operator.spec.rebalance import RebalanceSpec, RebalanceStatus
from imago_operator.spec.schema.build import build
from imago_operator.spec.schema.fields import Schema, schema_of
from imago_operator.spec.schema.schema import Problem, problems, with_defaults
from imago_operator.spec.topic import TopicSpec, TopicStatus
from imago_operator.spec.user import UserSpec, UserStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imago_operator.spec.schema.column import Column
    from imago_operator.spec.schema.rule import Rule

GROUP: Final = "imago.dev"
VERSION: Final = "v1alpha1"
"""In which objects are stored, and in which the operator reads and writes them."""
VERSIONS: Final = (VERSION, "v1beta1")
"""In which they are served: all with one schema, so that the API server converts by the name."""
API_VERSION: Final = f"{GROUP}/{VERSION}"

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Scale:
    """Where `kubectl scale` and autoscalers read and write."""

    spec: str
    status: str
    selector: str


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[S]):
    """One kind of resource."""

    name: str
    plural: str
    short: str
    doc: str
    spec: type[S]
    status: type
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    scale: Scale | None = None

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{GROUP}"

    @cached_property
    def spec_schema(self) -> Schema:
        return schema_of(self.spec)

    @cached_property
    def status_schema(self) -> Schema:
        return schema_of(self.status)

    def read(self, manifest: Mapping[str, Any]) -> S:
        """Return the spec of an object; InvalidError names every wrong field by its path."""
        if found := list(self.problems(manifest, stored=True)):
            raise InvalidError("; ".join(map(str, found)))
        return build(self.spec, with_defaults(self.spec_schema, manifest["spec"]))

    def problems(
        self,
        manifest: Mapping[str, Any],
        before: Mapping[str, Any] | None = None,
        *,
        stored: bool = False,
    ) -> Iterator[Problem]:
        """Yield what is wrong with an object, or with an edit of the object `before`.

        `stored`: of one that is there, whatever should have been refused when it came.
        """
        if not isinstance(manifest.get("spec"), Mapping):
            yield Problem("spec", "is required")
            return
        now = self._whole(manifest)
        found = list(problems(self.spec_schema, now["spec"], "spec"))
        yield from found
        if not found:  # rules may rely on what the schema says
            rules = [r for r in self.rules if not (stored and r.only_at_admission)]
            yield from _broken(rules, now, None if before is None else self._whole(before))

    def _whole(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {**manifest, "spec": with_defaults(self.spec_schema, manifest["spec"])}


def _broken(
    rules: Iterable[Rule], now: Mapping[str, Any], before: Mapping[str, Any] | None
) -> Iterator[Problem]:
    for rule in rules:
        olds = dict(nodes(before, rule.path)) if before is not None else {}
        for path, node in nodes(now, rule.path):
            if not rule.allows(node, olds.get(path)):
                yield Problem(path, rule.message)


def nodes(root: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the nodes of a path, with where they are; `[]` stands for every item of a list."""
    found = [("", root)]
    for name, items in re.findall(r"([A-Za-z]+)(\[\])?", path):
        found = [
            (f"{at}.{name}".lstrip("."), node[name])
            for at, node in found
            if isinstance(node, Mapping) and name in node
        ]
        if items:
            found = [
                (f"{at}[{index}]", item) for at, node in found for index, item in enumerate(node)
            ]
    yield from found


CLUSTER: Final = Kind(
    name="ImagoCluster",
    plural="imagoclusters",
    short="imc",
    doc="A cluster of brokers, with its registry and its listeners.",
    spec=ClusterSpec,
    status=ClusterStatus,
    columns=cluster_status.COLUMNS,
    rules=(
        *rules.CLUSTER,
        *listener_rules.RULES,
        *shape_rules.RULES,
        *tls_rules.RULES,
        *tiered.RULES,
        *zookeeper.RULES,
        *backups.RULES,
    ),
    scale=Scale(".spec.brokers.shards", ".status.brokers.shards", ".status.selector"),
)
TOPIC: Final = Kind(
    name="ImagoTopic",
    plural="imagotopics",
    short="imt",
    doc="A topic of a cluster.",
    spec=TopicSpec,
    status=TopicStatus,
    columns=topic.COLUMNS,
    rules=rules.TOPIC,
)
CONSUMER_GROUP: Final = Kind(
    name="ImagoConsumerGroup",
    plural="imagoconsumergroups",
    short="img",
    doc="A consumer group of a cluster.",
    spec=GroupSpec,
    status=GroupStatus,
    columns=group.COLUMNS,
    rules=rules.GROUP,
)
USER: Final = Kind(
    name="ImagoUser",
    plural="imagousers",
    short="imu",
    doc="A user of a cluster, its rights, and the Secret with what its clients need.",
    spec=UserSpec,
    status=UserStatus,
    columns=user.COLUMNS,
    rules=user_rules.RULES,
)
REBALANCE: Final = Kind(
    name="ImagoRebalance",
    plural="imagorebalances",
    short="imr",
    doc="One change of the shards that hold topics' queues.",
    spec=RebalanceSpec,
    status=RebalanceStatus,
    columns=rebalance.COLUMNS,
    rules=rules.REBALANCE,
)
BACKUP: Final = Kind(
    name="ImagoBackup",
    plural="imagobackups",
    short="imb",
    doc="One backup of a cluster, in what its spec.backup names.",
    spec=BackupSpec,
    status=BackupStatus,
    columns=backup.BACKUP_COLUMNS,
    rules=rules.BACKUP,
)
SCHEDULED_BACKUP: Final = Kind(
    name="ImagoScheduledBackup",
    plural="imagoscheduledbackups",
    short="imsb",
    doc="Backups of a cluster at set times, and how long they stay.",
    spec=ScheduledBackupSpec,
    status=ScheduledBackupStatus,
    columns=backup.SCHEDULE_COLUMNS,
    rules=rules.SCHEDULED_BACKUP,
)
MIRROR: Final = Kind(
    name="ImagoMirror",
    plural="imagomirrors",
    short="imm",
    doc="Topics of a cluster, copied to another one as messages come.",
    spec=MirrorSpec,
    status=MirrorStatus,
    columns=mirror.COLUMNS,
    rules=mirror.RULES,
)
PIPELINE: Final = Kind(
    name="ImagoPipeline",
    plural="imagopipelines",
    short="imp",
    doc="A Spark job on topics of a cluster.",
    spec=PipelineSpec,
    status=PipelineStatus,
    columns=pipeline.COLUMNS,
    rules=rules.PIPELINE,
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
)
KINDS: Final[tuple[Kind[Any], ...]] = (
    CLUSTER,
    TOPIC,
    CONSUMER_GROUP,
    USER,
    REBALANCE,
    BACKUP,
    SCHEDULED_BACKUP,
    MIRROR,
    PIPELINE,
)
