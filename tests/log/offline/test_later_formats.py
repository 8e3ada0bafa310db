"""A folder that a later version wrote is refused by name, and nothing in it is changed."""

from __future__ import annotations

import shutil
from struct import pack, pack_into
from typing import TYPE_CHECKING

import pytest

from imago_log.commitlog import checkpoint
from imago_log.errors import LaterFormatError
from imago_log.offline.check import check
from imago_testing.stores.on_disk import content_of, make_files, open_files
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _slot(at: int) -> Callable[[Path], None]:
    """One slot as the first write of a later version leaves it; the other is of ours."""

    def write(data: Path) -> None:
        content = bytearray((data / "checkpoint").read_bytes())
        pack_into(">H", content, at + 4, checkpoint.VERSION + 1)
        end = at + checkpoint.SLOT_SIZE - 4
        pack_into(">I", content, end, crc31(bytes(content[at:end])))
        (data / "checkpoint").write_bytes(content)

    return write


def _json(name: str, content: bytes) -> Callable[[Path], None]:
    def write(data: Path) -> None:
        (data / name).write_bytes(b"%010d\n%b\n" % (crc31(content), content))

    return write


def _text(name: str, content: bytes) -> Callable[[Path], None]:
    def write(data: Path) -> None:
        (data / name).write_bytes(content)

    return write


LATER = {
    "the folder": ("format", _text("format", b"2\n")),
    "the folder, in words": ("format", _text("format", b"next\n")),
    "a checkpoint's first slot": ("checkpoint", _slot(0)),
    "a checkpoint's second slot": ("checkpoint", _slot(checkpoint.SLOT_SIZE)),
    "metadata": ("metadata.json", _json("config/metadata.json", b'{"format":2,"more":{}}')),
    "damage": ("damage", _json("config/damage", b'{"format":2,"parts":[]}')),
    "views": ("views", _text("config/views", b"2\n")),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "data"
    make_files(folder)
    return folder


@pytest.mark.parametrize("what", LATER)
def test_a_later_version_is_refused_and_left_alone(what: str, whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    name, write = LATER[what]
    write(data)
    before = content_of(data)
    with pytest.raises(LaterFormatError, match=f"{name} has format .* reads up to"):
        open_files(data)
    with pytest.raises(LaterFormatError, match=name):
        list(check(data))
    assert content_of(data) == before


def test_the_same_number_opens(whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    (data / "format").write_bytes(b"1\n")
    open_files(data).close()


def test_a_flipped_version_is_damage_and_no_later_one(whole: Path, tmp_path: Path) -> None:
    data = shutil.copytree(whole, tmp_path / "data")
    for name, at in (("checkpoint", 5), ("config/metadata.json", 21)):
        content = bytearray((data / name).read_bytes())
        content[at] ^= 8
        (data / name).write_bytes(content)
    assert b'"format":9' in (data / "config/metadata.json").read_bytes()
    store = open_files(data)
    assert store.topics()
    store.close()
    assert pack(">H", checkpoint.VERSION) == (data / "checkpoint").read_bytes()[4:6]
