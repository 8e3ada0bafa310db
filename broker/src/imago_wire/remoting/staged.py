"""What clients and brokers agree on about micro-batches that are staged and then published."""

from __future__ import annotations

import re
from typing import Final

ROWS_MAX: Final = 50_000
"""Messages of one micro-batch on one shard: a broker appends them in one turn of its loop."""
BYTES_MAX: Final = 32 << 20
"""The same of their bodies and properties."""
SAID_BYTES_MAX: Final = 512 << 10
"""Of what a publication says: its attempts and their parts, by shard."""
ONCE_PREFIX: Final = "imago-produce-"
"""Of the id of a sink that publishes once."""
SINK_SIZE_MAX: Final = 255
"""Characters of a sink's id."""
STAGED_NAME: Final = re.compile(r"[0-9a-zA-Z_-]{1,64}")
"""An attempt's."""
