"""The active twins of what reads RocketMQ's frames and answers its sends."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.remoting._ending_py import answer_done, may_be_end, take_ends
from imago_wire.remoting._granting_py import may_send, signer
from imago_wire.remoting._pulling_py import answer_pull, plain_pull
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

__all__ = [
    "answer_done",
    "answer_pull",
    "answer_sends",
    "answer_stored",
    "encode_send_response",
    "find_each",
    "join_message_ids",
    "may_be_end",
    "may_send",
    "plain_pull",
    "plain_send",
    "scan_batch",
    "scan_frames",
    "scan_plain_batch",
    "signer",
    "take_ends",
    "take_sends",
]

globals().update(compiled_twins("imago_wire.remoting._remoting_c", __all__))
