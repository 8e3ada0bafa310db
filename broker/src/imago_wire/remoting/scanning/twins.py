"""The active twins of what reads RocketMQ's frames and answers its sends."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.remoting.scanning._ending_py import answer_done, may_be_end, take_ends
from imago_wire.remoting.scanning._granting_py import signer
from imago_wire.remoting.scanning._halves_py import (
    answer_ends,
    close_halves,
    mark_texts,
    open_halves,
    restore_halves,
)
from imago_wire.remoting.scanning._pulling_py import answer_pull, plain_pull
from imago_wire.remoting.scanning._remoting_py import (
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
from imago_wire.remoting.scanning.halves import Half

__all__ = [
    "Half",
    "answer_done",
    "answer_ends",
    "answer_pull",
    "answer_sends",
    "answer_stored",
    "close_halves",
    "encode_send_response",
    "find_each",
    "join_message_ids",
    "mark_texts",
    "may_be_end",
    "open_halves",
    "plain_pull",
    "plain_send",
    "restore_halves",
    "scan_batch",
    "scan_frames",
    "scan_plain_batch",
    "signer",
    "take_ends",
    "take_sends",
]

globals().update(compiled_twins("imago_wire.remoting.scanning._remoting_c", __all__))
