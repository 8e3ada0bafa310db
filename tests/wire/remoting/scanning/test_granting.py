"""Whose requests are, and what their users may: the twins decide alike, as Java's brokers do."""

from __future__ import annotations

import struct
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST
from imago_testing.searching import examples
from imago_wire.errors import ProtocolError
from imago_wire.hot import QueueTail
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, encode_frame
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.scanning import _granting_py as plain
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.scanning import _remoting_py as plain_taking
from imago_wire.remoting.scanning.granting import UserGrants
from imago_wire.remoting.signing import is_signed, signed

SECRETS = {"rocketmq2": b"12345678", "grüppe": b"s"}
TOPICS = {"topic": True, "other": False, "tôpic": True, "": False}
GRANTS: dict[str, UserGrants | None] = {
    "": UserGrants(None, {"topic": False, "other": True, "tôpic": False, "": False}, {}),
    "trusted": UserGrants(None, dict.fromkeys(TOPICS, True), {}),
    "disabled": None,
} | {key: UserGrants.signing(secret, TOPICS, {}) for key, secret in SECRETS.items()}
USUAL = {
    "a": "group", "b": "topic", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795258220883",
    "h": "0", "i": "UNIQ_KEY\x01U\x02", "j": "0", "k": "false", "m": "false", "n": "shard-0",
}  # fmt: skip
changes = st.dictionaries(
    st.sampled_from(["b", "a", "i", "zz", "A", "n", "aa", "größe", "SecurityToken", "Signature"]),
    st.sampled_from(["topic", "other", "tôpic", "", "x", 'g"\\/\n', "\x7f", "标签", "y" * 9000]),
    max_size=3,
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A header with its word, and a body: signed as it should be, or changed afterwards."""
    ext: dict[str, Any] = USUAL | draw(changes)
    body = draw(st.binary(max_size=70))
    key = draw(st.sampled_from(["rocketmq2", "rocketmq2", "grüppe", "trusted", "disabled", None]))
    if key is not None:
        ext.pop("Signature", None)
        secret = SECRETS.get(key, b"x").decode()
        token = draw(st.sampled_from(["", "", "token"]))
        ext = signed(ext, body, access_key=key, secret=secret, security_token=token)
    after = draw(st.sampled_from(["nothing"] * 4 + ["body", "field", "gone", "added", "short"]))
    if after == "body":
        body += b"!"
    elif after == "field":
        ext |= draw(changes)
    elif after == "gone":
        ext.pop(draw(st.sampled_from(sorted(ext))))
    elif after == "added":
        ext["_UNIQUE_KEY_QUERY"] = "true"
    elif after == "short" and "Signature" in ext:
        ext["Signature"] = ext["Signature"][:-1]
    names = draw(st.permutations(sorted(ext)))
    return raw_header({name: ext[name] for name in names}, draw(st.booleans()), draw), body


def raw_header(ext: dict[str, Any], binary: bool, draw: st.DrawFn) -> bytes:
    if binary:
        command = RemotingCommand(310, 0, 1, 479, ext=ext, body=b"")
        command.serialize = SerializeType.ROCKETMQ
        return encode_frame(command)[4:]
    if draw(st.integers(0, 5)) == 0 and ext.get("d") == "4":
        ext = ext | {"d": 4, "k": False}
    fields = {"code": 310, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 1}
    header = orjson.dumps(fields | {"serializeTypeCurrentRPC": "JSON", "version": 479})
    doubled = header.replace(b'"extFields":{', b'"extFields":{"b":"topic",')
    slashes = header.replace(b"/", b"\\/")
    header = draw(st.sampled_from([header] * 4 + [doubled, slashes, header.replace(b",", b", ")]))
    return struct.pack(">I", len(header)) + header


class Asked(dict[str, UserGrants | None]):
    """Knows nobody else."""

    def __missing__(self, key: str) -> None:
        return None


class Publish(dict[str, bool]):
    def __missing__(self, topic: str) -> bool:
        return False


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except ProtocolError as error:
        return str(error)


@settings(max_examples=examples(600))
@given(
    request=requests(),
    place=st.none() | st.tuples(st.integers(0, 700), st.integers(0, 255)),
)
def test_users_are_found_alike(request: tuple[bytes, bytes], place: tuple[int, int] | None) -> None:
    header, body = bytearray(request[0]), request[1]
    if place is not None and 0 < place[0] < len(header):
        header[place[0]] = place[1]
    raw, grants = bytes(header), Asked(GRANTS)
    expected = outcome(plain.signer, raw, body, grants)
    assert outcome(compiled.signer, raw, body, grants) == expected
    if isinstance(expected, UserGrants) and expected.secret is not None:
        assert is_signed(expected.secret.decode(), decode_raw_header(raw, body))


@settings(max_examples=examples(300))
@given(requests=st.lists(requests(), max_size=3))
def test_sends_that_are_granted_are_taken_alike(requests: list[tuple[bytes, bytes]]) -> None:
    frames = [
        struct.pack(">I", len(raw) + len(body)) + raw + body for raw, body in requests
    ]  # the word counts in the frame's size
    tails = [QueueTail(b"topic", n, dual=True) for n in range(3)]
    names = dict.fromkeys(TOPICS, tails)
    publish = {
        key: user and user._replace(publish=Publish(user.publish)) for key, user in GRANTS.items()
    }
    found = []
    for twin in (plain_taking, compiled):
        entries: list[Any] = []
        asked: list[Any] = []
        used = twin.take_sends(
            b"".join(frames), (FRAME_BYTES_MAX, 100, 10), names, HOST, b"CLUSTER\x01c\x02",
            entries, asked, None, Asked(publish),
        )  # fmt: skip
        found.append((used, entries, asked))
    assert found[0] == found[1]
    for (raw, body), _ in zip(requests, found[0][1], strict=False):
        user = plain.signer(raw, body, Asked(publish))
        assert user is not None, "no more than is granted"
        assert user.publish[decode_raw_header(raw, body).ext["b"]], "no more than is granted"


JAVA = {
    "a": "PG", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000000",
    "h": "0", "j": "0", "k": "false", "m": "false", "AccessKey": "rocketmq2",
    "i": "UNIQ_KEY\x017F000001000118B4AAC212CC9AB20000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    "KEYS\x01k1\x02",
}  # fmt: skip


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize(
    ("signature", "body", "right"),
    [
        ("x8+VAyoSIEZWcyyhPvW1D0sgnNE=", b"hello", True),
        ("x8+VAyoSIEZWcyyhPvW1D0sgnNE=", b"hellp", False),
        ("x8+VAyoSIEZWcyyhPvW1D0sgnNA=", b"hello", False),
        ("", b"hello", False),
    ],
)
def test_a_signature_of_the_java_client_is_right(
    twin: Any, form: SerializeType, signature: str, body: bytes, right: bool
) -> None:
    command = RemotingCommand(310, 0, 1, 479, ext=JAVA | {"Signature": signature}, body=body)
    command.serialize = form
    raw = encode_frame(command)[4 : -len(body)]
    user = UserGrants.signing(b"12345678", {"TopicTest": True}, {})
    assert (twin.signer(raw, body, {"rocketmq2": user}) is user) is right


@pytest.mark.parametrize("twin", [plain, compiled])
def test_a_header_of_no_known_form_is_unreadable(twin: Any) -> None:
    raw = encode_frame(RemotingCommand(310, ext=JAVA))[4:]
    for form in (2, 128, 255):
        with pytest.raises(ProtocolError, match=f"unknown header form {form}"):
            twin.signer(bytes([form]) + raw[1:], b"hello", {"rocketmq2": None})
