"""The active twins of what reads MetaQ's commands and answers its puts."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.text._text_py import encode_put_results, scan_text, take_puts

__all__ = ["encode_put_results", "scan_text", "take_puts"]

# Its entries are made by the compiled module of records, for that one's builder.
globals().update(
    compiled_twins("imago_wire.text._text_c", __all__, needs=["imago_wire.records._record_c"])
)
