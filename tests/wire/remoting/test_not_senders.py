"""Names that no sender may set: the fast ways leave their messages for a closer look."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.record_format.properties import NOT_SENDERS, OF_RETRIES, as_sent, decode
from imago_wire.remoting.messages import BatchEntry, encode_batch
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.scanning import _remoting_py as plain

pieces = st.sampled_from(
    [name + b"\x01v\x02" for name in sorted(NOT_SENDERS)]
    + [b"TIMER_DELAY_MS\x015\x02", b"a\x01b\x02", b"POP_CK", b"\x02", b"POP_CK_\x01v\x02"]
)


@given(st.lists(pieces, max_size=6).map(b"".join), st.booleans())
def test_nothing_of_them_is_left(data: bytes, tried: bool) -> None:
    before = decode(data)
    after = decode(as_sent(data, tried=tried))
    dropped = {name.decode() for name in (NOT_SENDERS - OF_RETRIES if tried else NOT_SENDERS)}
    dropped |= {"TIMER_DELAY_MS"} if "TIMER_OUT_MS" in before else set()
    assert after == {name: value for name, value in before.items() if name not in dropped}


def test_properties_without_them_stay_the_bytes_that_came() -> None:
    for data in (b"", b"a\x01b", b"\x02\x02a\x01", b"xPOP_CK\x01v\x02", b"a\x01POP_CK\x02"):
        assert as_sent(data) is data


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("name", sorted(NOT_SENDERS))
def test_twins_leave_what_no_sender_may_say_for_a_closer_look(twin: Any, name: bytes) -> None:
    for properties in (b"UNIQ_KEY\x01u\x02%b\x01v" % name, b"%b\x01\x02UNIQ_KEY\x01u\x02" % name):
        assert twin.plain_send(properties, b"") is None
        batch = encode_batch([BatchEntry(b"", b"UNIQ_KEY\x01u\x02"), BatchEntry(b"", properties)])
        assert twin.scan_plain_batch(batch, 10) is None
    near = b"UNIQ_KEY\x01u\x02%b_\x01v\x02X%b\x01v\x02%b\x01v\x02" % (name, name, name[:-1])
    assert twin.plain_send(near, b"") == (b"u", near)
