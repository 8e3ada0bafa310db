"""What a backup holds comes back: messages, metadata, MetaQ's positions; and nothing else does."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from imago_backup import format as layout
from imago_backup import shelf
from imago_backup.errors import BackupError, BackupUnknownError, RestoreRefusedError
from imago_cli.backups.command import verify
from imago_log.offline.check import Severity, check
from imago_testing.stores.backups import SHARD, back_up, open_restored, restore
from imago_testing.stores.in_memory import Model
from imago_testing.stores.on_disk import PLAIN, fill, open_files

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log import MessageStore
    from imago_testing.stores.backups import FakeBucket
    from imago_testing.stores.in_memory import FakeClock


async def test_everything_below_the_cut_comes_back(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    model = fill(store, 20, clock)
    end = store.log_end
    offsets = {PLAIN: {"readers": {"0": 80}}}
    await back_up(store, bucket, "first", clock, offsets=offsets, tier_url="s3://old/messages")
    backup = await shelf.manifest_of(bucket, "first")
    assert not backup.shards[SHARD].lacks, "its disk still had all of the log"
    fill(store, 3, clock, Model(serial=500))  # behind the cut
    restored = await restore(bucket, "first", tmp_path / "new")
    assert restored.end == end
    assert {each.severity for each in check(tmp_path / "new")} == {Severity.NOTE}
    again = open_restored(tmp_path / "new", clock)
    assert (again.log_start, again.log_end) == (store.log_start, end)
    model.check(again)
    assert again.meta("offset") == {f"group@{PLAIN}/0": 18, f"group@{PLAIN}/1": 19}
    assert again.incarnation(PLAIN) == store.incarnation(PLAIN)
    fill(again, 5, clock, model)  # it goes on
    model.check(again)
    again.close()
    assert list(check(tmp_path / "new")) == []
    told = json.loads((tmp_path / "new/config/restored-offsets").read_text())
    assert told == {PLAIN: {"readers": {"0": 80}}}


@pytest.mark.parametrize("lead", [True, False], ids=["alone", "a member"])
async def test_a_restored_folder_is_no_suspect(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path, lead: bool
) -> None:
    fill(store, 5, clock)
    await back_up(store, bucket, "first", clock)
    await restore(bucket, "first", tmp_path / "new")
    again = open_restored(tmp_path / "new", clock, lead=lead)
    assert not again.unclean
    assert not again.damaged
    assert again.epoch_seen >= store.epoch_seen
    assert again.high_watermark == again.log_end
    again.close()


async def test_a_deleted_topic_is_back_as_of_a_moment_before(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    model = fill(store, 12, clock)
    before_ms = clock.now_ms
    clock.now_ms += 1000
    store.delete_topic(PLAIN)
    fill(store, 2, clock, Model(serial=700))
    await back_up(store, bucket, "late", clock)
    await restore(bucket, "late", tmp_path / "now")
    again = open_restored(tmp_path / "now", clock)
    assert again.queue_range(PLAIN, 0)[1] == 2  # the new topic of that name
    again.close()
    restored = await restore(bucket, "late", tmp_path / "then", until_ms=before_ms)
    assert restored.newest_ms <= before_ms
    then = open_restored(tmp_path / "then", clock)
    model.check(then)
    assert then.queue_range(PLAIN, 0)[1] == 12
    assert then.newest_ms <= before_ms
    then.close()


async def test_each_point_in_time_is_a_border(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    begun_ms = clock.now_ms
    model = fill(store, 15, clock)
    await back_up(store, bucket, "first", clock)
    for number in range(0, 15, 3):
        until_ms = begun_ms + 400 * number + 100
        folder = tmp_path / f"at-{number}"
        end = (await restore(bucket, "first", folder, until_ms=until_ms)).end
        part = Model(sent=list(model.sent))
        part.cut(end)
        assert len(part.sent) == 4 * (number + 1)
        again = open_restored(folder, clock)
        part.check(again)
        again.close()
        assert list(check(folder)) == []
    with pytest.raises(RestoreRefusedError, match="no record that old"):
        await restore(bucket, "first", tmp_path / "early", until_ms=begun_ms - 1)
    assert not (tmp_path / "early").exists()


async def test_later_backups_share_what_is_sealed(
    store: MessageStore,
    clock: FakeClock,
    bucket: FakeBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 1024)
    model = fill(store, 20, clock)
    whole = await back_up(store, bucket, "one", clock)
    assert whole.progress.done == whole.progress.total == store.log_end
    fill(store, 2, clock, model)
    later = await back_up(store, bucket, "two", clock)
    new = later.progress.total - whole.progress.total
    assert new <= later.progress.sent < new + 1024  # what is new, and the rest of a chunk
    chunks = len(await bucket.list("chunks"))
    again = await back_up(store, bucket, "three", clock)
    assert again.progress.sent == 0
    assert len(await bucket.list("chunks")) == chunks
    for name in ("one", "two", "three"):
        await restore(bucket, name, tmp_path / name)
    last = open_restored(tmp_path / "three", clock)
    model.check(last)
    last.close()


async def test_what_was_sent_of_the_same_log_is_not_read_again(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 1024)
    fill(store, 20, clock)
    await back_up(store, bucket, "one", clock)
    read: list[int] = []
    from imago_backup import uploading

    real = uploading.read_chunk

    def counting(path: Path, offset: int, *rest: int) -> object:
        read.append(offset)
        return real(path, offset, *rest)

    monkeypatch.setattr(uploading, "read_chunk", counting)
    await back_up(store, bucket, "two", clock)
    assert read == []
    await back_up(store, bucket, "three", clock, cluster_id="a restored cluster")
    assert read[0] == 0  # its epochs may be those of another history
    assert len(read) * 1024 >= store.log_end


@pytest.mark.parametrize("tier_url", ["", "s3://old/messages"])
async def test_old_files_may_go_meanwhile(
    tmp_path: Path,
    clock: FakeClock,
    bucket: FakeBucket,
    capsys: pytest.CaptureFixture[str],
    tier_url: str,
) -> None:
    store = open_files(tmp_path / "running", clock)
    model = fill(store, 20, clock)
    begin = store.log_start

    def delete(call: str, name: str) -> None:
        if call == "put" and name.startswith("chunks/") and store.log_start == begin:
            store.components.deleter._begin_log_at(3 * 4096)

    bucket.before = delete
    await back_up(store, bucket, "first", clock, tier_url=tier_url)
    assert store.log_start == 3 * 4096
    summary = (await shelf.manifest_of(bucket, "first")).shards[SHARD]
    assert (tier_url in summary.lacks, bool(summary.lacks)) == (True, bool(tier_url))
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(verify, f"file://{tmp_path}/bucket", "first")
    assert not ended.value.code, "what it has is whole"
    assert (f"only {tier_url} has" in capsys.readouterr().err) == bool(tier_url)
    restored = await restore(bucket, "first", tmp_path / "new")
    assert restored.end == store.log_end  # and so has what was said again of the old files
    again = open_restored(tmp_path / "new", clock)
    assert again.log_start == 3 * 4096
    assert again.topics() == store.topics()
    assert again.meta("offset") == store.meta("offset")
    assert again.queue_range(PLAIN, 0) == store.queue_range(PLAIN, 0)
    assert model.sent
    again.close()
    store.close()


async def test_a_backup_is_one_when_all_of_it_is_there(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket
) -> None:
    fill(store, 10, clock)

    def die(call: str, name: str) -> None:
        if name == "backups/first/shard-0" and call == "put_if_absent":
            raise KeyboardInterrupt

    bucket.before = die
    with pytest.raises(KeyboardInterrupt):
        await back_up(store, bucket, "first", clock)
    with pytest.raises(BackupUnknownError, match="not complete"):
        await shelf.manifest_of(bucket, "first")
    bucket.before = lambda *_: None
    resumed = await back_up(store, bucket, "first", clock)
    assert resumed.progress.sent == 0
    manifest = await shelf.manifest_of(bucket, "first")
    assert manifest.shards["shard-0"].end == store.log_end
    with pytest.raises(BackupUnknownError, match="unknown"):
        await shelf.manifest_of(bucket, "second")


@pytest.mark.parametrize("name", ["", "-a", "a/b", "A", "a" * 64, ".."])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BackupError, match="no name of a backup"):
        layout.check_name(name)
    assert layout.check_name("a" * layout.NAME_CHARS_MAX)
