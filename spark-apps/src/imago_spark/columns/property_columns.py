"""The properties of many records at once: selected values as columns, or all of them as maps.

Property strings alternate name, byte 1, value, byte 2, and contain these bytes nowhere else, so one
search splits all strings of a column. If any string has another form (some clients write them),
the whole column is parsed one by one: slower, with the same result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from imago_spark.columns.gather import as_text, rows_at
from imago_wire.record_format import properties as names

if TYPE_CHECKING:
    from imago_spark.columns.gather import Borders, Bytes, Flags, Longs

_NAME_END: Final = 1
_VALUE_END: Final = 2
_POSITION_DIGITS: Final = 16
_POSITION: Final = re.compile(r"[0-9A-Fa-f]{16}")


class Properties(Protocol):
    """The properties of a column of records."""

    def text(self, name: str) -> pa.Array:
        """Return the values of one property as strings, null where a record has none."""

    def maps(self) -> pa.Array:
        """Return all public properties as maps."""

    def metaq_offsets(self) -> pa.Array:
        """Return the MetaQ positions, null where a record has none."""


def read_properties(strings: pa.Array) -> Properties:
    """Return the properties of a binary column of property strings."""
    table = PropertyTable.of(strings)
    if table is None:
        return ParsedProperties(strings)
    return table


class PropertyTable:
    """Every property of the column: where its name and its value begin and end."""

    def __init__(self, strings: pa.Array, data: Bytes, borders: Longs, marks: Longs) -> None:
        self._strings, self._data, self._borders = strings, data, borders
        self._count = len(borders) - 1
        self._name_end, self._value_end = marks[0::2], marks[1::2]
        self._name_at = np.empty_like(self._name_end)
        if len(self._name_at):
            self._name_at[0] = borders[0]
            self._name_at[1:] = self._value_end[:-1] + 1
        self._name_size = self._name_end - self._name_at
        self._first = np.searchsorted(self._value_end, borders)
        """Number of each record's first property, and the number of properties at the end."""
        self._stride = self._common_count()

    @classmethod
    def of(cls, strings: pa.Array) -> PropertyTable | None:
        """Return the table of a column, None if some string has another form."""
        _, offsets, buffer = strings.buffers()
        borders = np.frombuffer(offsets, dtype=np.int32)[
            strings.offset : strings.offset + len(strings) + 1
        ].astype(np.int64)
        if buffer is None or not borders[-1]:
            return None
        data = np.frombuffer(buffer, dtype=np.uint8)[: int(borders[-1])]
        # An empty string looks at its neighbour's end here, or, at the front, at the last byte.
        if (data[borders[1:] - 1] != _VALUE_END).any():
            return None
        marks = np.flatnonzero(data - np.uint8(_NAME_END) < 2)  # bytes 1 and 2; 0 wraps to 255
        kinds = data[marks]
        if len(marks) % 2 or (kinds[0::2] != _NAME_END).any() or (kinds[1::2] != _VALUE_END).any():
            return None
        return cls(strings, data, borders, marks)

    def text(self, name: str) -> pa.Array:
        chosen = self._chosen(name.encode())
        has = chosen >= 0
        borders = np.empty(2 * self._count + 1, dtype=np.int32)
        # A record without the property gets an empty piece at its own beginning.
        borders[0:-1:2] = np.where(has, self._name_end[chosen] + 1, self._borders[:-1])
        borders[1::2] = np.where(has, self._value_end[chosen], self._borders[:-1])
        borders[-1] = self._borders[-1]
        every_second = pa.array(np.arange(0, 2 * self._count, 2), mask=~has)
        return as_text(self._pieces(borders).take(every_second))

    def maps(self) -> pa.Array:
        total = len(self._name_at)
        borders = np.empty(4 * total + 1, dtype=np.int32)
        borders[0:-1:4] = self._name_at
        borders[1::4] = self._name_end
        borders[2::4] = self._name_end + 1
        borders[3::4] = self._value_end
        borders[-1] = self._borders[-1]
        kept, first = self._not_reserved()
        pieces = self._pieces(borders)
        keys = as_text(pieces.take(pa.array(4 * kept)))
        if self._repeat(kept, keys):
            return ParsedProperties(self._strings).maps()
        values = as_text(pieces.take(pa.array(4 * kept + 2)))
        return pa.MapArray.from_arrays(pa.array(first.astype(np.int32)), keys, values)

    def metaq_offsets(self) -> pa.Array:
        chosen = self._chosen(names.METAQ_POS.encode())
        value_at, value_end = self._name_end[chosen] + 1, self._value_end[chosen]
        has = (chosen >= 0) & (value_end - value_at == _POSITION_DIGITS)
        digits = rows_at(self._data, value_at[has], _POSITION_DIGITS)
        positions = np.zeros(self._count, dtype=np.int64)
        positions[has], is_number = hexadecimal(digits)
        has[has] = is_number
        return pa.array(positions, mask=~has)

    def _chosen(self, name: bytes) -> Longs:
        """Return the index of each record's last property of this name, -1 for none."""
        if self._stride:
            regular = self._regular(name)
            if regular is not None:
                return regular
        alike = np.flatnonzero(self._name_size == len(name))
        found = alike[self._names_are(name, alike)]
        chosen = np.full(self._count, -1, dtype=np.int64)
        record = np.searchsorted(self._first, found, side="right") - 1
        chosen[record] = found
        return chosen

    def _regular(self, name: bytes) -> Longs | None:
        """Return the same if all records have the property in one place, as one producer's do.

        None: they do not.
        """
        chosen = None
        for place in np.flatnonzero(self._name_size[: self._stride] == len(name)).tolist():
            numbers = np.arange(place, len(self._name_size), self._stride)
            matches = self._names_are(name, numbers)
            if matches.all():
                chosen = numbers
            elif matches.any():
                return None
        return chosen

    def _names_are(self, name: bytes, numbers: Longs) -> Flags:
        rows = rows_at(self._data, self._name_at[numbers], len(name))
        matches: Flags = rows.view(f"S{len(name)}").ravel() == name
        return matches

    def _common_count(self) -> int:
        """Return the number of properties of each record; 0 if it, or a name's size, differs."""
        counts = np.diff(self._first)
        count = int(counts[0])
        if not count or (counts != count).any():
            return 0
        sizes = self._name_size.reshape(-1, count)
        return count if (sizes == sizes[0]).all() else 0

    def _not_reserved(self) -> tuple[Longs, Longs]:
        """Return the indices of the public properties, and the first one of each record."""
        keep = self._name_size > 0
        for name in names.RESERVED:
            chosen = self._chosen(name.encode())
            keep[chosen[chosen >= 0]] = False
        kept = np.flatnonzero(keep)
        return kept, np.searchsorted(kept, self._first)

    def _repeat(self, kept: Longs, keys: pa.Array) -> bool:
        """Whether some record has two properties of one name: a map may not."""
        encoded = keys.dictionary_encode()
        kinds = len(encoded.dictionary)
        record = np.searchsorted(self._first, kept, side="right") - 1
        seen = np.sort(record * kinds + encoded.indices.to_numpy())
        return bool((seen[1:] == seen[:-1]).any())

    def _pieces(self, borders: Borders) -> pa.Array:
        return pa.Array.from_buffers(
            pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(self._data)]
        )


def hexadecimal(digits: Bytes) -> tuple[Longs, Flags]:
    """Return rows of 16 hexadecimal digits as numbers, and which rows are such, below 2**63."""
    decimal = digits - np.uint8(ord("0"))  # whatever is below wraps to far above
    letter = (digits | np.uint8(0x20)) - np.uint8(ord("a"))
    is_decimal, is_letter = decimal < 10, letter < 6
    values = np.where(is_decimal, decimal, letter + np.uint8(10))
    numbers = (values[:, 0::2] << 4 | values[:, 1::2] & 15).view(">i8").ravel().astype(np.int64)
    are_digits: Flags = np.logical_and.reduce(is_decimal | is_letter, axis=1)
    return numbers, are_digits & (numbers >= 0)  # a larger one would be another, below zero


class ParsedProperties:
    """The same properties; each string is parsed by itself."""

    def __init__(self, strings: pa.Array) -> None:
        self._all = [names.decode(string) for string in strings.to_pylist()]

    def text(self, name: str) -> pa.Array:
        return pa.array([one.get(name) for one in self._all], type=pa.string())

    def maps(self) -> pa.Array:
        kept = [
            [(name, value) for name, value in one.items() if name not in names.RESERVED]
            for one in self._all
        ]
        return pa.array(kept, type=pa.map_(pa.string(), pa.string()))

    def metaq_offsets(self) -> pa.Array:
        return pa.array([_position(one.get(names.METAQ_POS)) for one in self._all], type=pa.int64())


def _position(text: str | None) -> int | None:
    if text is None or _POSITION.fullmatch(text) is None:
        return None
    number = int(text, 16)
    return number if number < 1 << 63 else None
