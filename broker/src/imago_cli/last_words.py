"""Why a broker process has ended, left where whoever started it looks: a pod's termination log.

Kubernetes shows that file's content in the pod's status; the operator reads it there, and says it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

VARIABLE = "IMAGO_TERMINATION_LOG"
"""Names the file. It is for the broker process alone, not for what people run beside it."""
SIZE_MAX = 2048
"""In bytes. Kubernetes keeps 4096 of each container, and fewer of a pod with many."""


def leave(text: str) -> None:
    """Write why this process ends, if it was told where; what it says matters more than this."""
    place = os.environ.get(VARIABLE)
    if place:
        with suppress(OSError):
            Path(place).write_bytes(text.encode("utf-8", "replace")[:SIZE_MAX])
