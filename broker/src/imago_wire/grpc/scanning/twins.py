"""The active twins of what reads headers and ordinary calls, and answers these."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.grpc.scanning._acks_py import plain_acks
from imago_wire.grpc.scanning._blocks_py import HeaderDecoder
from imago_wire.grpc.scanning._sends_py import plain_send, stored_answer, whole_answer
from imago_wire.grpc.scanning._told_py import told_records

_OF_SENDS = ("plain_send", "stored_answer", "whole_answer")

__all__ = [
    "HeaderDecoder",
    "plain_acks",
    "plain_send",
    "stored_answer",
    "told_records",
    "whole_answer",
]

globals().update(compiled_twins("imago_wire.grpc.scanning._acks_c", ("plain_acks",)))
globals().update(compiled_twins("imago_wire.grpc.scanning._blocks_c", ("HeaderDecoder",)))
globals().update(compiled_twins("imago_wire.grpc.scanning._sends_c", _OF_SENDS))
globals().update(compiled_twins("imago_wire.grpc.scanning._told_c", ("told_records",)))
