"""The offline check: nothing on a store that is whole, each damage at its file and place."""

from __future__ import annotations

import shutil
from random import Random
from typing import TYPE_CHECKING

import pytest

from imago_log import DataFolderLockedError, MessageStore
from imago_log.commitlog.checkpoint import SLOT_SIZE
from imago_log.metadata.state import Metadata
from imago_log.offline.check import CheckProgress, Finding, NotADataFolderError, Severity, check
from imago_testing.stores.in_memory import FakeClock, Model, folder_config
from imago_testing.stores.on_disk import (
    FILES,
    PLAIN,
    content_of,
    errors,
    every_file,
    fill,
    flip,
    make_files,
    open_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.stores.in_memory import Sent

SEGMENT = 4096
FIRST = "0" * 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    folder = tmp_path_factory.mktemp("whole") / "shard-0"
    return folder, make_files(folder)


@pytest.fixture
def data(whole: tuple[Path, Model], tmp_path: Path) -> Path:
    """A copy of a store that was closed in order."""
    return shutil.copytree(whole[0], tmp_path / "shard-0")


@pytest.fixture
def sent(whole: tuple[Path, Model]) -> list[Sent]:
    return whole[1].sent


def segment(offset: int) -> str:
    return f"commitlog/{offset - offset % SEGMENT:020d}"


# Whole stores


def test_a_store_closed_in_order_has_no_findings_and_is_not_touched(data: Path) -> None:
    before = content_of(data)
    assert list(check(data)) == []
    assert content_of(data) == before


def test_a_killed_store_has_one_note(tmp_path: Path) -> None:
    make_files(tmp_path, clean=False)
    found = list(check(tmp_path))
    assert [(finding.severity, finding.file.name) for finding in found] == [
        (Severity.NOTE, "abort")
    ]


def test_a_new_store_and_one_opened_again_are_whole(tmp_path: Path) -> None:
    open_files(tmp_path).close()
    assert list(check(tmp_path)) == []
    open_files(tmp_path).close()
    assert list(check(tmp_path)) == []


@pytest.mark.parametrize("rebuilt", [False, True])
def test_retention_deleted_topics_and_rebuilt_views_are_no_damage(
    tmp_path: Path, *, rebuilt: bool
) -> None:
    clock = FakeClock()
    config = folder_config(tmp_path, retention_bytes=5 * SEGMENT)
    store = MessageStore.open(config, clock=clock, threaded=False)
    store.create_topic("quiet", {"name": "quiet"})
    Model().send(store, [("quiet", 0, 20)] * 3)
    fill(store, 25, clock)
    store.delete_topic(FILES)
    fill(store, 25, clock)
    assert store.log_start > 0
    store.close()
    if rebuilt:
        (tmp_path / "config" / "views").unlink()
        MessageStore.open(config, clock=clock, threaded=False).close()
    assert list(check(tmp_path)) == []


def test_the_progress_reaches_the_end_of_the_log(data: Path) -> None:
    seen: list[CheckProgress] = []
    assert list(check(data, progress=seen.append)) == []
    assert {progress.stage for progress in seen} == {"log", "views"}
    assert seen[-1].done == max(progress.done for progress in seen) <= seen[-1].total


def test_a_running_store_is_refused_and_several_checks_go_together(tmp_path: Path) -> None:
    store = open_files(tmp_path)
    with pytest.raises(DataFolderLockedError):
        check(tmp_path)
    store.close()
    first, second = check(tmp_path), check(tmp_path)
    with pytest.raises(DataFolderLockedError):
        open_files(tmp_path)
    assert [*first, *second] == []
    open_files(tmp_path).close()


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADataFolderError):
        check(tmp_path)
    assert list(tmp_path.iterdir()) == []


# The log


def test_a_flipped_bit_in_the_middle_names_record_file_and_byte(
    data: Path, sent: list[Sent]
) -> None:
    hit, behind = sent[30], sent[31]
    flip(data / segment(hit.place), hit.place % SEGMENT + 100)
    file, position, what = errors(data)[0]
    assert (file, position) == (segment(hit.place), hit.place % SEGMENT)
    assert what.startswith(f"record {hit.offset} of {hit.topic}/{hit.queue_id}: checksum")
    assert f"whole records follow at log offset {behind.place}" in what
    assert len(errors(data)) == 1, "units and keys of a record that cannot be read are no errors"


@pytest.mark.parametrize("number", [30, -1])
def test_zeros_over_a_record_are_found(data: Path, sent: list[Sent], number: int) -> None:
    hit = sent[number]
    path = data / segment(hit.place)
    content = bytearray(path.read_bytes())
    at = hit.place % SEGMENT
    content[at : at + hit.end - hit.place] = bytes(hit.end - hit.place)
    path.write_bytes(content)
    assert errors(data)[0][:2] == (segment(hit.place), at)


def test_a_damaged_blank_record_is_found(data: Path, sent: list[Sent]) -> None:
    last = max((one for one in sent if one.place < SEGMENT), key=lambda one: one.end)
    content = (data / segment(0)).read_bytes()
    at = content.rfind(bytes.fromhex("cbd43194")) - 4
    assert at >= last.end
    flip(data / segment(0), at + 3)
    assert errors(data)[0][:2] == (segment(0), at)


def test_damage_at_the_end_is_an_error_where_the_log_was_closed_in_order(
    data: Path, sent: list[Sent]
) -> None:
    end = max(one.end for one in sent)
    names = sorted((data / "commitlog").iterdir())
    content = names[-1].read_bytes().rstrip(b"\0")
    flip(names[-1], len(content) - 5)
    file, position, _ = errors(data)[0]
    assert file == f"commitlog/{names[-1].name}"
    assert position is not None
    assert position >= end % SEGMENT


def test_what_a_power_cut_tore_behind_the_synced_part_is_a_warning(tmp_path: Path) -> None:
    clock = FakeClock()
    store = open_files(tmp_path, clock)
    fill(store, 4, clock)
    store.request_sync()
    store.tick()
    clock.now_ms += 5000
    store.tick()
    model = Model()
    model.send(store, [(PLAIN, 0, 50)])
    model.send(store, [(PLAIN, 0, 50)])
    store.close(clean=False)
    (tmp_path / "abort").write_text("another boot\n")
    flip(tmp_path / segment(model.sent[0].place), model.sent[0].place % SEGMENT + 60)
    found = [one for one in check(tmp_path) if one.severity is not Severity.NOTE]
    assert [one.severity for one in found] == [Severity.WARNING]
    assert found[0].position == model.sent[0].place % SEGMENT


def test_a_missing_segment_is_found(data: Path) -> None:
    (data / segment(2 * SEGMENT)).unlink()
    assert (segment(2 * SEGMENT), None) in [one[:2] for one in errors(data)]


def test_a_missing_first_segment_is_found(data: Path) -> None:
    (data / segment(0)).unlink()
    assert errors(data)[0][:2] == (segment(0), None)


def test_a_segment_of_the_wrong_size_is_found(data: Path) -> None:
    path = data / segment(SEGMENT)
    path.write_bytes(path.read_bytes()[:1000])
    assert errors(data)[0][:2] == (segment(SEGMENT), 1000)


def test_a_segment_of_the_wrong_name_is_found(data: Path) -> None:
    (data / segment(SEGMENT)).rename(data / "commitlog" / f"{SEGMENT + 1:020d}")
    found = [one[:2] for one in errors(data)]
    assert found[0] == (f"commitlog/{SEGMENT + 1:020d}", None)
    assert (segment(SEGMENT), None) in found


def test_a_file_that_is_none_of_the_log_is_a_warning(data: Path) -> None:
    (data / "commitlog" / "notes.txt").write_text("mine")
    assert [(one.severity, one.file.name) for one in check(data)] == [
        (Severity.WARNING, "notes.txt")
    ]


# Views


@pytest.mark.parametrize(
    ("root", "unit_size"),
    [("consumequeue", 20), ("consumequeue_v", 12)],
    ids=["units", "positions"],
)
def test_a_wrong_unit_is_found_at_its_place(data: Path, root: str, unit_size: int) -> None:
    name = f"{root}/{PLAIN}/1/{FIRST}"
    flip(data / name, 7 * unit_size + 7)
    found = errors(data)
    assert [one[:2] for one in found] == [(name, 7 * unit_size)]
    assert found[0][2].startswith("unit 7: ")


@pytest.mark.parametrize(
    ("root", "unit_size"),
    [("consumequeue", 20), ("consumequeue_v", 12)],
    ids=["units", "positions"],
)
def test_a_hole_in_the_units_is_found(data: Path, root: str, unit_size: int) -> None:
    name = f"{root}/{PLAIN}/1/{FIRST}"
    content = bytearray((data / name).read_bytes())
    content[5 * unit_size : 6 * unit_size] = bytes(unit_size)
    (data / name).write_bytes(content)
    assert [one[:2] for one in errors(data)] == [(name, 5 * unit_size)]


@pytest.mark.parametrize("root", ["consumequeue", "consumequeue_v"])
def test_a_missing_unit_file_is_found(data: Path, root: str) -> None:
    name = f"{root}/{FILES}/0/{FIRST}"
    (data / name).unlink()
    assert (name, 0) in [one[:2] for one in errors(data)]


def test_a_queue_that_is_cut_short_is_found(data: Path) -> None:
    name = f"consumequeue/{PLAIN}/0/{FIRST}"
    (data / name).write_bytes((data / name).read_bytes()[: 4 * 20])
    assert errors(data)[0][:2] == (name, 4 * 20)


def test_a_unit_too_many_is_found(data: Path, sent: list[Sent]) -> None:
    name = f"consumequeue/{PLAIN}/0/{FIRST}"
    count = sum((one.topic, one.queue_id) == (PLAIN, 0) for one in sent)
    content = bytearray((data / name).read_bytes())
    content[count * 20 : count * 20 + 20] = content[:20]
    (data / name).write_bytes(content)
    assert (name, count * 20) in [one[:2] for one in errors(data)]


def test_a_unit_file_of_the_wrong_name_is_found(data: Path) -> None:
    path = data / f"consumequeue/{PLAIN}/0/{FIRST}"
    path.rename(path.with_name(f"{20:020d}"))
    assert errors(data)[0][:2] == (f"consumequeue/{PLAIN}/0/{20:020d}", None)


def test_the_folder_of_an_unknown_topic_is_a_note(data: Path) -> None:
    (data / "consumequeue" / "nobody").mkdir()
    assert [(one.severity, one.file.name) for one in check(data)] == [(Severity.NOTE, "nobody")]


@pytest.mark.parametrize("at", [3, 25, 60])
def test_a_damaged_metaq_segment_is_found_at_its_byte(data: Path, at: int) -> None:
    path = sorted((data / "metaq" / f"{FILES}-1").glob("*.meta"))[1]
    flip(path, at)
    found = errors(data)
    assert [one[:2] for one in found] == [(str(path.relative_to(data)), at)]
    assert f"message at position {int(path.stem)}" in found[0][2]


def test_a_missing_metaq_segment_is_found(data: Path) -> None:
    paths = sorted((data / "metaq" / f"{FILES}-0").glob("*.meta"))
    paths[1].unlink()
    assert str(paths[0].relative_to(data)) in [one[0] for one in errors(data)]


def test_metaq_files_that_end_early_are_a_warning(data: Path) -> None:
    path = max((data / "metaq" / f"{FILES}-0").glob("*.meta"))
    size = path.stat().st_size
    assert size
    path.write_bytes(b"")
    (data / "metaq" / f"{FILES}-0" / "origin").write_text(
        (data / "metaq" / f"{FILES}-0" / "origin")
        .read_text()
        .replace(str(int(path.stem) + size), path.stem.lstrip("0"))
    )
    found = list(check(data))
    assert [(one.severity, one.file) for one in found] == [(Severity.WARNING, path)]
    open_files(data).close()
    store = open_files(data)
    Model().send(store, [(FILES, 0, 10)])
    store.close()
    assert list(check(data)) == [], "the next use of the queue has written what was missing"


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_metaq_folder_that_names_no_topic_is_no_error(data: Path, content: bytes) -> None:
    """A power cut leaves one."""
    origin = data / "metaq" / f"{FILES}-0" / "origin"
    origin.write_bytes(content)
    found = [(one.severity, one.file, one.cure[:11]) for one in check(data)]
    assert found == [(Severity.WARNING, origin, "none needed")]
    store = open_files(data)
    Model().send(store, [(FILES, 0, 10)])
    store.close()
    assert list(check(data)) == []


@pytest.mark.parametrize("at", [1, 11], ids=["hash", "offset"])
def test_a_wrong_key_entry_is_found(data: Path, at: int) -> None:
    flip(data / f"index/{FIRST}", 9 * 12 + at)
    assert [one[:2] for one in errors(data)] == [(f"index/{FIRST}", 9 * 12)]


def test_a_key_index_that_is_cut_short_or_gone_is_found(data: Path) -> None:
    path = data / f"index/{FIRST}"
    path.write_bytes(path.read_bytes()[:-12])
    assert errors(data)[0][:2] == (f"index/{FIRST}", path.stat().st_size)
    path.unlink()
    assert errors(data)[0][:2] == (f"index/{FIRST}", None)


# Small files


def test_a_stale_snapshot_is_found(data: Path) -> None:
    path = data / "config" / "metadata.json"
    metadata = Metadata.from_snapshot(path.read_bytes())
    metadata.kind("offset")[f"group@{PLAIN}/0"] = 1
    path.write_bytes(metadata.snapshot())
    file, _, what = errors(data)[0]
    assert file == "config/metadata.json"
    assert what.endswith(f"in 1 values: offset group@{PLAIN}/0")


def test_a_snapshot_of_more_than_the_log_is_found(data: Path) -> None:
    path = data / "config" / "metadata.json"
    path.write_bytes(Metadata.from_snapshot(path.read_bytes()).snapshot_at(10**9))
    assert errors(data)[0][0] == "config/metadata.json"


@pytest.mark.parametrize("name", ["config/metadata.json", "epochFileCheckpoint", "checkpoint"])
def test_a_small_file_that_is_gone_or_damaged_is_found(data: Path, name: str) -> None:
    content = (data / name).read_bytes()
    flip(data / name, min(len(content) - 4, SLOT_SIZE + 30))
    assert name in [one[0] for one in errors(data)]
    (data / name).unlink()
    assert (name, None) in [one[:2] for one in errors(data)]


def test_an_epoch_behind_the_log_is_found(data: Path) -> None:
    from imago_log.commitlog.epochs import encode_epochs

    (data / "epochFileCheckpoint").write_bytes(encode_epochs(((1, 0), (2, 10**9))))
    assert errors(data)[0][0] == "epochFileCheckpoint"


def test_views_that_will_be_built_anew_are_not_looked_at(data: Path) -> None:
    flip(data / f"consumequeue/{PLAIN}/0/{FIRST}", 7)
    (data / "config" / "views").unlink()
    assert [(one.severity, one.file.name) for one in check(data)] == [(Severity.NOTE, "views")]
    open_files(data).close()
    assert list(check(data)) == []


def test_findings_of_one_file_are_bounded(data: Path) -> None:
    path = data / f"consumequeue/{PLAIN}/0/{FIRST}"
    store = open_files(data)
    Model().send(store, [(PLAIN, 0, 20)] * 100)
    store.close()
    content = bytearray(path.read_bytes())
    for unit in range(100):
        content[unit * 20 + 7] ^= 1
    path.write_bytes(content)
    found = list(check(data))
    assert len(found) == 50
    assert found[-1].what == "more is wrong in this file than these 49 findings"


# Anything, anywhere


@pytest.mark.parametrize("seed", [1, 2])
def test_any_flipped_bit_is_found_in_its_file(data: Path, seed: int) -> None:
    rng = Random(seed)
    for path in every_file(data):
        good = path.read_bytes()
        for size in (min(len(good), 600), len(good)):
            at = rng.randrange(size)
            flip(path, at, 1 << rng.randrange(8))
            found: list[Finding] = list(check(data))
            assert path in [one.file for one in found if one.severity is not Severity.NOTE], at
            path.write_bytes(good)
    assert list(check(data)) == []
