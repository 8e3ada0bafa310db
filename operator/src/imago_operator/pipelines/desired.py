"""What a pipeline is to be: the resource with every default resolved."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import InvalidError
from imago_operator.model import names
from imago_operator.model.desired import OwnerResource, fingerprint, resource_of
from imago_operator.spec.kinds import PIPELINE
from imago_operator.spec.schema.fields import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.desired import OperatorInfo
    from imago_operator.spec.pipeline import PipelineSpec
    from imago_operator.spec.schema.common import Resources

NAME_SERVICE: Final = 9876
MIB: Final = 1 << 20
DRIVER_MIB: Final = 1024
EXECUTOR_MIB: Final = 1536
LEAST_MIB: Final = 768
HEAP_LEAST_MIB: Final = 512
"""Spark refuses to start in less than 450 MiB."""
_UNITS: Final = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


@dataclass(frozen=True, slots=True)
class Share:
    """What one pod gets. Memory is shared by the JVM's heap and all else, Python above all."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]
    cores: int
    """Tasks at a time."""
    heap_mib: int
    rest_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAccess:
    """What a run shows brokers, and whom it trusts."""

    secret: str
    """Secret of an ImagoUser."""
    encrypted: bool
    """Whether brokers have certificates: it talks to them over TLS."""
    shows: bool = False
    """Whether it shows a certificate, in place of a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredPipeline:
    """A pipeline as it is to be."""

    resource: OwnerResource
    spec: PipelineSpec
    image: str
    cluster: tuple[str, str]
    """Namespace and name."""
    driver: Share
    executor: Share
    hash: str
    """Fingerprint of all that a run depends on and that the user said: another one, another run.
    What comes with the operator's version is not in it, so a new operator restarts nothing."""
    access: PipelineAccess | None = None
    """None: it has no credentials, or not yet."""

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def namespace(self) -> str:
        return self.resource.namespace

    @property
    def fence(self) -> str:
        """Name under which brokers know the pipeline."""
        return f"{self.namespace}.{self.name}"

    @property
    def bootstrap(self) -> str:
        """Address of the cluster's name service."""
        namespace, cluster = self.cluster
        return f"{names.bootstrap(cluster)}.{namespace}.svc:{NAME_SERVICE}"

    @property
    def config_name(self) -> str:
        return f"{self.name}-pipeline"

    @property
    def claim_name(self) -> str:
        return f"{self.name}-checkpoint"

    def run_name(self, epoch: int) -> str:
        """A run is an object of its own: names of two runs never meet."""
        return f"{self.name}-run-{epoch}"


def desired_pipeline(manifest: Mapping[str, Any], operator: OperatorInfo) -> DesiredPipeline:
    """Return what an ImagoPipeline says; InvalidError: it cannot be."""
    resource, spec = resource_of(manifest), PIPELINE.read(manifest)
    cluster = (spec.cluster_ref.namespace or resource.namespace, spec.cluster_ref.name)
    said = {key: value for key, value in to_json(spec).items() if key not in ("paused", "restart")}
    if claim := said["checkpoint"].get("claim"):
        said["checkpoint"] = {"claim": {key: claim[key] for key in claim if key != "size"}}
    return DesiredPipeline(
        resource=resource,
        spec=spec,
        image=spec.image or f"{operator.spark_image}:{operator.version}",
        cluster=cluster,
        driver=_share("driver", spec.resources.driver, DRIVER_MIB),
        executor=_share("executor", spec.resources.executor, EXECUTOR_MIB),
        hash=fingerprint([said, cluster, resource.restart]),
    )


def _share(whose: str, given: Resources, default_mib: int) -> Share:
    requests = {name: str(said.value) for name, said in given.requests.items()}
    limits = {name: str(said.value) for name, said in given.limits.items()}
    memory = limits.get("memory") or requests.get("memory") or f"{default_mib}Mi"
    mib = int(number(memory) // MIB)
    if mib < LEAST_MIB:
        raise InvalidError(
            f"spec.resources.{whose}: {memory} of memory; Spark with Python needs {LEAST_MIB}Mi"
        )
    cpu = requests.get("cpu") or limits.get("cpu") or "500m"
    heap = max(HEAP_LEAST_MIB, mib * 5 // 7)  # the rest is 0.4 of it, as Spark has it for Python
    return Share(
        requests={**requests, "cpu": cpu, "memory": requests.get("memory", memory)},
        limits={**limits, "memory": memory},
        cores=max(1, int(number(limits.get("cpu", cpu)))),
        heap_mib=heap,
        rest_mib=mib - heap,
    )


def number(quantity: str) -> Decimal:
    """Return what an amount of a resource stands for. InvalidError: it is none."""
    digits = quantity.rstrip("mkKMGTPEi")
    try:
        return Decimal(digits) * _UNITS[quantity[len(digits) :]]
    except (InvalidOperation, KeyError):
        try:
            return Decimal(quantity)  # with an exponent
        except InvalidOperation:
            raise InvalidError(f"{quantity!r:.40} is no amount") from None
