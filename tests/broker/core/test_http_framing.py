"""Heads and bodies of HTTP requests are told apart whatever pieces they come in, within limits."""

from __future__ import annotations

import pytest

from imago_broker.core import http_framing
from imago_broker.core.http_framing import HttpFraming, HttpRefusedError

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PUT = b"PUT /x HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = PUT + b"Transfer-Encoding: Chunked\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n1F\r\n" + b"x" * 31 + b"\r\n0\r\n\r\n"


def cut(data: bytes, size: int) -> list[tuple[bytes, bytes]]:
    """Return the requests in what comes in pieces of a size, as heads and bodies."""
    framing, found = HttpFraming(), list[tuple[bytes, bytes]]()
    for at in range(0, len(data), size):
        framing.add(data[at : at + size])
        while True:
            if framing.in_body:
                piece = framing.body()
                found[-1] = (found[-1][0], found[-1][1] + piece)
                if not piece:
                    break
            elif head := framing.head():
                found.append((head, b""))
            else:
                break
    assert (framing.held, framing.in_body) == (0, False)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 10_000])
def test_requests_are_cut_whatever_pieces_they_come_in(size: int) -> None:
    sized = PUT + b"content-length: 11\r\nExpect: 100-continue\r\n\r\n"
    data = HEAD + sized + b"GET / HTTP/1" + CHUNKED + CHUNKS + HEAD
    wanted = [(HEAD, b""), (sized, b"GET / HTTP/"), (CHUNKED, CHUNKS), (HEAD, b"")]
    assert cut(data.replace(b"HTTP/1" + CHUNKED, b"HTTP/" + CHUNKED), size) == wanted


REFUSED = {
    "another protocol": (b"put wild 0 5", 400),
    "a method without an end": (b"G" + b"A" * 20, 400),
    "a method in part": (b"BRE", 400),
    "a TLS hello": (b"\x16\x03\x01\x02\x00", 400),
    "lengths": (PUT + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n", 400),
    "a length and chunks": (PUT + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "a negative length": (PUT + b"Content-Length: -3\r\n\r\n", 400),
    "a length of many digits": (PUT + b"Content-Length: " + b"1" * 19 + b"\r\n\r\n", 400),
    "another encoding": (PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400),
    "an expectation": (PUT + b"Expect: 200-ok\r\n\r\n", 417),
    "no chunk": (CHUNKED + b"zz\r\n", 400),
    "a negative chunk": (CHUNKED + b"-1\r\n", 400),
    "an extension": (CHUNKED + b"1;a\r\n", 400),
    "an endless size": (CHUNKED + b"0" * 40, 400),
    "a chunk longer than it says": (CHUNKED + b"1\r\nab\r\n", 400),
    "a trailer": (CHUNKED + b"0\r\nX: y\r\n\r\n", 400),
}


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_request_is_refused(data: bytes, status: int, size: int) -> None:
    with pytest.raises(HttpRefusedError) as refused:
        cut(data, size)
    assert refused.value.status == status


def test_a_head_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_framing, "HEAD_BYTES_MAX", 64)
    fits = b"GET /" + b"a" * (64 - len(b"GET / HTTP/1.1\r\n\r\n")) + b" HTTP/1.1\r\n\r\n"
    assert cut(fits, 1) == [(fits, b"")]
    for data in (fits.replace(b" HTTP", b"a HTTP"), b"GET /" + b"a" * 1000):
        with pytest.raises(HttpRefusedError) as refused:
            cut(data, 1)
        assert refused.value.status == 431


def test_small_chunks_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_framing, "HEAD_BYTES_MAX", 64)
    whole = b"0\r\n\r\n"
    assert cut(b"", 1) == []
    for count, size in ((8, 1), (100, 64)):
        chunks = (b"%x\r\n" % size + b"x" * size + b"\r\n") * count + whole
        monkeypatch.setattr(http_framing, "HEAD_BYTES_MAX", len(CHUNKED))
        assert cut(CHUNKED + chunks, 1000) == [(CHUNKED, chunks)]
    with pytest.raises(HttpRefusedError):
        cut(CHUNKED + b"1\r\nx\r\n" * 100 + whole, 1000)
    monkeypatch.setattr(http_framing, "FRAMING_PART", 1 / 8)
    assert cut(CHUNKED + b"1\r\nx\r\n" * 100 + whole, 1000)


@pytest.mark.parametrize(
    ("limit", "least", "data"),
    [
        ("LENGTH_DIGITS_MAX", 2, PUT + b"Content-Length: 11\r\n\r\nhello world"),
        ("SIZE_DIGITS_MAX", 2, CHUNKED + CHUNKS),
        ("CHUNK_LINE_MAX", 4, CHUNKED + CHUNKS),
    ],
)
def test_numbers_have_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, least: int, data: bytes
) -> None:
    monkeypatch.setattr(http_framing, limit, least)
    assert len(cut(data, 1)) == 1
    monkeypatch.setattr(http_framing, limit, least - 1)
    with pytest.raises(HttpRefusedError):
        cut(data, 1)
