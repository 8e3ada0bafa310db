"""A broker that starts while the registry stammers waits for it, as long as for a connection."""

from __future__ import annotations

import pytest

from imago_broker.cluster import coordinator
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.cluster.tree import Node, TreeUnavailableError
from imago_broker.model.registry.cluster import RegistryConnection
from imago_broker.ports import CoordinatorUnavailableError


class StammeringTree(MemoryTree):
    """Loses its connection under so many reads."""

    def __init__(self, losses: int) -> None:
        super().__init__(MemoryEnsemble())
        self.losses = losses

    async def get(self, path: str, watch: bool = False) -> Node | None:
        if self.losses:
            self.losses -= 1
            raise TreeUnavailableError("ZooKeeper did not answer: ConnectionLoss")
        return await super().get(path, watch)


async def test_a_connection_that_is_lost_at_the_start_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "RETRY_SECONDS", 0)
    made = TreeCoordinator(CoordinatorConfig(cluster="c"), StammeringTree(5))
    await made.start()
    assert made.state is RegistryConnection.CONNECTED
    assert made.view().cluster_id
    await made.stop()


async def test_a_registry_that_stays_away_ends_the_start() -> None:
    config = CoordinatorConfig(cluster="c", connect_timeout_ms=0)
    with pytest.raises(CoordinatorUnavailableError, match="ConnectionLoss"):
        await TreeCoordinator(config, StammeringTree(1)).start()
