"""What the headers of a call say: who calls, until when it waits, with which credentials."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
CLIENT_VERSION: Final = "x-mq-client-version"
DATE_TIME: Final = "x-mq-date-time"
AUTHORIZATION: Final = "authorization"
TIMEOUT: Final = "grpc-timeout"

METHOD: Final = ":method"
PATH: Final = ":path"
WANTED: Final = frozenset(
    {METHOD, PATH, CLIENT_ID, LANGUAGE, CLIENT_VERSION, DATE_TIME, AUTHORIZATION, TIMEOUT}
)
"""All that a call is asked for."""

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_NS: Final = {
    "H": 3_600_000_000_000,
    "M": 60_000_000_000,
    "S": 1_000_000_000,
    "m": 1_000_000,
    "u": 1_000,
    "n": 1,
}


class CallCredentials(NamedTuple):
    """Whose a call says it is, and what shows it."""

    user: str
    signature: str
    signed: str
    """The text that was signed."""

    def signed_by(self, keys: Iterable[str]) -> bool:
        """Whether one of these keys made the signature."""
        told = self.signature.lower().encode()
        found = False
        for key in keys:
            made = hmac.new(key.encode(), self.signed.encode(), hashlib.sha1).hexdigest()
            found = hmac.compare_digest(made.encode(), told) or found
        return found


def credentials(headers: Mapping[str, str]) -> CallCredentials | None:
    """Return whose a call says it is; None: nobody's. Unknown items are passed over."""
    _, _, rest = headers.get(AUTHORIZATION, "").partition(" ")
    items = {
        name.strip(): value.strip()
        for name, _, value in (part.partition("=") for part in rest.split(","))
    }
    user = items.get("Credential", "").partition("/")[0]
    if not user:
        return None
    return CallCredentials(user, items.get("Signature", ""), headers.get(DATE_TIME, ""))


def timeout_ms(headers: Mapping[str, str]) -> int | None:
    """Return how long the caller waits for its answer; None: for ever."""
    found = _TIMEOUT.fullmatch(headers.get(TIMEOUT, ""))
    if found is None:
        return None
    return int(found[1]) * _UNIT_NS[found[2]] // 1_000_000
