"""An effect that fails at each start: the member says so, and begins again where that is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.app.member import reset_member
from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.shard.expendable import needed_for
from imago_broker.core.shard.values import MemberInfo
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.replication.failures import FAILURES_MAX, Failures
from imago_broker.service.puts.put_status import PutStatus
from imago_log.replica.realigning import Realigner
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OK = PutStatus.OK
A, B, C = Member("a", 1), Member("b", 2), Member("c", 3)


async def diverged(tmp_path: Path) -> ShardBrokers:
    """Three members, of which 0 led, has a record of its own, and is dead."""
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    assert await shard.put(0, b"kept") == [OK]
    for number in (1, 2):
        following = shard.shell(number).executor.following
        assert following is not None
        following.close()
    assert await shard.put(0, b"lost", level=Acknowledgement.LEADER) == [OK]
    await shard.kill(0)
    leader = await shard.led()
    assert await shard.put(leader, b"new") == [OK]
    await shard.all_in_sync(1, 2)
    return shard


def failing(folder: Path) -> Callable[[Realigner, int], None]:
    real = Realigner.truncate

    def truncate(realigner: Realigner, end: int) -> None:
        if realigner._folder.root == folder:
            raise ValueError(f"{end} is no record border")
        real(realigner, end)

    return truncate


async def dies(shard: ShardBrokers, folder: Path) -> None:
    """Member 0 is started, and fails, until the next failure is one too many."""
    for count in range(1, FAILURES_MAX):
        await shard.start(0)
        await until(shard.brokers[0].failed.done)
        last = Failures(folder / "failures").last
        assert last is not None
        assert (last.effect, last.kind, last.count) == ("Truncate", "ValueError", count)
        await shard.kill(0)


async def test_a_member_that_fails_at_each_start_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await diverged(tmp_path)
    folder = tmp_path / "member-0"
    uuid = (folder / "uuid").read_text()
    truncate = failing(folder)
    monkeypatch.setattr(Realigner, "truncate", truncate)
    await dies(shard, folder)
    await shard.start(0)
    broker, shell = shard.brokers[0], shard.shell(0)
    await until(lambda: shell.executor.stuck is not None)
    assert not broker.failed.done(), "it does not die again"
    member = broker.member
    assert member is not None
    assert "Truncate failed 3 times, last with ValueError" in member.problems()[0]
    await until(broker.failed.done)
    assert (folder / reset_member.MARK).exists()
    told = [record.problem for record in shard.brokers[1].coordinator.view().members(0)]
    assert any("no record border" in problem for problem in told), "others are told"
    await shard.kill(0)
    await shard.start(0)
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    assert (folder / "uuid").read_text() != uuid, "an empty disk is a new member"
    assert (folder / reset_member.ASIDE / uuid.strip() / "commitlog").is_dir()
    assert not (folder / reset_member.MARK).exists()
    assert shard.brokers[0].member is not None
    assert shard.brokers[0].member.problem == ""
    await shard.close()


async def test_a_log_that_is_needed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await diverged(tmp_path)
    folder = tmp_path / "member-0"
    monkeypatch.setattr(Realigner, "truncate", failing(folder))
    leader = await shard.led()
    await shard.kill(3 - leader)
    await until(lambda: shard.gate(leader).short)
    await dies(shard, folder)
    await shard.start(0)
    await until(lambda: bool(shard.shell(0).needed_for))
    assert shard.shell(0).needed_for == "1 of 2 in-sync members are there"
    member = shard.brokers[0].member
    assert member is not None
    assert "its log is kept: 1 of 2" in member.problems()[0]
    assert not (folder / reset_member.MARK).exists()
    await shard.start(3 - leader)
    await until(shard.brokers[0].failed.done)
    assert (folder / reset_member.MARK).exists()
    await shard.kill(0)
    await shard.close()


@pytest.mark.parametrize(
    ("state", "gone", "damaged", "needed"),
    [
        (ShardState(leader=A, epoch=5, in_sync=(A, B)), "", "", ""),
        (ShardState(leader=A, epoch=5, in_sync=(A, B)), "a", "", "no live leader"),
        (ShardState(epoch=5, in_sync=(A, B)), "", "", "no live leader"),
        (ShardState(leader=A, epoch=5, in_sync=(A, B)), "b", "", "1 of 2 in-sync"),
        (ShardState(leader=A, epoch=5, in_sync=(A, B, C)), "", "", "names this member"),
        (ShardState(leader=A, epoch=5, in_sync=(A,), former=(C,)), "", "", "was before"),
        (ShardState(leader=A, epoch=5, in_sync=(A, B)), "", "a", "damage"),
    ],
)
def test_what_a_log_is_needed_for(state: ShardState, gone: str, damaged: str, needed: str) -> None:
    live = {
        member.uuid: MemberInfo(member.incarnation, damaged=member.uuid == damaged)
        for member in (A, B, C)
        if member.uuid != gone
    }
    found = needed_for(state, live, "c", 2)
    assert needed in found if needed else not found


def test_what_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    for name in ("commitlog", "config"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "uuid").write_text("abc\n")
    reset_member.decide(tmp_path, "a test")
    (tmp_path / reset_member.ASIDE / "older").mkdir(parents=True)
    (tmp_path / reset_member.ASIDE / "abc").mkdir()
    (tmp_path / "config").replace(
        tmp_path / reset_member.ASIDE / "abc" / "config"
    )  # then it crashed
    reset_member.set_aside(tmp_path, ratio_max=1.1)
    assert {path.name for path in tmp_path.iterdir()} == {reset_member.ASIDE, reset_member.LOCK}
    aside = tmp_path / reset_member.ASIDE
    assert {path.name for path in aside.iterdir()} == {"abc"}
    assert {path.name for path in (aside / "abc").iterdir()} == {"commitlog", "config", "uuid"}


def test_what_has_no_room_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "uuid").write_text("abc\n")
    reset_member.decide(tmp_path, "a test")
    reset_member.set_aside(tmp_path, ratio_max=0.0)
    assert {path.name for path in tmp_path.iterdir()} == {reset_member.LOCK}


def test_a_garbled_note_counts_as_none(tmp_path: Path) -> None:
    note = tmp_path / "failures"
    for text in ("", "{", "[]", '{"duty": 1}'):
        note.write_text(text)
        assert Failures(note).last is None
    failures = Failures(note)
    assert failures.add("Truncate", ValueError("x"), 5).count == 1
    assert failures.add("Truncate", ValueError("y"), 6).count == 2
    assert Failures(note).add("Reset", ValueError("y"), 7).count == 1, "another effect"
    failures.clear()
    assert Failures(note).last is None
