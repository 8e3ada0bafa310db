"""Signatures of requests, held against those that RocketMQ's own classes make."""

from __future__ import annotations

import pytest

from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.signing import is_signed, signature, signed

SECRET = "12345678"
PROPERTIES = (
    "UNIQ_KEY\x017F000001000118B4AAC212CC9AB20000\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01k1\x02"
)
SEND = {
    "a": "PG",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
}


@pytest.mark.parametrize(
    ("fields", "body", "token", "wanted"),
    [
        (SEND, b"hello", "tok", "jLMANgvt+/xi1YV49Ee0lRjJI+c="),
        (SEND, b"hello", "", "x8+VAyoSIEZWcyyhPvW1D0sgnNE="),
        ({}, b"", "", "Ou1T58RIcyZWaTIwzkhJZWn/Zvs="),
    ],
)
def test_a_signature_is_that_of_the_java_client(
    fields: dict[str, str], body: bytes, token: str, wanted: str
) -> None:
    ext = signed(fields, body, access_key="rocketmq2", secret=SECRET, security_token=token)
    assert ext["Signature"] == wanted
    assert is_signed(SECRET, RemotingCommand(code=310, ext=ext, body=body))


@pytest.mark.parametrize("changed", ["body", "field", "more", "secret", "none", "other"])
def test_whatever_is_changed_shows(changed: str) -> None:
    ext = signed(SEND, b"hello", access_key="rocketmq2", secret=SECRET)
    body, secret = b"hello", SECRET
    if changed == "body":
        body = b"hellp"
    elif changed == "field":
        ext["b"] = "TopicTesu"
    elif changed == "more":
        ext["n"] = "x"
    elif changed == "secret":
        secret = "12345679"
    elif changed == "none":
        del ext["Signature"]
    else:
        ext["Signature"] = "\udcff"
    assert not is_signed(secret, RemotingCommand(code=310, ext=ext, body=body))


def test_fields_that_clients_leave_out_of_their_signature() -> None:
    ext = signed(SEND, b"", access_key="rocketmq2", secret=SECRET)
    ext["_UNIQUE_KEY_QUERY"] = "true"  # Java's adds it behind
    assert is_signed(SECRET, RemotingCommand(code=12, ext=ext))
    ext = {**SEND, "AccessKey": "rocketmq2"}
    ext["Signature"] = signature(SECRET, ext, b"")
    ext["SecurityToken"] = "tok"  # Go's
    assert is_signed(SECRET, RemotingCommand(code=12, ext=ext))


def test_names_are_sorted_as_java_does() -> None:
    # By UTF-16 units U+10000 (D800 DC00) comes before U+FFFF; by code points it does not.
    assert signature(SECRET, {"\uffff": "b", "\U00010000": "a"}, b"") == signature(
        SECRET, {"x": "ab"}, b""
    )
