"""ImagoBackups and their schedules on a server and brokers in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import pytest

from imago_operator.contents.values import SeenBackup
from imago_operator.errors import BlockedError, RetryError
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.backup import BackupReconciler, ScheduledBackupReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort

KIND, SCHEDULE = "ImagoBackup", "ImagoScheduledBackup"
DONE = SeenBackup(
    state="done", started_ms=1_000_000_000_000, until_ms=1_000_000_060_000, size=77, done=4, total=4
)


class Backups(Stage):
    """A stage with a cluster."""

    def __init__(self) -> None:
        self.brokers = FakeContentsPort()
        super().__init__(self.brokers)
        self.kube.put(manifest("ImagoCluster"))
        self.backup = BackupReconciler(self.context())
        self.schedule = ScheduledBackupReconciler(self.context())

    def made(self, **spec: Any) -> None:
        self.kube.put(manifest(KIND, {f"spec.{key}": value for key, value in spec.items()}))

    async def look(self, name: str = "demo") -> float | None:
        return await self.backup.reconcile(ObjectKey(KIND, "mq", name))

    async def look_often(self, name: str = "demo") -> None:
        for _ in range(4):
            await self.look(name)

    async def scheduled(self) -> float | None:
        return await self.schedule.reconcile(ObjectKey(SCHEDULE, "mq", "demo"))

    def status(self, name: str = "demo") -> dict[str, Any]:
        return dict(self.kube.status(KIND, name))

    def names(self) -> list[str]:
        return sorted(name for kind, _, name in self.kube.objects if kind == KIND)


@pytest.fixture
def stage() -> Backups:
    return Backups()


async def test_taken_and_followed_to_its_end(stage: Backups) -> None:
    stage.made(bytesASecond=1000)
    await stage.look()
    assert (stage.status()["phase"], stage.brokers.calls) == ("Running", [])
    await stage.look_often()
    assert stage.brokers.calls == [("take_backup", "demo", 1000)]
    assert stage.status()["progress"] == "25 %"
    stage.brokers.backups["demo"] = replace(stage.brokers.backups["demo"], state="interrupted")
    await stage.look()
    assert stage.brokers.calls == [("take_backup", "demo", 1000)] * 2
    stage.brokers.backups["demo"] = replace(DONE, lacks="lacks what only s3://old has")
    assert await stage.look() is None
    said = stage.status()["conditions"][0]["message"]
    assert said == "It lacks what only s3://old has."
    status = stage.status()
    assert (status["phase"], status["sizeBytes"]) == ("Succeeded", 77)
    assert (status["startedAt"], status["until"]) == (
        "2001-09-09T01:46:40Z", "2001-09-09T01:47:40Z"
    )  # fmt: skip
    assert stage.kube.condition(KIND, "demo") == ("True", "Succeeded")
    reads = stage.brokers.reads
    assert await stage.look() is None
    assert stage.brokers.reads == reads


async def test_a_namespace_that_goes_takes_no_backup_along(stage: Backups) -> None:
    stage.made()
    await _end(stage, "demo")
    found = stage.kube.objects[KIND, "mq", "demo"]
    assert not found["metadata"].get("finalizers")
    await stage.kube.delete(KIND, "mq", "demo", uid=found["metadata"]["uid"])
    await stage.look_often()
    assert (stage.names(), [*stage.brokers.backups]) == ([], ["demo"])


async def test_a_name_that_somebody_else_has_taken(stage: Backups) -> None:
    stage.brokers.backups["demo"] = DONE
    stage.made()
    await stage.look_often()
    assert (stage.status()["phase"], stage.brokers.calls) == ("Failed", [])
    assert stage.kube.condition(KIND, "demo") == ("False", "NameTaken")
    assert stage.brokers.backups == {"demo": DONE}


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_it_goes_with_its_resource_or_stays(stage: Backups, policy: str) -> None:
    stage.made(deletionPolicy=policy)
    await stage.look_often()
    stage.brokers.backups["demo"] = DONE
    await stage.look_often()
    found = stage.kube.objects[KIND, "mq", "demo"]
    assert bool(found["metadata"].get("finalizers")) == (policy == "Delete")
    await stage.kube.delete(KIND, "mq", "demo", uid=found["metadata"]["uid"])
    await stage.look_often()
    assert stage.names() == []
    assert ("demo" in stage.brokers.backups) == (policy == "Retain")


async def test_what_brokers_refuse_is_said_and_tried_again(stage: Backups) -> None:
    stage.brokers.trouble = lambda what: (
        BlockedError("No backups are taken here.", until="backup.url is set")
        if what == "backup"
        else None
    )
    stage.made()
    await stage.look()
    assert stage.kube.condition(KIND, "demo") == ("False", "BrokerRejected")
    stage.brokers.trouble = lambda _: None
    await stage.look_often()
    assert stage.kube.condition(KIND, "demo") == ("False", "Running")


async def test_one_that_fails_is_given_up_after_a_day(stage: Backups) -> None:
    stage.made()
    await stage.look_often()
    stage.brokers.backups["demo"] = SeenBackup(state="failed", error="no room")
    await stage.look()
    assert stage.kube.condition(KIND, "demo") == ("False", "BackupFailed")
    assert stage.brokers.calls == [("take_backup", "demo", None)] * 2
    stage.brokers.backups["demo"] = SeenBackup(state="failed", error="no room")
    stage.pass_time(25 * 3600)
    assert await stage.look() is None
    assert stage.status()["phase"] == "Failed"


async def test_made_when_due_and_once(stage: Backups) -> None:
    stage.kube.put(manifest(SCHEDULE))
    await stage.scheduled()
    assert stage.names() == []  # nothing is made up for from before
    stage.pass_time(24 * 3600)
    due = stage.kube.now.astimezone(UTC)
    last = due.replace(hour=2, minute=15, second=0, microsecond=0)
    if last > due:
        last -= timedelta(days=1)
    for _ in range(3):
        await stage.scheduled()
    name = f"demo-{last:%Y%m%d%H%M}"
    assert stage.names() == [name]
    assert stage.kube.status(SCHEDULE, "demo")["lastBackup"] == name
    stage.pass_time(24 * 3600)
    await stage.scheduled()
    assert stage.names() == [name]  # the one before has not ended
    await _end(stage, name)
    await stage.scheduled()
    assert len(stage.names()) == 2
    assert stage.kube.status(SCHEDULE, "demo")["lastSucceeded"] == name


async def test_suspended_and_old_ones(stage: Backups) -> None:
    retention = {"keep": 2, "days": 0}
    stage.kube.put(manifest(SCHEDULE, {"spec.retention": retention}))
    made = []
    for _ in range(4):
        stage.pass_time(24 * 3600)
        await stage.scheduled()
        made.append(next(name for name in stage.names() if name not in made))
        await _end(stage, made[-1])
    stage.kube.objects[SCHEDULE, "mq", "demo"]["spec"]["suspend"] = True
    stage.pass_time(24 * 3600)
    stage.brokers.trouble = lambda what: (
        RetryError("away", delay_s=1) if what == "delete_backup" else None
    )
    await stage.scheduled()
    assert stage.kube.condition(SCHEDULE, "demo") == ("False", "ClusterNotReady")
    stage.brokers.trouble = lambda _: None
    await stage.scheduled()
    assert stage.names() == made[2:]
    assert sorted(stage.brokers.backups) == made[2:]
    assert stage.kube.condition(SCHEDULE, "demo") == ("True", "Suspended")


async def _end(stage: Backups, name: str) -> None:
    await stage.look_often(name)
    stage.brokers.backups[name] = DONE
    await stage.look_often(name)
    assert stage.status(name)["phase"] == "Succeeded"


async def test_a_bucket_that_is_away_is_not_called_brokers(stage: Backups) -> None:
    stage.made()
    away = RetryError("GET http://10.1.2.3:8080/x: 503 s3://b: it has not answered", delay_s=1)
    stage.brokers.trouble = lambda _: away
    await stage.look()
    [said] = stage.status()["conditions"]
    assert (said["reason"], said["message"]) == (
        "BackupFailed", "It is tried again: 503 s3://b: it has not answered"
    )  # fmt: skip
