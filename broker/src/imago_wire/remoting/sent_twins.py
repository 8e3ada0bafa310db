"""The active twin of what is done for each message that is sent."""

from __future__ import annotations

from imago_wire.compiled import compiled_twins
from imago_wire.remoting._sent_py import (
    encode_joined,
    extend_batch,
    fill_message,
    prepare_plain,
    share_results,
)

__all__ = ["encode_joined", "extend_batch", "fill_message", "prepare_plain", "share_results"]

globals().update(compiled_twins("imago_wire.remoting._sent_c", __all__))
