"""Signatures of requests against known ones."""

from __future__ import annotations

from pathlib import Path

from imago_testing.frames.remoting import load_known
from imago_wire.remoting.frame import FrameDecoder
from imago_wire.remoting.signing import is_signed_with, signature, signed_content

KNOWN = load_known(Path(__file__).parent / "golden" / "known.hex")
SECRET = "12345678"


def signed_request() -> tuple[dict[str, str], bytes]:
    decoder = FrameDecoder()
    decoder.feed(KNOWN["signed-send"])
    command = decoder.next_frame()
    assert command is not None
    return command.ext, command.body


def test_signed_bytes_are_the_known_ones() -> None:
    assert signed_content(*signed_request()) == KNOWN["signed-bytes"]


def test_signature_is_the_one_the_request_carries() -> None:
    ext, body = signed_request()
    content = signed_content(ext, body)
    assert signature(content, SECRET) == ext["Signature"] == "jLMANgvt+/xi1YV49Ee0lRjJI+c="
    assert is_signed_with(content, SECRET, ext["Signature"])
    assert not is_signed_with(content, SECRET + "9", ext["Signature"])
    assert not is_signed_with(content + b"x", SECRET, ext["Signature"])
    assert not is_signed_with(content, SECRET, "é")


def test_signature_without_the_token() -> None:
    ext, body = signed_request()
    left_out = {"Signature", "SecurityToken"}
    content = signed_content(ext, body, leave_out=left_out)
    assert signature(content, SECRET) == "x8+VAyoSIEZWcyyhPvW1D0sgnNE="


def test_signature_of_a_request_without_fields_or_body() -> None:
    content = signed_content({"AccessKey": "rocketmq2", "Signature": "old"}, b"")
    assert signature(content, SECRET) == "Ou1T58RIcyZWaTIwzkhJZWn/Zvs="
