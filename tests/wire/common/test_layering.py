"""The codecs touch no socket, file, clock, loop or thread, and importing them starts nothing."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import imago_wire.hot, imago_wire.records.record, imago_wire.text.decoder, imago_wire.text.encoder
import imago_wire.text.message
import threading
assert threading.active_count() == 1
print(sorted({"asyncio", "socket", "uvloop", "imago_log", "imago_broker"} & set(sys.modules)))
"""


def test_codecs_import_without_event_loop_and_network() -> None:
    found = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
