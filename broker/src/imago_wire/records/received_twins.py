"""The active twin of what a consumer's messages are made by."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.records._received_py import CutRecord, cut_records

__all__ = ["CutRecord", "cut_records"]

globals().update(compiled_twins("imago_wire.records._received_c", __all__))
