"""Frames whose bytes are known, both ways."""

from __future__ import annotations

import pytest

from imago_testing.frames.replication import VECTORS
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import encode
from imago_wire.replication.frames import Frame, FrameType


@pytest.mark.parametrize(("text", "frame"), VECTORS.values(), ids=VECTORS)
def test_bytes_are_the_frame_and_the_frame_is_the_bytes(text: str, frame: Frame) -> None:
    data = bytes.fromhex(text.replace(" ", ""))
    assert encode(frame) == data
    assert FrameDecoder().feed(data) == [frame]


def test_every_type_has_a_vector() -> None:
    types = {bytes.fromhex(text[:16].replace(" ", ""))[5] for text, _ in VECTORS.values()}
    assert types == set(FrameType)
