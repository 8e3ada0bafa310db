"""A slave outside of the shard that has to have each message before its put is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.puts.put_jobs import PutJob
    from imago_broker.service.puts.put_status import PutStatus
    from imago_wire.records.record import Placed


class Pair(Protocol):
    """Where what was appended is sent to, in its order."""

    @property
    def url(self) -> str:
        """The slave's, as MetaQ writes it."""
        ...

    @property
    def refusal(self) -> PutStatus | None:
        """How puts are answered that must not be appended now; None: they may be."""
        ...

    def forward(self, jobs: Sequence[PutJob], placed: Sequence[Placed]) -> list[PutJob]:
        """Send what was appended; return the jobs such that both sides are waited for."""
        ...
