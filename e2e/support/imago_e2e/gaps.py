"""How long a producer may go without an acknowledgement when its shard's master is lost.

All in seconds, and of the original clients as this suite runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from imago_e2e.clients import Load

SESSION: Final = 6.0
"""Time-out of the brokers' sessions, as they have it by default."""
ELECTION: Final = 2.0
"""From the end of the former master's session until clients are served by the next."""
ROUTE: Final = 1.0
"""How often the RocketMQ clients of this suite ask for routes; 30 s by default."""
SEND: Final = 3.0
"""How long clients wait for an answer that never comes. RocketMQ's 4.9 does not look after one that
was due when the broker died; of a node that is gone nobody learns that a connection has ended."""
NODE_DEAD: Final = 25.0
"""Until Kubernetes holds a node that says nothing for dead (the suite's own cluster): after 20 s,
for which it looks every 5 s. Services lead clients to name servers and ZooKeeper servers there
until then."""


def after_a_process(running: Load) -> None:
    """See that no gap was longer than the end of the master's process allows."""
    _check(running, {"metaq": SESSION + ELECTION}, SESSION + ELECTION + ROUTE + SEND)


def after_a_node(running: Load) -> None:
    """See that no gap was longer than the loss of the master's node allows."""
    found = NODE_DEAD + SESSION + ELECTION + SEND
    _check(running, {"metaq": found}, found + ROUTE)


def _check(running: Load, allowed: dict[str, float], otherwise: float) -> None:
    for name, gap in running.gaps().items():
        assert gap <= allowed.get(name, otherwise), name
