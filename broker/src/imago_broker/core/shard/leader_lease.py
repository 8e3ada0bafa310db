"""How long a leader may serve without a word from the coordinator.

The coordinator ends a session no earlier than its time-out after it last heard of the client. It
heard of it no earlier than the last answered call was sent. A third of the time-out is kept back
for clocks that run at different rates and for what lies between the check and the socket.
"""

from __future__ import annotations


def lease_until(sent_ms: int, session_ms: int) -> int:
    """Return the end of the lease that an answer gives to a call sent at `sent_ms`.

    Both clocks are this process's monotonic one.
    """
    return sent_ms + session_ms * 2 // 3


def leased(until_ms: int, now_ms: int) -> bool:
    """Whether a lease that ends at `until_ms` still holds."""
    return now_ms < until_ms
