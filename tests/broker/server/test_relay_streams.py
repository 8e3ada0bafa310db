"""Whoever follows a stream of frames knows where one ends, however the bytes are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from imago_broker.server.relay_streams import FrameBorders

FRAMES = st.lists(st.binary(max_size=20), max_size=6)
CUTS = st.lists(st.integers(1, 9), min_size=1, max_size=40)


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(FRAMES, CUTS)
def test_it_stands_between_frames_exactly_at_their_ends(
    frames: list[bytes], cuts: list[int]
) -> None:
    stream = stream_of(frames)
    ends = {0}
    for frame in frames:
        ends.add(max(ends) + 4 + len(frame))
    borders, at = FrameBorders(), 0
    for cut in cuts:
        borders.feed(stream[at : at + cut])
        at = min(at + cut, len(stream))
        assert borders.between == (at in ends)


@given(st.binary(max_size=20), st.binary(max_size=20), st.integers(1, 23))
def test_to_border_takes_the_rest_of_the_frame_and_no_more(
    first: bytes, second: bytes, cut: int
) -> None:
    stream = stream_of([first, second])
    cut = min(cut, 3 + len(first))
    borders = FrameBorders()
    borders.feed(stream[:cut])
    assert cut + borders.to_border(stream[cut:]) == 4 + len(first)
    assert borders.to_border(stream) == 0
