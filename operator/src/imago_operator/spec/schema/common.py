"""Parts that several kinds of resources have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.schema.fields import IntOrText, described

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_SIZE_MAX: Final = 63
MESSAGE_NAME_PATTERN: Final = r"^[%|A-Za-z0-9_-][%|A-Za-z0-9_.-]*$"
"""Names of topics and groups, as brokers allow them."""
TOPIC_SIZE_MAX: Final = 127
GROUP_SIZE_MAX: Final = 255
USER_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
USER_SIZE_MAX: Final = 64
QUANTITY_KEY_SIZE_MAX: Final = 32
RESOURCE_PATTERN: Final = (
    r"^([0-9]+|[0-9]*\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?[0-9]+)?$"
)

Strings = Mapping[str, str]
Quantities = Mapping[str, IntOrText]


class AcknowledgementLevel(StrEnum):
    """What the answer to a put waits for."""

    LEADER = "leader"
    LEADER_FSYNC = "leader-fsync"
    REPLICATED = "replicated"
    REPLICATED_FSYNC = "replicated-fsync"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, holds: bool | None) -> ConditionStatus:
        """Return the status of what holds, does not, or is not known."""
        return cls.UNKNOWN if holds is None else cls.TRUE if holds else cls.FALSE


class Retention(StrEnum):
    """What happens to claims, in the words of a StatefulSet."""

    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRef:
    """The ImagoCluster that a resource belongs to."""

    name: str = described(
        "Name of the ImagoCluster.", pattern=NAME_PATTERN, size_max=40, size_min=1
    )
    namespace: str | None = described(
        "Namespace of the ImagoCluster; that of this resource unless given. The cluster's"
        " allowedNamespaces must admit this resource's namespace.",
        default=None,
        pattern=NAME_PATTERN,
        size_max=NAME_SIZE_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """An object of the same namespace."""

    name: str = described("Name of the object.", size_max=253, size_min=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildMetadata:
    """Labels and annotations that are added to a child."""

    labels: Strings = described(
        "Labels to add; the operator's own take precedence.", default=dict, item_size_max=63
    )
    annotations: Strings = described(
        "Annotations to add; the operator's own take precedence.", default=dict, item_size_max=1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a container asks for and may use, as in a pod."""

    requests: Quantities = described(
        "Minimum amounts by resource: cpu, memory, ephemeral-storage.",
        default=dict,
        size_max=16,
        item_size_max=QUANTITY_KEY_SIZE_MAX,
        item_pattern=RESOURCE_PATTERN,
    )
    limits: Quantities = described(
        "Maximum amounts by resource.",
        default=dict,
        size_max=16,
        item_size_max=QUANTITY_KEY_SIZE_MAX,
        item_pattern=RESOURCE_PATTERN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition, in the form that kubectl wait and others understand."""

    type: str = described("Type of the condition.", size_max=64)
    status: ConditionStatus = described("Whether the condition holds.")
    reason: str = described("Cause, in one word that scripts may compare.", size_max=128)
    message: str = described("Cause, for people.", default="", size_max=4096)
    observed_generation: int = described(
        "Generation of the spec that this condition describes.", default=0, low=0
    )
    last_transition_time: str = described("Time of the last change of status.", size_max=40)


Conditions = tuple[Condition, ...]


def conditions_field() -> Conditions:
    """Return the field `conditions` of a status."""
    found: Conditions = described(
        "Current conditions. Ready sums them up; Reconciling and Stalled exist only while True.",
        default=(),
        size_max=32,
        map_key="type",
    )
    return found


def generation_field() -> int:
    """Return the field `observedGeneration` of a status."""
    found: int = described("Generation of the spec that this status describes.", default=0, low=0)
    return found
