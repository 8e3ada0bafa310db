"""Makes sure, in every new session, that the registry is there and is of our cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.cluster import znodes
from imago_broker.cluster.edits import edits
from imago_broker.cluster.tree import TreeConfigurationError
from imago_broker.model import feature_level

if TYPE_CHECKING:
    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths


class Preparation:
    """The nodes that everything else stands below."""

    def __init__(self, config: CoordinatorConfig, paths: Paths, tree: NodeTree) -> None:
        self._config = config
        self._paths = paths
        self._tree = tree
        self._session_id = 0
        """The session that found them; 0: they are to be read again."""

    @property
    def needed(self) -> bool:
        """Whether this session has not looked yet."""
        return self._session_id != self._tree.session_id

    def forget(self) -> None:
        """Look again before anything is written."""
        self._session_id = 0

    async def prepare(self, cluster_id: str) -> None:
        """Make what is missing; `cluster_id`: the one that we know, or "".

        TreeConfigurationError: the cluster was made with other settings than ours.
        """
        session_id = self._tree.session_id
        await edits.ensure(self._tree, self._paths.skeleton())
        wanted = znodes.ClusterIdentity(
            cluster_id or self._config.new_id(),
            self._config.metaq_root,
            self._config.metaq_broker_id_base,
            # One that is made now is all of this version's.
            feature_level.NEWEST,
        )
        path = self._paths.identity
        await edits.ensure(self._tree, [(path, znodes.encode_identity(wanted))])
        node = await self._tree.get(path)
        try:
            found = znodes.decode_identity(path, node.data if node else b"")
        except znodes.GarbageError as error:
            raise TreeConfigurationError(str(error)) from error
        if (found.metaq_root, found.broker_id_base) != (wanted.metaq_root, wanted.broker_id_base):
            raise TreeConfigurationError(
                f"cluster {self._config.cluster} was made with metaq.zk_root = "
                f"{found.metaq_root!r} and metaq.broker_id_base = {found.broker_id_base}; "
                "give every process of it these values"
            )
        if reason := feature_level.too_old(found.feature_level):
            raise TreeConfigurationError(f"cluster {self._config.cluster}: {reason}")
        self._session_id = session_id
