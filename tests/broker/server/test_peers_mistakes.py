"""What a peer does wrong on the admin port is one line of the log; our mistakes keep a trace."""

from __future__ import annotations

import logging
import sys

import pytest

from imago_broker.server.http_session import PeersMistakes


@pytest.mark.parametrize(
    ("error", "theirs"),
    [
        (ConnectionResetError("gone"), True),
        (RuntimeError("Connection closed."), True),
        (RuntimeError("something else"), False),
        (ValueError("ours"), False),
    ],
)
def test_only_what_a_peer_did_loses_its_trace(error: Exception, theirs: bool) -> None:
    try:
        raise error
    except type(error):
        said = sys.exc_info()
    record = logging.LogRecord("aiohttp.server", logging.ERROR, "x", 1, "failed", ("p",), said)
    assert PeersMistakes().filter(record)
    assert (record.exc_info is None, record.levelno == logging.INFO) == (theirs, theirs)
