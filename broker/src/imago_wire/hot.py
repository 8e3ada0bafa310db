"""The active twin of each hot module: compiled where it was built, else plain Python.

Both give the same results and errors. ``IMAGO_PURE=1`` forces the plain one. It also serves where a
compiled module is missing, or lacks a name because it was built from older sources.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

__all__ = [
    "COMPILED",
    "QueueTail",
    "RecordBuilder",
    "answer_stored",
    "encode_put_results",
    "encode_send_response",
    "find_each",
    "join_message_ids",
    "key_entries",
    "make_entry",
    "metaq_block",
    "metaq_entry",
    "metaq_form",
    "scan_batch",
    "scan_frames",
    "scan_records",
    "scan_text",
    "view_record",
]


# The types are those of the reference: the twins have the same interface.
if TYPE_CHECKING:
    from imago_wire._record_py import QueueTail, RecordBuilder, make_entry, metaq_entry
    from imago_wire._remoting_py import (
        answer_stored,
        encode_send_response,
        find_each,
        join_message_ids,
        scan_batch,
        scan_frames,
    )
    from imago_wire._scan_py import (
        key_entries,
        metaq_block,
        metaq_form,
        scan_records,
        view_record,
    )
    from imago_wire._text_py import encode_put_results, scan_text

    COMPILED: bool
    """Whether the compiled twins serve."""
else:

    def _twins(suffix):
        """Return all hot names but COMPILED, out of the modules with this suffix."""
        modules = [
            importlib.import_module(f"imago_wire.{part}{suffix}")
            for part in ("_text", "_record", "_scan", "_remoting")
        ]
        found = {}
        for name in __all__[1:]:
            found[name] = next(vars(module)[name] for module in modules if name in vars(module))
        return found

    COMPILED = os.environ.get("IMAGO_PURE") != "1"
    if COMPILED:
        try:
            globals().update(_twins("_c"))
        except (ImportError, StopIteration):
            COMPILED = False
    if not COMPILED:
        globals().update(_twins("_py"))
