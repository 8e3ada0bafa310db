"""Objects of Kubernetes in memory: a KubePort, and a context for reconcilers on it."""

# ruff: noqa: ARG002  a port has arguments that a fake needs not

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from imago_operator.errors import BlockedError, RetryError
from imago_operator.model.desired import OperatorInfo
from imago_operator.reconcile import Context, ObjectKey, Reached, Reconciler
from imago_testing.kubernetes.copying import copied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.contents.port import ContentsPort
    from imago_operator.pipelines.port import PipelinesPort

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Name = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclass
class FakeKubePort:
    """What a server has; objects are its own copies."""

    objects: dict[Name, dict[str, Any]] = field(default_factory=dict)
    now: datetime = START
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """Name of the object, type, reason."""
    status_writes: int = 0
    forbidden: frozenset[str] = frozenset()
    """Kinds that may not be listed."""
    denied: frozenset[tuple[str, str]] = frozenset()
    """Verb and kind of other calls that are refused; of a status: `apply_status`."""
    _version: int = 0

    def put(self, manifest: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
        """Have a user's object there; it gets what a server gives it."""
        made = copied(dict(manifest))
        self._version += 1
        known = {
            "namespace": "mq",
            "uid": f"uid-{self._version:04}",
            "generation": 1,
            "creationTimestamp": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        made["metadata"] = known | made["metadata"] | metadata
        made["metadata"]["resourceVersion"] = str(self._version)
        self.objects[_name(made)] = made
        return made

    def edit(self, kind: str, name: str, spec: Mapping[str, Any], namespace: str = "mq") -> None:
        """Change fields of a spec, as a user does."""
        found = self.objects[kind, namespace, name]
        found["spec"] |= spec
        found["metadata"]["generation"] += 1
        self._touch(found)

    def annotate(self, kind: str, name: str, **annotations: str) -> None:
        """Set annotations of our group."""
        found = self.objects[kind, "mq", name]
        said = {f"imago.dev/{key}": value for key, value in annotations.items()}
        found["metadata"]["annotations"] = {**found["metadata"].get("annotations", {}), **said}
        self._touch(found)

    def remove(self, kind: str, name: str, namespace: str = "mq") -> None:
        """Delete as a user does: what has a finalizer only says that it goes."""
        found = self.objects[kind, namespace, name]
        if found["metadata"].get("finalizers"):
            moment = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            found["metadata"].setdefault("deletionTimestamp", moment)
            self._touch(found)
        else:
            del self.objects[kind, namespace, name]

    def status(self, kind: str, name: str, namespace: str = "mq") -> dict[str, Any]:
        """Return a status; empty where there is none yet."""
        found: dict[str, Any] = self.objects[kind, namespace, name].get("status", {})
        return found

    def condition(
        self, kind: str, name: str, type_: str = "Ready", *, namespace: str = "mq"
    ) -> tuple[str, str] | None:
        """Return status and reason of a condition."""
        for one in self.status(kind, name, namespace).get("conditions", ()):
            if one["type"] == type_:
                return one["status"], one["reason"]
        return None

    def _touch(self, found: dict[str, Any]) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)

    def _ask(self, verb: str, kind: str) -> None:
        if (verb, kind) in self.denied:
            raise BlockedError(f"{verb} {kind}: 403", until=f"the operator may {verb} {kind}")

    async def apply(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        self._ask("apply", manifest["kind"])
        before = self.objects.get(_name(manifest), {"metadata": {}})
        known = {k: before["metadata"][k] for k in ("uid",) if k in before["metadata"]}
        return self.put(manifest, **known)

    async def create(self, manifest: Mapping[str, Any]) -> None:
        if _name(manifest) not in self.objects:
            self.put(manifest)

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str, orphan: bool = False
    ) -> None:
        found = self.objects.get((kind, namespace, name))
        if found is not None and found["metadata"]["uid"] == uid:
            self.remove(kind, name, namespace)

    async def apply_status(self, manifest: Mapping[str, Any]) -> None:
        self._ask("apply_status", manifest["kind"])
        found = self.objects.get(_name(manifest))
        if found is None or found["metadata"]["uid"] != manifest["metadata"]["uid"]:
            raise RetryError("gone", delay_s=1)
        self.status_writes += 1
        found["status"] = copied(dict(manifest["status"]))
        self._touch(found)

    async def list(
        self, kind: str, namespace: str, *, labels: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        if kind in self.forbidden:
            raise BlockedError(f"list {kind}", until="the operator may")
        fits = (o for (k, n, _), o in self.objects.items() if k == kind and namespace in ("", n))
        wanted = dict(label.split("=") for label in labels.split(",") if "=" in label)
        return [
            copied(one)
            for one in fits
            if wanted.items() <= one["metadata"].get("labels", {}).items()
        ]

    async def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        self._ask("get", kind)
        return copied(self.objects.get((kind, namespace, name)))

    async def patch(
        self, kind: str, namespace: str, name: str, *, uid: str, patch: Mapping[str, Any]
    ) -> None:
        self._ask("patch", kind)
        found = self.objects.get((kind, namespace, name))
        if found is None or found["metadata"]["uid"] != uid:
            raise RetryError("gone", delay_s=1)
        metadata = patch.get("metadata", {})
        version = metadata.get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise RetryError("changed meanwhile", delay_s=1)
        found["metadata"] |= {k: v for k, v in metadata.items() if k == "finalizers"}
        found["spec"] = {**found.get("spec", {}), **patch.get("spec", {})}
        self._touch(found)
        if "deletionTimestamp" in found["metadata"] and not found["metadata"].get("finalizers"):
            del self.objects[kind, namespace, name]

    async def event(self, about: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        self.events.append((about["metadata"]["name"], type_, reason))


@dataclass
class Stage:
    """An operator's reconcilers on fakes, and a clock that tests set."""

    contents: ContentsPort = None  # type: ignore[assignment]  # for those who ask for it
    pipelines: PipelinesPort = None  # type: ignore[assignment]  # likewise
    kube: FakeKubePort = field(default_factory=FakeKubePort)
    fenced: bool = False
    silent: bool = False

    def context(self, **changes: Any) -> Context:
        """Return what reconcilers get."""
        known: dict[str, Any] = {
            "kube": self.kube,
            "brokers": self._brokers,
            "operator": OperatorInfo(version="1.0.0"),
            "now": lambda: self.kube.now,
            "clock": lambda: self.kube.now.timestamp(),  # noqa: PLW0108  now changes
            "leading": self._leading,
            "enqueue": lambda _: None,
        }
        return Context(**(known | changes))

    def _leading(self) -> None:
        assert not self.fenced, "something was about to be done without the lease"

    async def _brokers(self, namespace: str, cluster: str) -> Reached:
        async def epoch() -> int:
            if self.silent:
                raise RetryError("no broker", delay_s=1)
            return 7

        admin: Any = None
        return Reached(
            admin=admin,
            contents=self.contents,
            pipelines=self.pipelines,
            brokers=("http://b",),
            epoch=epoch,
        )

    def pass_time(self, seconds: float) -> None:
        self.kube.now += timedelta(seconds=seconds)

    async def settle(
        self, reconciler: Reconciler, name: str, *, namespace: str = "mq", looks: int = 20
    ) -> float | None:
        """Look until nothing more is to be done soon; return when it wants to look again."""
        for _ in range(looks):
            again = await reconciler.reconcile(ObjectKey(reconciler.kind, namespace, name))
            if again is None or again >= 10:
                return again
            self.pass_time(max(again, 1.0))
        raise AssertionError(f"{name} does not come to rest")


def _name(manifest: Mapping[str, Any]) -> Name:
    return manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]
