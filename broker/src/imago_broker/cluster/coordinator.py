"""The coordinator over a tree of nodes: ZooKeeper's or the one in memory.

Two tasks: the reader brings the snapshot up to date when a watch fired, the writer runs a pass
of the keeper when a wish changed. Both start over from the beginning whenever a session comes
back, because any watch may have been missed and any node of ours may be gone.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from imago_broker.cluster import edits, leadership, znodes
from imago_broker.cluster.keeper import RECORD, Keeper
from imago_broker.cluster.lease import monotonic_ms
from imago_broker.cluster.leased_session import LeasedSession, tell
from imago_broker.cluster.mirror import Mirror
from imago_broker.cluster.shared import Edit, surplus
from imago_broker.cluster.shared_changes import SharedChanges
from imago_broker.cluster.tree import (
    NodeError,
    TreeConfigurationError,
    TreeUnavailableError,
)
from imago_broker.model.cluster import RegistryConnection
from imago_broker.ports import (
    CoordinatorConflictError,
    CoordinatorError,
    CoordinatorUnavailableError,
    RegistryDamagedError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.model.cluster import (
        BrokerRecord,
        ClusterView,
        ForeignBroker,
        TopicPlacement,
    )
    from imago_broker.model.shard import ShardState

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
FAILURES_LOGGED_MAX = 5
SECONDS_PER_TOPIC = 0.005
"""Added to the operation time-out: three nodes a topic are new in a new session."""


@dataclass(slots=True)
class _Waiter:
    keys: frozenset[str]
    done: asyncio.Future[None]


class TreeCoordinator(SharedChanges):
    """`imago_broker.ports.Coordinator` over a `NodeTree`."""

    def __init__(
        self,
        config: CoordinatorConfig,
        tree: NodeTree,
        *,
        process_id: str | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """The process id keeps apart what several processes write; random unless given."""
        self._config = config
        self._tree = tree
        self._paths = znodes.Paths(config.cluster)
        self._mirror = Mirror(self._paths, tree)
        self._process_id = process_id or uuid4().hex
        self._keeper = Keeper(config, self._paths, tree, holder=self._process_id, now_ms=now_ms)
        self._prepared = 0
        self._read_wake = asyncio.Event()
        self._write_wake = asyncio.Event()
        self._session = LeasedSession(
            config,
            tree,
            now_ms=now_ms,
            on_connected=self._connected,
            on_doubt=self._write_wake.set,
        )
        self._change_callbacks: list[Callable[[ClusterView], None]] = []
        self._dirty: set[str] = set()
        self._given = 0
        """Changes by which we may have given leadership away, until the state is read again."""
        self._read_lock = asyncio.Lock()
        self._waiters: list[_Waiter] = []
        self._failed: dict[str, CoordinatorError] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> RegistryConnection:
        return self._session.state

    @property
    def registered(self) -> BrokerRecord | None:
        return self._keeper.registered

    @property
    def lease_end_ms(self) -> int:
        return self._session.lease_end_ms

    def view(self) -> ClusterView:
        return self._mirror.view

    def on_change(self, callback: Callable[[ClusterView], None]) -> None:
        self._change_callbacks.append(callback)

    def on_state(self, callback: Callable[[RegistryConnection], None]) -> None:
        self._session.on_state(callback)

    async def start(self) -> None:
        self._tree.on_connection(self._session.connection_changed)
        self._tree.on_watch(self._watch_fired)
        try:
            await self._tree.start()
            await self._begin()
            await self._session.start()
        except TreeUnavailableError as error:
            await self._tree.stop()
            raise CoordinatorUnavailableError(str(error)) from error
        except TreeConfigurationError as error:
            await self._tree.stop()
            raise CoordinatorConflictError(str(error)) from error
        except NodeError as error:
            await self._tree.stop()
            raise CoordinatorError(f"the registry refuses us: {error}") from error
        except asyncio.CancelledError:
            await self._tree.stop()
            raise
        self._tasks = [
            asyncio.create_task(self._loop("reader", self._read_wake, self._read)),
            asyncio.create_task(self._loop("writer", self._write_wake, self._write)),
        ]

    async def _begin(self) -> None:
        """See what there is; again where a connection is lost meanwhile, within the same time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._config.connect_timeout_ms / 1000
        while True:
            try:
                await self._prepare()
                await self._refresh(self._mirror.everything())
            except TreeUnavailableError as error:
                if loop.time() >= end_s:
                    raise
                logger.info("registry_unavailable task=start reason=%s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks and self.state is RegistryConnection.CONNECTED:
            await self._leave()
        await self._tree.stop()
        await self._session.stop()

    async def register(self, record: BrokerRecord) -> int:
        self._keeper.wish_record(record)
        await self._ask([RECORD], extra_seconds=self._config.stranger_wait_seconds)
        registered = self._keeper.registered
        if registered is None:
            raise CoordinatorUnavailableError("the session ended while the broker registered")
        return registered.incarnation

    async def change_shard(self, shard: int, state: ShardState) -> ShardState:
        record = self._keeper.registered
        if record is None or record.shard != shard:
            raise CoordinatorConflictError(f"no registration of ours in shard {shard}")
        if self.state is not RegistryConnection.CONNECTED:
            raise CoordinatorUnavailableError(f"the registry session is {self.state}")
        if giving := state.leader != (record.uuid, record.incarnation):
            self._keeper.hold()
        path = self._paths.state(shard)
        async with self._answered(path):
            try:
                return await leadership.change(self._tree, self._paths, state, record)
            finally:
                self._given += giving
                await self._look_again(path)

    async def read_shard(self, shard: int) -> ShardState | None:
        await self._read_now(self._paths.state(shard))
        return self.view().states.get(shard)

    async def unregister(self) -> None:
        self._keeper.wish_no_record()
        await self._ask([RECORD])

    async def publish_topic(self, placement: TopicPlacement) -> None:
        await self.publish_topics([placement])

    async def publish_topics(
        self, placements: Sequence[TopicPlacement], *, complete: bool = False
    ) -> None:
        keys = self._keeper.wish_topics(placements)
        if complete:
            gone = surplus(self.view(), self._keeper.registered, placements)
            keys += self._keeper.wish_no_topics(gone)
        await self._ask(keys, extra_seconds=len(keys) * SECONDS_PER_TOPIC)

    async def remove_topic(self, name: str) -> None:
        await self._ask(self._keeper.wish_no_topics([name]))

    async def put_foreign(self, broker: ForeignBroker) -> None:
        await self._ask([self._keeper.foreigners.wish(broker.key, broker)])

    async def remove_foreign(self, key: tuple[str, str, int]) -> None:
        await self._ask([self._keeper.foreigners.wish(key, None)])

    async def _prepare(self) -> None:
        """Make sure, in every new session, that the registry is there and is ours."""
        session_id = self._tree.session_id
        await edits.ensure(self._tree, self._paths.skeleton())
        wanted = znodes.ClusterIdentity(
            self.view().cluster_id or uuid4().hex,
            self._config.metaq_root,
            self._config.metaq_broker_id_base,
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
        self._prepared = session_id

    async def _change(self, path: str, edit: Edit) -> None:
        async with self._answered(path):
            await edits.change(self._tree, path, edit)
            await self._refresh({path})

    async def _read_now(self, path: str) -> None:
        async with self._answered(path):
            await self._tree.sync()
            await self._refresh({path})
        if reason := self.view().refused.get(path):
            raise RegistryDamagedError(path, reason)

    @asynccontextmanager
    async def _answered(self, path: str) -> AsyncIterator[None]:
        """Say in the port's terms what became of work on a node, and give it an end."""
        try:
            async with asyncio.timeout(self._config.operation_timeout_ms / 1000):
                yield
        except (TimeoutError, TreeUnavailableError) as error:
            raise CoordinatorUnavailableError(f"{path}: {error}") from error
        except znodes.GarbageError as error:
            raise RegistryDamagedError(error.path, error.reason) from error
        except (NodeError, ValueError, TypeError) as error:
            raise CoordinatorError(f"{path}: {error}") from error

    async def _look_again(self, path: str) -> None:
        try:
            await self._refresh({path})
        except TreeUnavailableError:
            self._watch_fired(path)

    async def _ask(self, keys: Iterable[str], *, extra_seconds: float = 0) -> None:
        """Wait until a pass of the writer that starts from now on has dealt with these wishes."""
        done = asyncio.get_running_loop().create_future()
        waiter = _Waiter(frozenset(keys), done)
        self._waiters.append(waiter)
        self._write_wake.set()
        seconds = self._config.operation_timeout_ms / 1000 + extra_seconds
        try:
            async with asyncio.timeout(seconds):
                await done
        except TimeoutError as error:
            raise CoordinatorUnavailableError(
                f"not written within {seconds:g} s; it will be when the registry answers"
            ) from error
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def _loop(
        self, name: str, wake: asyncio.Event, step: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await wake.wait()
            wake.clear()
            try:
                await step()
            except TreeUnavailableError as error:
                logger.info("registry_unavailable task=%s reason=%s", name, error)
                self._wake_later(wake, RETRY_SECONDS)
            except Exception:
                # A mistake of ours: say it, and keep the registry going with what works.
                logger.exception("registry_task_failed task=%s", name)
                self._wake_later(wake, RETRY_SECONDS)

    async def _read(self) -> None:
        dirty, self._dirty = self._dirty, set()
        try:
            await self._refresh(dirty)
        except BaseException:
            self._dirty |= dirty
            raise

    async def _refresh(self, paths: set[str]) -> None:
        # One reader at a time: an older answer must never overwrite a newer one.
        async with self._read_lock:
            given = self._given if any(path.endswith("/state") for path in paths) else 0
            changed = await self._mirror.refresh(paths)
            self._given -= given
        view = self._mirror.view
        # Not only when it changed: what we wrote may be gone again before we first read it.
        if self._keeper.doubts(view, self._mirror.buckets):
            self._write_wake.set()
        if (due_ms := self._keeper.due_ms) is not None:
            self._wake_later(self._write_wake, due_ms / 1000)
        for _ in range(given):
            self._keeper.release()
        if changed:
            tell(self._change_callbacks, view)

    async def _write(self) -> None:
        waiters, self._waiters = self._waiters, []
        try:
            await self._verify()
            if self._prepared != self._tree.session_id:
                await self._prepare()
                # Nothing is written by what was known before the connection was lost.
                await self._refresh(self._mirror.state_paths())
            written, failures = await self._keeper.settle()
            # What watches have told of these nodes so far, this reading will see.
            self._dirty -= written
            await self._refresh(written)
        except BaseException:
            self._waiters = waiters + self._waiters
            # Whatever it was: perhaps somebody deleted what we stand on.
            self._prepared = 0
            raise
        self._report(failures)
        for waiter in waiters:
            if waiter.done.done():
                continue
            errors = [failures[key] for key in sorted(waiter.keys & failures.keys())]
            if errors:
                waiter.done.set_exception(errors[0])
            else:
                waiter.done.set_result(None)

    async def _verify(self) -> None:
        await self._keeper.verify()
        if self._keeper.fenced:
            self._session.fenced()
        else:
            self._session.verified()

    def _report(self, failures: dict[str, CoordinatorError]) -> None:
        fresh = sorted(failures.keys() - self._failed.keys())
        for key in fresh[:FAILURES_LOGGED_MAX]:
            logger.warning("registry_wish_failed wish=%s reason=%s", key, failures[key])
        if len(fresh) > FAILURES_LOGGED_MAX:
            logger.warning("registry_wishes_failed more=%d", len(fresh) - FAILURES_LOGGED_MAX)
        self._failed = failures
        if failures and not self._keeper.fenced:
            self._wake_later(self._write_wake, RETRY_SECONDS)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(self._config.operation_timeout_ms / 1000):
                await self._keeper.leave()
        except (TimeoutError, TreeUnavailableError) as error:
            # The session's end takes the nodes away a little later.
            logger.warning("registry_leave_failed reason=%s", error)

    def _watch_fired(self, path: str) -> None:
        self._dirty.add(path)
        self._read_wake.set()

    def _connected(self) -> None:
        self._dirty |= self._mirror.everything()
        self._prepared = 0
        self._read_wake.set()

    def _wake_later(self, wake: asyncio.Event, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, wake.set)
