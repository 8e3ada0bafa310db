"""The parts of the demonstration that decide: its records, its comparison, its folder."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import lz4.frame
import orjson
import pytest

from imago_cli.demo.checks import ReadRecords, differences
from imago_cli.demo.command import prepare_folder
from imago_cli.demo.records import RECORDS_MIN, DemoRecord, collect, number_of
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from pathlib import Path


def record(number: int, text: str = "x") -> DemoRecord:
    body = orjson.dumps({"number": number, "text": text})
    return DemoRecord(number, "kind", "key", body)


RECORDS = [record(number) for number in range(5)]


def seen(*records: DemoRecord) -> ReadRecords:
    found = ReadRecords("reader")
    for one in records:
        found.add(one.body)
    return found


def test_reader_that_saw_everything_once_has_no_differences() -> None:
    assert differences(RECORDS, seen(*reversed(RECORDS))) == []


@pytest.mark.parametrize(
    ("got", "why"),
    [
        (seen(*RECORDS[:3]), "reader: 2 records missing, the first is 3"),
        (seen(*RECORDS, RECORDS[0]), "reader: 1 message came twice"),
        (seen(*RECORDS[:4], record(4, "y")), "reader: wrong bodies: 1, the first is 4"),
        (seen(*RECORDS, record(77)), "reader: 1 message that nobody wrote"),
    ],
)
def test_every_difference_is_named(got: ReadRecords, why: str) -> None:
    assert differences(RECORDS, got) == [why]


def test_message_of_somebody_else_is_a_stranger() -> None:
    found = seen(*RECORDS)
    for body in (b"not json", b"[1]", b"{}", b'{"number": "x"}'):
        found.add(body)
    assert differences(RECORDS, found) == ["reader: 4 messages that nobody wrote"]


def test_records_come_from_what_a_debian_machine_holds(tmp_path: Path) -> None:
    put(tmp_path / "var/lib/dpkg/status", b"Package: bash\nVersion: 5\n\nPackage: dash\n")
    lists = lz4.frame.compress(b"Package: zsh\nVersion: 1\n")
    put(tmp_path / "var/lib/apt/lists/deb_Packages.lz4", lists)
    changes = b"bash (2) x; y\n\n  * new\n\n -- A <a@b>  Mon, 01 Jan 2024 00:00:00 +0000\n"
    put(tmp_path / "usr/share/doc/bash/changelog.gz", gzip.compress(changes * 2))
    put(tmp_path / "usr/share/doc/dash/changelog.gz", b"not compressed")
    put(tmp_path / "var/log/dpkg.log", b"2024-01-01 00:00:00 install bash:amd64 <none> 5\nodd\n")
    records = collect(tmp_path)
    kinds = [(one.kind, one.key) for one in records[:6]]
    assert kinds == [
        ("package", "zsh"),
        ("package", "bash"),
        ("package", "dash"),
        ("change", "bash"),
        ("change", "bash"),
        ("dpkg", "bash"),
    ]
    assert len(records) >= RECORDS_MIN
    assert {one.kind for one in records[6:]} == {"python"}
    assert [number_of(one.body) for one in records] == list(range(len(records)))


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_folder_of_an_earlier_run_is_emptied_and_no_other(tmp_path: Path) -> None:
    folder = prepare_folder(tmp_path / "demo")
    (folder / "left").write_text("x")
    assert not (prepare_folder(folder) / "left").exists()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    with pytest.raises(CommandUsageError, match="not of a demonstration"):
        prepare_folder(tmp_path / "precious")
    assert (tmp_path / "precious" / "file").exists()
