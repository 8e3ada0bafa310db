"""The active twin of each hot module: compiled where it was built, else plain Python.

Both give the same results and errors. ``IMAGO_PURE=1`` forces the plain one.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

__all__ = [
    "COMPILED",
    "QueueTail",
    "RecordBuilder",
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


def _compiled_is_usable() -> bool:
    if os.environ.get("IMAGO_PURE") == "1":
        return False
    try:
        for name in ("_text_c", "_record_c", "_scan_c", "_remoting_c"):
            importlib.import_module(f"imago_wire.{name}")
    except ImportError:
        return False
    return True


COMPILED: bool = _compiled_is_usable()
"""Whether the compiled twins serve."""

# The types are those of the reference: the twins have the same interface.
if TYPE_CHECKING or not COMPILED:
    from imago_wire._record_py import QueueTail, RecordBuilder, make_entry, metaq_entry
    from imago_wire._remoting_py import (
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
else:
    from imago_wire._record_c import QueueTail, RecordBuilder, make_entry, metaq_entry
    from imago_wire._remoting_c import (
        encode_send_response,
        find_each,
        join_message_ids,
        scan_batch,
        scan_frames,
    )
    from imago_wire._scan_c import (
        key_entries,
        metaq_block,
        metaq_form,
        scan_records,
        view_record,
    )
    from imago_wire._text_c import encode_put_results, scan_text
