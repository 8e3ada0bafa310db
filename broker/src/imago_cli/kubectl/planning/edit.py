"""What an edit of an ImagoCluster changes, found by comparing what follows from both specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_cli.output import counted
from imago_operator.manifests.brokers import stateful_set, template_notes
from imago_operator.manifests.common import applied_hash
from imago_operator.manifests.render import render
from imago_operator.manifests.zookeeper import zookeeper_notes
from imago_operator.model import names
from imago_operator.model.accepted import in_force
from imago_operator.model.desired import Desired, OperatorInfo, desired_of
from imago_operator.spec.cluster.cluster import UpdateMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WHEN: Final = {
    UpdateMode.AUTOMATIC: "one by one, at once",
    UpdateMode.WINDOW: "one by one, in the next window",
    UpdateMode.MANUAL: "one by one, after `kubectl imago approve`",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that an edit brings about."""

    what: str
    about: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """An ImagoCluster before (None: it is new) and after an edit."""

    before: Desired | None
    after: Desired
    shards: tuple[int, ...]
    """Those there are."""

    def effects(self) -> Iterator[Effect]:
        """Yield what the edit brings about, the gravest first."""
        if self.before is None:
            many = self.after.spec.brokers.shards
            yield Effect(
                "CreateCluster",
                f"{counted(many, 'shard')} of {counted(self.after.replicas, 'member')}",
            )
            return
        yield from self._shards(self.before)
        yield from self._servers(self.before)
        yield from self._hibernation(self.before)
        if not (self.before.spec.hibernated or self.after.spec.hibernated):
            yield from self._restarts(self.before)
        yield from self._volumes(self.before)
        yield from self._settings(self.before)
        yield from self._objects(self.before)

    def _shards(self, before: Desired) -> Iterator[Effect]:
        wanted, there = self.after.spec.brokers.shards, len(self.shards)
        if wanted > there:
            how = "topics get queues on them" if self.after.spec.scale_up.fill else "for new topics"
            yield Effect("AddShards", f"{wanted - there} to {there}", how)
        for shard in self._leaving():
            keep = self.after.spec.brokers.storage.persistent_volume_claim_retention_policy
            how = f"drained first; its claims: {keep.when_scaled.value}"
            yield Effect("RemoveShard", f"shard-{shard}", how)
        if before.replicas != self.after.replicas:
            text = f"{before.replicas} to {self.after.replicas} a shard"
            yield Effect("ChangeMembers", text, self._members(before))

    def _servers(self, before: Desired) -> Iterator[Effect]:
        was, wanted = before.spec.zookeeper.managed, self.after.spec.zookeeper.managed
        if was and wanted and was.replicas != wanted.replicas:
            text = f"{was.replicas} to {wanted.replicas} of ZooKeeper"
            yield Effect("ChangeServers", text, "one at a time, while all others serve")

    def _hibernation(self, before: Desired) -> Iterator[Effect]:
        """Yield that all pods stop, or come back: none of them is restarted besides."""
        if self.after.spec.hibernated and not before.spec.hibernated:
            yield Effect("Hibernate", "all brokers, then ZooKeeper", "claims are kept")
        if before.spec.hibernated and not self.after.spec.hibernated:
            yield Effect("Wake", "ZooKeeper, then all brokers", "at once, with all edits")

    def _members(self, before: Desired) -> str:
        """Return how members join or leave, and what puts need meanwhile."""
        least = f"puts need {self.after.min_in_sync} of them"
        if self.after.replicas > before.replicas:
            return f"they join and get in sync, then {least}"
        keep = self.after.spec.brokers.storage.persistent_volume_claim_retention_policy
        claims = f"claims: {keep.when_scaled.value}"
        return f"{least}, then the last leaves, one at a time; {claims}"

    def _leaving(self) -> list[int]:
        """Return the shards that go: those named, then the highest."""
        excess = len(self.shards) - self.after.spec.brokers.shards
        order = [*self.after.spec.brokers.remove_shards, *sorted(self.shards, reverse=True)]
        return [n for n in dict.fromkeys(order) if n in self.shards][: max(0, excess)]

    def _restarts(self, before: Desired) -> Iterator[Effect]:
        how = WHEN[self.after.spec.update_policy.mode]
        if self.after.resource.restart != before.resource.restart:
            how = "one by one, at once: it is ordered"
        leaving = self._leaving()
        for shard in self.shards:
            if shard in leaving:
                continue
            why = _cause(template_notes(before, shard), template_notes(self.after, shard))
            if why:
                yield Effect(
                    "Restart", f"shard-{shard}: {counted(before.replicas, 'pod')}, {why}", how
                )
        if zookeeper_notes(before) != zookeeper_notes(self.after):
            yield Effect("Restart", "servers of ZooKeeper, SpecChanged", how)

    def _volumes(self, before: Desired) -> Iterator[Effect]:
        old, new = before.spec.brokers.storage.size, self.after.spec.brokers.storage.size
        if old and new and new.bytes > old.bytes:
            yield Effect("GrowVolumes", f"{old.text} to {new.text}")
        was = before.spec.brokers.storage.storage_class_name
        if self.after.spec.brokers.storage.storage_class_name not in (None, was):
            how = "one by one: each copies its shard onto a new claim"
            yield Effect("MoveMembers", "those with claims of another class", how)
        for shard in self.shards:
            sets = (stateful_set(before, shard), stateful_set(self.after, shard))
            noted = [one["metadata"]["annotations"][names.CLAIM_TEMPLATE] for one in sets]
            if noted[0] != noted[1]:
                name = f"StatefulSet {names.stateful_set(before.name, shard)}"
                yield Effect("MakeAnew", name, "its pods stay as they are")

    def _settings(self, before: Desired) -> Iterator[Effect]:
        for name, value in self.after.dynamic.items():
            if before.dynamic[name] != value:
                yield Effect(
                    "SetConfig", f"{name}: {before.dynamic[name]} to {value}", "no restart"
                )

    def _objects(self, before: Desired) -> Iterator[Effect]:
        old = _by_name(render(before, self.shards))
        new = _by_name(render(self.after, self.shards))
        for key, manifest in new.items():
            if key not in old:
                yield Effect("Apply", " ".join(key), "new")
            elif applied_hash(old[key]) != applied_hash(manifest):
                yield Effect("Apply", " ".join(key), "changed")
        for key in old:
            # Settings go when the last pod goes that names them.
            if key not in new and not names.is_config(key[1]):
                yield Effect("DeleteChild", " ".join(key))


def edit_of(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], operator: OperatorInfo
) -> Edit | str:
    """Return an edit, or why the operator would refuse the new spec."""
    new = desired_of(after, operator)
    if not isinstance(new, Desired):
        return new.problem
    # What it is kept as, where the spec of today is one that the operator refuses.
    old = None if before is None else in_force(before, operator)
    there = () if before is None else _shards(before)
    return Edit(old if isinstance(old, Desired) else None, new, tuple(there))


def _shards(cluster: Mapping[str, Any]) -> Sequence[int]:
    listed = cluster.get("status", {}).get("shards", ())
    known = [one["id"] for one in listed if one["phase"] != "Drained"]
    return sorted(known) or range(cluster["spec"]["brokers"].get("shards", 1))


def _by_name(manifests: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in manifests}


def _cause(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return why pods are outdated, in the operator's words; empty where they are not."""
    if old.get(names.TEMPLATE_HASH) == new.get(names.TEMPLATE_HASH):
        return ""
    for note, why in (
        (names.RESTART, "ManualRestart"),
        (names.VERSION, "VersionChange"),
        (names.CONFIG_HASH, "ConfigNeedsRestart"),
    ):
        if old.get(note) != new.get(note):
            return why
    return "SpecChanged"
