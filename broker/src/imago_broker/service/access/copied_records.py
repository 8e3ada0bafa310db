"""Users and rules where there is no log: a copy in memory of what some broker's log has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.service.access.access_records import checked_record
from imago_wire.errors import WrongKindError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from imago_broker.service.access.access_records import Record, Signalled

Key = tuple[str, str]


class _Listeners(list["Callable[[Iterable[Key]], None]"]):
    add = list.append


class CopiedRecords:
    """What `AccessService` reads. The broker writes it, not the service."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Any]] = {}
        self._listeners = _Listeners()

    @property
    def on_metadata(self) -> Signalled:
        """Told the keys of what has changed."""
        return self._listeners

    def meta(self, kind: str) -> Mapping[str, Any]:
        """Return the values of a kind."""
        return self._values.get(kind, {})

    def put_meta(self, changes: Sequence[tuple[str, str, Any]]) -> object:
        """Nobody changes users by a copy."""
        raise WrongKindError(f"a copy takes no changes: {[key for _, key, _ in changes]}")

    def replace(self, records: Iterable[Record]) -> None:
        """Have these records alone. ValueError, KeyError, TypeError: they are none."""
        values: dict[str, dict[str, Any]] = {}
        for record in records:
            kind, key, made, value = checked_record(record)
            values.setdefault(kind, {})[key] = {"made": list(made), "value": value}
        both = (self._values, values)
        changed = {(kind, key) for every in both for kind, keys in every.items() for key in keys}
        self._values = values
        for listener in self._listeners:
            listener(sorted(changed))
