from __future__ import annotations

import pytest
from hypothesis import given

from imago_testing.frames.text import local_keys, xa_keys
from imago_wire.errors import ProtocolError
from imago_wire.text.transaction_key import (
    LocalTransactionKey,
    XaTransactionKey,
    parse_transaction_key,
)


@given(key=local_keys | xa_keys)
def test_key_gives_its_text_again(key: str) -> None:
    assert str(parse_transaction_key(key)) == key


def test_keys_have_these_parts() -> None:
    assert parse_transaction_key("null") is None
    assert parse_transaction_key("TX:127.0.0.1-17-1:12") == LocalTransactionKey(
        "127.0.0.1-17-1", 12
    )
    assert parse_transaction_key("XID:100:676c::uq-host") == XaTransactionKey(
        100, b"gl", b"", "uq-host"
    )


def test_key_of_before_1_4_5_is_refused() -> None:
    with pytest.raises(ProtocolError):
        parse_transaction_key("XID:100:676c:6271")
