"""The active twin of each hot module: compiled where it was built, else plain Python.

Both give the same results and errors. ``IMAGO_PURE=1`` forces the plain one. It also serves where a
compiled module is missing, or lacks a name because it was built from older sources.
"""

from __future__ import annotations

import importlib
import os

# The reference comes first: it is what type checkers see, and what stays where nothing is compiled.
from imago_wire._record_py import (
    QueueTail,
    RecordBuilder,
    entries_size_max,
    make_entries,
    make_entry,
    metaq_entry,
)
from imago_wire._scan_py import (
    fitting_units,
    gather_records,
    index_records,
    key_entries,
    metaq_block,
    metaq_form,
    metaq_whole,
    queue_records,
    scan_records,
    view_record,
    whole_records,
)
from imago_wire.remoting._remoting_py import (
    answer_sends,
    answer_stored,
    encode_send_response,
    find_each,
    join_message_ids,
    plain_send,
    scan_batch,
    scan_frames,
    scan_plain_batch,
    take_sends,
)
from imago_wire.text._text_py import encode_put_results, scan_text, take_puts

__all__ = [
    "COMPILED",
    "QueueTail",
    "RecordBuilder",
    "answer_sends",
    "answer_stored",
    "encode_put_results",
    "encode_send_response",
    "entries_size_max",
    "find_each",
    "fitting_units",
    "gather_records",
    "index_records",
    "join_message_ids",
    "key_entries",
    "make_entries",
    "make_entry",
    "metaq_block",
    "metaq_entry",
    "metaq_form",
    "metaq_whole",
    "plain_send",
    "queue_records",
    "scan_batch",
    "scan_frames",
    "scan_plain_batch",
    "scan_records",
    "scan_text",
    "take_puts",
    "take_sends",
    "view_record",
    "whole_records",
]


def _compiled_twins() -> dict[str, object]:
    """Return the compiled object of every hot name, or nothing where one is missing."""
    if os.environ.get("IMAGO_PURE") == "1":
        return {}
    found: dict[str, object] = {}
    try:
        for part in ("text._text_c", "_record_c", "_scan_c", "remoting._remoting_c"):
            found |= vars(importlib.import_module(f"imago_wire.{part}"))
        return {name: found[name] for name in __all__ if name != "COMPILED"}
    except (ImportError, KeyError):
        return {}


_twins = _compiled_twins()
globals().update(_twins)

COMPILED: bool = bool(_twins)
"""Whether the compiled twins serve."""
