"""Frames of the protocol between members, for tests: any, and some whose bytes are known."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from imago_wire.replication.frames import (
    Ack,
    Data,
    Fetch,
    Frame,
    Hello,
    Metadata,
    Refuse,
    Repair,
    RepairAsk,
    Welcome,
)

NUMBERS = st.integers(0, (1 << 63) - 1)
TEXTS = st.text(max_size=40)
EXTENSIONS = st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=20)), max_size=3)


def _view(data: bytes) -> memoryview:
    return memoryview(data)


BYTES = st.binary(max_size=200).map(_view)


@st.composite
def epoch_vectors(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """Epochs that rise, with starts that never fall."""
    numbers = sorted(draw(st.sets(st.integers(1, 1 << 40), max_size=5)))
    starts = sorted(draw(st.lists(NUMBERS, min_size=len(numbers), max_size=len(numbers))))
    return tuple(zip(numbers, starts, strict=True))


def _handshakes() -> dict[str, st.SearchStrategy[Any]]:
    return {
        "epoch": NUMBERS,
        "uuid": TEXTS,
        "incarnation": NUMBERS,
        "epochs": epoch_vectors(),
        "log_start": NUMBERS,
        "log_end": NUMBERS,
        "extensions": EXTENSIONS.map(tuple),
    }


def frames() -> st.SearchStrategy[Frame]:
    """Any frame that can be sent."""
    return st.one_of(
        st.builds(Hello, cluster_id=TEXTS, shard=st.integers(0, 1023), **_handshakes()),
        st.builds(Welcome, high_watermark=NUMBERS, **_handshakes()),
        st.builds(Refuse, NUMBERS, st.integers(0, 65535), TEXTS),
        st.builds(Fetch, NUMBERS, NUMBERS, NUMBERS, st.sampled_from([0, 2])),
        st.builds(
            Data, NUMBERS, st.integers(0, 1), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, BYTES
        ),
        st.builds(Ack, NUMBERS, NUMBERS, NUMBERS),
        st.builds(RepairAsk, NUMBERS, NUMBERS, st.integers(0, 1 << 20)),
        st.builds(Repair, NUMBERS, NUMBERS, BYTES),
        st.builds(Metadata, NUMBERS, st.sampled_from([0, 4]), BYTES),
    )


VECTORS: dict[str, tuple[str, Frame]] = {
    "hello": (
        "494d475201010000 0000000000000004 0000004b 7e27c893"
        "0002 000000000000002a 0000000000000000 0000000000000100"
        "0002 6331 0002 7531"
        "0002 0000000000000001 0000000000000000 0000000000000003 0000000000000080"
        "0007 0003 746c73",
        Hello(
            epoch=4,
            cluster_id="c1",
            shard=2,
            uuid="u1",
            incarnation=42,
            epochs=((1, 0), (3, 0x80)),
            log_start=0,
            log_end=0x100,
            extensions=((7, b"tls"),),
        ),
    ),
    "welcome": (
        "494d475201020000 0000000000000005 00000038 9b36abdc"
        "000000000000002b 0000000000000000 0000000000000200 0000000000000180"
        "0004 75756964 0001 0000000000000005 0000000000000100",
        Welcome(
            epoch=5,
            uuid="uuid",
            incarnation=43,
            epochs=((5, 0x100),),
            log_start=0,
            log_end=0x200,
            high_watermark=0x180,
        ),
    ),
    "refuse": (
        "494d475201030000 0000000000000005 0000000a ea1a21b4 0004 0006 736c617665 21",
        Refuse(5, 4, "slave!"),
    ),
    "fetch": (
        "494d475201040000 0000000000000005 00000010 8c79d7d4 0000000000000100 0000000000000003",
        Fetch(5, 0x100, 3),
    ),
    "fetch-metadata": (
        "494d475201040002 0000000000000005 00000010 ec25629f 0000000000000100 0000000000000000",
        Fetch(5, 0x100, 0, 2),
    ),
    "metadata": (
        "494d475201090004 0000000000000005 00000002 4377be06 7b7d",
        Metadata(5, 4, memoryview(b"{}")),
    ),
    "data": (
        "494d475201050001 0000000000000005 0000002d b07c99a8"
        "0000000000000100 0000000000000003 0000000000000080 00000000000000f0 0000000000000200"
        "68656c6c6f",
        Data(5, 1, 0x100, 3, 0x80, 0xF0, 0x200, memoryview(b"hello")),
    ),
    "heartbeat": (
        "494d475201050000 0000000000000005 00000028 1d80b4a2"
        "0000000000000100 0000000000000005 0000000000000100 0000000000000100 0000000000000100",
        Data(5, 0, 0x100, 5, 0x100, 0x100, 0x100, memoryview(b"")),
    ),
    "ack": (
        "494d475201060000 0000000000000005 00000010 24ff6645 0000000000000105 0000000000000100",
        Ack(5, 0x105, 0x100),
    ),
    "repair-ask": (
        "494d475201070000 0000000000000005 0000000c 8905e1e2 0000000000000100 00000040",
        RepairAsk(5, 0x100, 0x40),
    ),
    "repair": (
        "494d475201080000 0000000000000005 0000000b 43e9b7dc 0000000000000100 616263",
        Repair(5, 0x100, memoryview(b"abc")),
    ),
}
"""Bytes in hexadecimal, and the frame they are; the checksums were computed by `zlib.crc32`."""
