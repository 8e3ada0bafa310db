"""Fields of a pull that all who read one have to agree on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_FIELD: Final = "imagoBatch"
"""Header field of a client that takes large answers: `true`."""

_NUMBERS: Final = (
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subVersion",
)
# Nine digits fit 32 bits and 18 fit 64: what is longer is left to the header class.
_PLAIN: Final = re.compile(
    r"[0-9]{1,9},[0-9]{1,18},[0-9]{1,9},[0-9]{1,9},[0-9]{1,18},[0-9]{1,18},[0-9]{1,18}", re.ASCII
)


def pull_numbers(ext: Mapping[str, str]) -> tuple[int, int, int, int, int, int, int] | None:
    """Return queue, offset, messages wanted, flags, commit offset, hold ms, subscription version.

    None where one is missing, or is not written as the known clients do.
    """
    try:
        text = ",".join([ext[name] for name in _NUMBERS])
    except KeyError:
        return None
    if not _PLAIN.fullmatch(text):
        return None
    queue, offset, messages, flags, commit, hold_ms, version = map(int, text.split(","))
    return queue, offset, messages, flags, commit, hold_ms, version
