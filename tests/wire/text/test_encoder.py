from __future__ import annotations

import pytest

from imago_wire.errors import ProtocolError
from imago_wire.text.commands import (
    Auth,
    Command,
    Get,
    Put,
    Stats,
    Sync,
    Transaction,
    TransactionType,
)
from imago_wire.text.encoder import encode, result, value_head


def test_result_counts_bytes_not_characters() -> None:
    assert result(503, "线程池繁忙", 7) == b"result 503 15 7\r\n" + "线程池繁忙".encode()


def test_value_head_precedes_what_a_file_holds() -> None:
    assert value_head(25, -2147483626) == b"value 25 -2147483626\r\n"


@pytest.mark.parametrize(
    "command",
    [
        Put("", 0, 0, b"", 1),
        Put("a b", 0, 0, b"", 1),
        Put("t", 0, 0, b"", 1, None, "TX:a b:1"),
        Get("t", "g\r\nquit", 0, 0, 1, 1),
        Get("t", "", 0, 0, 1, 1),
        Stats("a\nb", 1),
        Sync("t\r", 0, 0, 1, b"", 1),
        Auth("ann", "", 1),
        Auth("ann\r\nquit", "ff", 1),
        Transaction("null", "", TransactionType.BEGIN, 1),
    ],
)
def test_word_that_would_not_be_read_back_is_refused(command: Command) -> None:
    with pytest.raises(ProtocolError, match="is no word"):
        encode(command)
