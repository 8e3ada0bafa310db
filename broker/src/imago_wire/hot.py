"""The active twin of each hot function: compiled where it was built, else plain Python.

Both give the same results and errors. :mod:`imago_wire.compiled` says which serves.
"""

from __future__ import annotations

from typing import Final

from imago_wire import compiled
from imago_wire.record_twins import (
    QueueTail,
    RecordBuilder,
    entries_size_max,
    fitting_units,
    gather_records,
    index_records,
    key_entries,
    make_entries,
    make_entry,
    metaq_block,
    metaq_entry,
    metaq_form,
    metaq_records,
    metaq_whole,
    near_units,
    numbered_records,
    queue_records,
    restore_half,
    restore_records,
    scan_records,
    view_record,
    whole_records,
)
from imago_wire.remoting.twins import (
    Half,
    answer_done,
    answer_ends,
    answer_pull,
    answer_sends,
    answer_stored,
    close_halves,
    encode_send_response,
    find_each,
    join_message_ids,
    mark_texts,
    may_be_end,
    may_send,
    open_halves,
    plain_pull,
    plain_send,
    restore_halves,
    scan_batch,
    scan_frames,
    scan_plain_batch,
    signer,
    take_ends,
    take_sends,
)
from imago_wire.text.twins import encode_put_results, scan_text, take_puts

__all__ = [
    "COMPILED",
    "MISSING",
    "Half",
    "QueueTail",
    "RecordBuilder",
    "answer_done",
    "answer_ends",
    "answer_pull",
    "answer_sends",
    "answer_stored",
    "close_halves",
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
    "mark_texts",
    "may_be_end",
    "may_send",
    "metaq_block",
    "metaq_entry",
    "metaq_form",
    "metaq_records",
    "metaq_whole",
    "near_units",
    "numbered_records",
    "open_halves",
    "plain_pull",
    "plain_send",
    "queue_records",
    "restore_half",
    "restore_halves",
    "restore_records",
    "scan_batch",
    "scan_frames",
    "scan_plain_batch",
    "scan_records",
    "scan_text",
    "signer",
    "take_ends",
    "take_puts",
    "take_sends",
    "view_record",
    "whole_records",
]

COMPILED: Final = not compiled.PURE and not compiled.missing
"""Whether every hot function is compiled."""
MISSING: Final = tuple(compiled.missing)
"""What should be compiled and is not: the plain Python twins of these modules serve, slowly."""
