"""How a client of ours tells a broker over MetaQ's protocol whose it is, and each that it knows the
password, which never travels.

```
auth USER NONCE 1     both nonces are 64 hexadecimal digits, new for each handshake
result 200 64 1       the broker's nonce
auth USER PROOF 2     the client's proof
result 200 64 2       the broker's proof
```

A proof is an HMAC-SHA256 over who makes it, the user and both nonces, with a key that is made of
the password for this alone: what is seen of one handshake is good for no other, and not for the
signatures that RocketMQ's clients make with the same password. A broker that asks nobody who they
are answers `open` to the first line.
"""

from __future__ import annotations

import hmac
import re
import secrets
from enum import Enum
from typing import Final

OPEN: Final = "open"
"""What a broker without access control answers in place of a nonce."""
_TOKEN: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PURPOSE: Final = b"imago metaq handshake 1"


class Side(Enum):
    """Who makes a proof: neither can show the other's as its own."""

    CLIENT = b"client"
    BROKER = b"broker"


def new_nonce() -> str:
    """Return a nonce that nobody can guess."""
    return secrets.token_hex(32)


def is_token(text: str) -> bool:
    """Whether this has the form of a nonce or a proof."""
    return _TOKEN.fullmatch(text) is not None


def proof(side: Side, secret: str, user: str, nonces: tuple[str, str]) -> str:
    """Return one side's proof that it knows the user's password; `nonces`: client's, broker's."""
    key = hmac.digest(secret.encode(), _PURPOSE, "sha256")
    text = " ".join((user, *nonces)).encode()
    return hmac.digest(key, side.value + b" " + text, "sha256").hex()


def is_proof(given: str, side: Side, secret: str, user: str, nonces: tuple[str, str]) -> bool:
    """Whether a side has proved it; takes as long for a wrong proof."""
    made = proof(side, secret, user, nonces)
    return hmac.compare_digest(made.encode(), given.encode(errors="replace"))
