"""Whether everybody saw the same: what was written against what each reader got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_cli.demo.records import number_of
from imago_cli.output import counted
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_cli.demo.records import DemoRecord


@dataclass(slots=True)
class ReadRecords:
    """What one reader got, by the number of the record."""

    reader: str
    crcs: dict[int, int] = field(default_factory=dict)
    doubles: int = 0
    strangers: int = 0
    size: int = 0

    def add(self, body: bytes) -> None:
        """Note one message."""
        self.size += len(body)
        try:
            number = number_of(body)
        except ValueError:
            self.strangers += 1
            return
        if number in self.crcs:
            self.doubles += 1
        self.crcs[number] = crc31(body)

    @property
    def count(self) -> int:
        """Messages, doubles and strangers too."""
        return len(self.crcs) + self.doubles + self.strangers


def differences(records: Sequence[DemoRecord], seen: ReadRecords) -> list[str]:
    """Return what is wrong with what a reader got, in sentences; nothing when all is well."""
    written = {record.number: record.crc for record in records}
    found = []
    if missing := [number for number in written if number not in seen.crcs]:
        found.append(
            f"{seen.reader}: {counted(len(missing), 'record')} missing, the first is {missing[0]}"
        )
    if damaged := _damaged(written, seen.crcs):
        found.append(f"{seen.reader}: wrong bodies: {len(damaged)}, the first is {damaged[0]}")
    if unknown := len(set(seen.crcs) - set(written)) + seen.strangers:
        found.append(f"{seen.reader}: {counted(unknown, 'message')} that nobody wrote")
    if seen.doubles:
        found.append(f"{seen.reader}: {counted(seen.doubles, 'message')} came twice")
    return found


def _damaged(written: Mapping[int, int], crcs: Mapping[int, int]) -> list[int]:
    return [number for number, crc in crcs.items() if written.get(number, crc) != crc]
