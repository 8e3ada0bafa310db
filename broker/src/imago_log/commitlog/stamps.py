"""The newest store time and MetaQ id in the log: neither ever goes back."""

from __future__ import annotations


class LogStamps:
    """What the next record must not be below."""

    __slots__ = ("metaq_id", "store_ms")

    def __init__(self) -> None:
        self.store_ms = 0
        """Newest store timestamp in the log."""
        self.metaq_id = 0
        """Highest MetaQ id in the log."""

    def begin(self, store_ms: int, metaq_id: int) -> None:
        """Take over what recovery has found."""
        self.store_ms, self.metaq_id = store_ms, metaq_id

    def observe(self, store_ms: int, metaq_id: int) -> None:
        """Take over those of records just written."""
        if store_ms > self.store_ms:
            self.store_ms = store_ms
        if metaq_id > self.metaq_id:
            self.metaq_id = metaq_id
