"""Every damage changes the files of a stopped broker, and the same seed does the same."""

from __future__ import annotations

import random
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.chaos.cluster.damages import DAMAGES, NothingThereError
from imago_testing.chaos.cluster.faults import FAULTS
from imago_testing.chaos.cluster.file_faults import damage

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 4096
SEEDS = range(3)


def data_folder(root: Path) -> Path:
    """A folder with the names of a broker's; the last file of the log was made ahead."""
    rng = random.Random(1)
    data = root / "data"
    for number in range(4):
        write(
            data / "commitlog" / f"{number * SEGMENT_BYTES:020d}",
            rng.randbytes(SEGMENT_BYTES if number < 3 else 1000).ljust(SEGMENT_BYTES, b"\0"),
        )
    write(data / "commitlog" / f"{4 * SEGMENT_BYTES:020d}", bytes(SEGMENT_BYTES))
    for name in (
        "consumequeue/t/0/0",
        "consumequeue_v/t/0/0",
        "index/0",
        "metaq/t-0/0",
        "config/metadata.json",
    ):
        write(data / name, rng.randbytes(300))
    for name in ("checkpoint", "epochFileCheckpoint", "uuid"):
        write(data / name, rng.randbytes(40))
    return data


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def files(data: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_done_and_the_same_seed_does_the_same(name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        after = []
        for turn in ("one", "other"):
            data = data_folder(tmp_path / f"{turn}{seed}")
            before = files(data)
            told = DAMAGES[name](data, random.Random(seed))
            assert files(data) != before
            after.append((told, files(data)))
        assert after[0] == after[1]


def test_newest_file_of_the_log_is_the_one_that_holds_the_last_records(tmp_path: Path) -> None:
    data = data_folder(tmp_path)
    newest, ahead = (f"commitlog/{number * SEGMENT_BYTES:020d}" for number in (3, 4))
    before = files(data)
    DAMAGES["zero_tail"](data, random.Random(1))
    after = files(data)
    assert after[newest].startswith(before[newest].rstrip(b"\0")[:1])
    assert after[newest].rstrip(b"\0") < before[newest].rstrip(b"\0")
    DAMAGES["remove_newest_segment"](data, random.Random(1))
    assert set(before) - set(files(data)) == {newest}
    assert ahead in files(data)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("noise_behind_metaq", "metaq"),
        ("garble_metaq", "metaq"),
        ("remove_metaq", "metaq"),
        ("garble_keys", "index"),
        ("remove_queues", "consumequeue"),
        ("garble_epochs", "epochFileCheckpoint"),
        ("remove_identity", "uuid"),
    ],
)
def test_damage_says_when_there_is_nothing_to_damage(name: str, gone: str, tmp_path: Path) -> None:
    data = data_folder(tmp_path)
    if (data / gone).is_dir():
        shutil.rmtree(data / gone)
    else:
        (data / gone).unlink()
    before = files(data)
    with pytest.raises(NothingThereError, match=gone):
        DAMAGES[name](data, random.Random(1))
    assert files(data) == before


async def test_a_fault_looks_for_something_to_damage_and_says_where_there_is_nothing(
    tmp_path: Path,
) -> None:
    data = data_folder(tmp_path)
    shutil.rmtree(data / "index")
    shard: Any = SimpleNamespace(idle=[])
    member: Any = SimpleNamespace(name="b1", data=data)
    await damage(shard, member, ["garble_keys", "garble_queue"], random.Random(1))
    assert shard.idle == []
    await damage(shard, member, ["garble_keys"], random.Random(1))
    assert shard.idle == ["b1 garble_keys: no file in index"]


def test_every_damage_is_a_fault_of_the_cluster() -> None:
    assert set(DAMAGES) <= set(FAULTS)


@pytest.mark.parametrize("name", [name for name in DAMAGES if name.startswith("noise_")])
def test_noise_behind_the_end_leaves_what_is_written(name: str, tmp_path: Path) -> None:
    data = data_folder(tmp_path)
    before = files(data)
    DAMAGES[name](data, random.Random(5))
    changed = {path for path, content in files(data).items() if content != before[path]}
    (path,) = changed
    assert files(data)[path].startswith(before[path].rstrip(b"\0"))
