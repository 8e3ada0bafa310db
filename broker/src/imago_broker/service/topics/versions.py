"""How often a table of settings has changed, in the form that RocketMQ's tools compare."""

from __future__ import annotations

from dataclasses import dataclass

from imago_wire.remoting.bodies.config import DataVersion
from imago_wire.remoting.peer import Version


@dataclass(slots=True)
class TableVersion:
    """Counts changes since the start; `changed_ms` is the epoch time of the last one."""

    changed_ms: int
    counter: int = 0

    def bump(self, now_ms: int) -> None:
        """Note a change."""
        self.counter += 1
        self.changed_ms = now_ms

    def body(self, version: int) -> DataVersion:
        """Return it for a client of this version."""
        return DataVersion(
            counter=self.counter,
            timestamp=self.changed_ms,
            state_version=0 if version >= Version.V5_0_0 else None,
        )
