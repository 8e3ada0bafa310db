"""The active twins of what writes and reads records."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.record_format.entries import EntryRun, QueueTail

# The reference comes first: it is what type checkers see, and what stays where nothing is compiled.
from imago_wire.records._index_py import index_records, key_entries
from imago_wire.records._metaq_py import metaq_block, metaq_form, metaq_records, metaq_whole
from imago_wire.records._parked_py import due_units, restore_half, restore_run
from imago_wire.records._record_py import (
    RecordBuilder,
    entries_size_max,
    make_entries,
    make_entry,
    metaq_entry,
)
from imago_wire.records._scan_py import (
    fitting_units,
    gather_blocks,
    gather_records,
    near_units,
    numbered_records,
    queue_records,
    scan_records,
    view_record,
    whole_records,
)
from imago_wire.records._timing_py import pop_timers, push_timer, spread_timers, timer_runs

__all__ = [
    "EntryRun",
    "QueueTail",
    "RecordBuilder",
    "due_units",
    "entries_size_max",
    "fitting_units",
    "gather_blocks",
    "gather_records",
    "index_records",
    "key_entries",
    "make_entries",
    "make_entry",
    "metaq_block",
    "metaq_entry",
    "metaq_form",
    "metaq_records",
    "metaq_whole",
    "near_units",
    "numbered_records",
    "pop_timers",
    "push_timer",
    "queue_records",
    "restore_half",
    "restore_run",
    "scan_records",
    "spread_timers",
    "timer_runs",
    "view_record",
    "whole_records",
]

_WRITE = (
    "EntryRun", "QueueTail", "RecordBuilder", "entries_size_max", "make_entries", "make_entry",
    "metaq_entry", "restore_run",
)  # fmt: skip
_SCAN = (
    "fitting_units", "gather_blocks", "gather_records", "near_units", "numbered_records",
    "queue_records", "scan_records", "view_record", "whole_records",
)  # fmt: skip
_METAQ = ("metaq_block", "metaq_form", "metaq_records", "metaq_whole")
_INDEX = ("index_records", "key_entries")
_PARKED = ("due_units", "restore_half")
_TIMING = ("pop_timers", "push_timer", "spread_timers", "timer_runs")

globals().update(compiled_twins("imago_wire.records._record_c", _WRITE))
globals().update(compiled_twins("imago_wire.records._scan_c", _SCAN))
globals().update(compiled_twins("imago_wire.records._metaq_c", _METAQ))
globals().update(compiled_twins("imago_wire.records._index_c", _INDEX))
globals().update(
    compiled_twins("imago_wire.records._parked_c", _PARKED, needs=("imago_wire.records._record_c",))
)
globals().update(compiled_twins("imago_wire.records._timing_c", _TIMING))
