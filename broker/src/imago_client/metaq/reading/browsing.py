"""What browsers and lists of partitions have in common on asyncio and blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.metaq.reading.cursor import FetchCursor
from imago_client.metaq.values import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_client.core.metaq.nodes import BrokerAddresses, PartitionId

BROWSER_GROUP = "Just_for_Browser"
BROWSER_BYTES = 1 << 20


def serving(
    offered: Iterable[PartitionId], cluster: Mapping[int, BrokerAddresses]
) -> list[Partition]:
    """Return partitions with who serves each now: its master, else a slave; else it is left out."""
    found = []
    for each in sorted(offered):
        broker = cluster.get(each.broker_id)
        servers = (broker.master, *broker.slaves) if broker else ()
        address = next((one for one in servers if one), None)
        if address is not None:
            found.append(Partition(each.topic, address, each.number, each.broker_id))
    return found


def browsing_cursor(size_max: int) -> FetchCursor:
    """Return where a browser begins."""
    return FetchCursor(0, size_max, 1.0)
