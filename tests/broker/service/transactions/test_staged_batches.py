"""Micro-batches of a sink through crashes and failovers: readers see one attempt of each, whole.

Leaders follow each other as in `test_metaq_transactions`, cut at any record. A driver stages
attempts, publishes, hears nothing, begins again with other rows.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.config.live import LiveSettings
from imago_broker.config.sections.metaq_section import MetaqSection
from imago_broker.core.transactions.metaq_transaction import MetaqOutcome, MetaqTransactionError
from imago_broker.service.metaq_transactions import decided, staged_batches, transaction_log, writer
from imago_broker.service.metaq_transactions.service import MetaqTransactions
from imago_broker.service.metaq_transactions.staged_batches import (
    BatchDecidedError,
    StagedBatches,
    StagedKey,
)
from imago_broker.service.metaq_transactions.staged_marks import cut_unpublished
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.searching import examples
from imago_testing.stores.bare_brokers import BareBroker, Succession, leading_store
from imago_wire.remoting.messages import BatchEntry
from imago_wire.remoting.staged import ONCE_PREFIX

if TYPE_CHECKING:
    from imago_log import MessageStore
    from imago_testing.virtual.clocks import ManualClock

QUEUES = 3
SINK = "a sink: 7/é"
How = PutStatus | MetaqTransactionError


class StagingLeader(BareBroker):
    """One life of a leader that takes micro-batches."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        super().__init__(store, clock, topics={"T": QUEUES})
        self.transactions = MetaqTransactions(
            self.messages,
            self.topics,
            loop=self.event_loop,
            clock=clock,
            settings=LiveSettings(MetaqSection()),
        )
        self.transactions.writer.delay = cast("Any", SimpleNamespace(level_max=18))
        self.staged = StagedBatches(
            self.transactions, self.messages, clock=clock, loop=self.event_loop
        )
        self.messages.when_visible(self.store.log_end, self.transactions.start)
        self.staged.start()

    def stage(self, batch: int, attempt: str, part: int, rows: int, told: Any) -> None:
        name = f"{batch}.{attempt}.{part}"
        entries = [
            BatchEntry(f"{name}.{row}".encode(), f"UNIQ_KEY\x01{name}.{row}\x02".encode())
            for row in range(rows)
        ]
        self.staged.stage(
            StagedKey(SINK, batch, attempt, part, "T"),
            part % QUEUES,
            entries,
            user="address here",
            born_ms=5,
            born_host=bytes(8),
            told=told,
        )

    def seen(self) -> dict[int, dict[str, int]]:
        """Return how many rows of which attempt readers see, by micro-batch."""
        found: dict[int, dict[str, int]] = {}
        for queue in range(QUEUES):
            for body in self.bodies("T", queue):
                batch, attempt, _, _ = body.split(".")
                of_batch = found.setdefault(int(batch), {})
                of_batch[attempt] = of_batch.get(attempt, 0) + 1
        return found


class SinkWorld(Succession[StagingLeader]):
    """A driver that does what Spark does, over leaders that follow each other."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, StagingLeader, cut_unpublished)
        self.batch, self.attempts = 0, 0
        self.rows: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        self.published: dict[int, tuple[int, str]] = {}
        """The end of the log when it was told that a micro-batch is published, and which."""
        self.counted: dict[int, str] = {}
        self.confirm_log()

    def stage(self) -> None:
        """Stage an attempt, perhaps with others that nobody will name."""
        for _ in range(self.rng.randint(1, 2)):
            self.attempts += 1
            attempt, parts = f"a{self.attempts}", self.rng.randint(1, 4)
            told: list[How] = []
            self.rows[attempt] = 0
            try:
                for part in range(parts):
                    rows = self.rng.randint(1, 4)
                    self.rows[attempt] += rows
                    self.leader.stage(self.batch, attempt, part, rows, told.append)
                    if self.rng.random() < 0.1:  # the answer was lost
                        self.leader.stage(self.batch, attempt, part, rows, told.append)
            except BatchDecidedError as error:
                self._counts(error)
                return
            self.maybe_end_turn()
            self.confirm_log()
            if told and all(how is PutStatus.OK for how in told):
                self.parts = {attempt: parts}

    def publish(self) -> None:
        parts, batch = self.parts, self.batch
        if not parts:
            return
        (attempt,) = parts

        def told(how: How) -> None:
            if how is PutStatus.OK:
                self.published[batch] = (self.leader.store.log_end, attempt)

        try:
            self.leader.staged.publish(SINK, batch, parts, attempt, told, user="user d")
        except BatchDecidedError as error:
            self._counts(error)
        except MetaqTransactionError:
            pass  # being published
        self.maybe_end_turn()

    def _counts(self, error: BatchDecidedError) -> None:
        """Go on as a driver does that hears what counts; it may be lost again until confirmed."""
        assert error.decided.batch == self.batch
        self.published[self.batch] = (self.leader.store.log_end, error.decided.said)

    def go_on(self) -> None:
        """Begin the next micro-batch once the last one is safe."""
        self.confirm_log()
        end, attempt = self.published.get(self.batch, (0, ""))
        if 0 < end <= self.confirmed_end:
            self.counted[self.batch] = attempt
            self.batch, self.parts = self.batch + 1, {}

    def fail_over(self) -> None:
        cut = self.next_leader()
        self.published = {batch: told for batch, told in self.published.items() if told[0] <= cut}
        if self.rng.random() < 0.3:
            self.parts = {}  # the driver died, too
        self.pass_time(600)
        self.confirm_log()
        self.pass_time(600)

    def check(self) -> None:
        seen = self.leader.seen()
        for batch, attempts in seen.items():
            assert len(attempts) == 1, f"{batch} is there of several attempts: {attempts}"
            ((attempt, rows),) = attempts.items()
            assert rows == self.rows[attempt], f"{batch} is there in part"
        for batch, attempt in self.counted.items():
            assert list(seen[batch]) == [attempt], f"{batch} was acknowledged"

    def _note(self) -> None:
        self.leader.transactions.notes.note()

    def step(self) -> None:
        self.happen(
            (0.4, self.stage),
            (0.65, self.publish),
            (0.8, self.go_on),
            (0.85, self._note),
            (1.0, self.fail_over),
        )
        self.check()


@pytest.mark.parametrize("seed", range(examples(80)))
def test_readers_see_one_attempt_of_each_micro_batch(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = leading(monkeypatch, STEP_ROWS=1 + seed % 9, seed=seed)
    for _ in range(60):
        world.step()
    for _ in range(20):
        world.pass_time(600)
        world.go_on()
        world.stage()
        world.publish()
        world.check()
    world.go_on()
    assert len(world.counted) >= 10
    assert sorted(world.counted) == list(range(len(world.counted)))
    left = [StagedKey.of(each).batch for each in world.leader.transactions.open]
    assert all(batch >= world.batch - 1 for batch in left), "older attempts are rolled back"
    assert world.leader.transactions.open.recoverable(None) == [], "no manager of XA sees them"


def leading(monkeypatch: pytest.MonkeyPatch, *, seed: int = 0, **limits: int) -> SinkWorld:
    for name, value in limits.items():
        (module,) = [one for one in (staged_batches, decided, writer) if hasattr(one, name)]
        monkeypatch.setattr(module, name, value)
    return SinkWorld(seed)


def test_what_nobody_decides_about_goes_after_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    world = leading(monkeypatch, GIVEN_UP_MS=3_000, SWEEP_S=2)
    told: list[How] = []
    world.leader.stage(0, "a", 0, 3, told.append)
    world.confirm_log()
    world.pass_time(2_100)
    assert world.leader.transactions.open.count == 1
    world.pass_time(2_000)
    world.confirm_log()
    assert (told, world.leader.transactions.open.count) == ([PutStatus.OK], 0)
    with pytest.raises(MetaqTransactionError, match="0 of 1 parts are staged"):
        world.leader.staged.publish(SINK, 0, {"a": 1}, "", told.append, user="")


@pytest.mark.parametrize("limit", ["ROWS_MAX", "BYTES_MAX"])
def test_a_micro_batch_has_bounds(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = leading(monkeypatch, **{limit: 3 if limit == "ROWS_MAX" else 150})
    told: list[How] = []
    for batch, rows in ((0, 3), (1, 4)):
        world.leader.stage(batch, "a", 0, rows, told.append)
        world.confirm_log()
        world.leader.staged.publish(SINK, batch, {"a": 1}, "", told.append, user="")
        world.confirm_log()
    assert told[:3] == [PutStatus.OK] * 3
    assert isinstance(told[3], MetaqTransactionError)
    assert list(world.leader.seen()) == [0]
    assert world.leader.transactions.open.count == 1, "it waits as before"


def published(world: SinkWorld, sink: str, user: str, *, said: str = "x", batch: int = 5) -> How:
    told: list[How] = []
    world.leader.staged.publish(sink, batch, {}, said, told.append, user=user)
    world.confirm_log()
    return told[0]


@pytest.mark.parametrize("limit", ["SINKS_MAX", "SINKS_BYTES_MAX"])
def test_only_a_users_newest_sinks_are_remembered(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = leading(monkeypatch, **{limit: 8 if limit == "SINKS_MAX" else 11_000})
    said = "x" if limit == "SINKS_MAX" else "x" * 800
    published(world, "victim", "user v")
    for number in range(20):
        assert published(world, f"s{number}", "user m", said=said) is PutStatus.OK
    for _ in range(2):
        assert set(world.leader.transactions.term.decided) == {"victim", "s18", "s19"}
        assert set(world.leader.store.meta("sink")) == {"victim", "s18", "s19"}
        world.next_leader()
        world.confirm_log()
    with pytest.raises(BatchDecidedError, match="5"):
        published(world, "victim", "user v", batch=4)
    for number in range(9):
        published(world, f"a{number}", f"user {number}")
        published(world, f"b{number}", f"user {number}", said=said)
    kept = world.leader.transactions.term.decided
    assert len(kept) <= decided.SINKS_MAX, "of all users together, too"
    assert kept.size <= decided.SINKS_BYTES_MAX
    assert "s18" not in kept, "who keeps most loses first"


def test_commands_that_publish_once_push_out_no_sink_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = leading(monkeypatch, SINKS_MAX=12)
    published(world, "stream", "user m")
    for number in range(20):
        published(world, f"{ONCE_PREFIX}{number}", "user m", batch=0)
    kept = {"stream", f"{ONCE_PREFIX}18", f"{ONCE_PREFIX}19"}
    for _ in range(2):
        assert set(world.leader.transactions.term.decided) == kept
        assert set(world.leader.store.meta("sink")) == kept
        world.next_leader()
        world.confirm_log()
    for number in range(3):
        published(world, f"s{number}", "user m")
    assert set(world.leader.transactions.term.decided) == {"s0", "s1", "s2"}


def test_nothing_is_kept_of_a_publication_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = leading(monkeypatch)
    world.leader.stage(0, "a", 0, 3, lambda _: None)
    world.confirm_log()
    end = world.leader.store.log_end
    assert published(world, "other", "user m", said="") is PutStatus.OK
    assert world.leader.store.log_end == end
    assert published(world, SINK, "user m", said="", batch=0) is PutStatus.OK
    assert (len(world.leader.transactions.term.decided), world.leader.seen()) == (0, {})
    assert world.leader.transactions.open.count == 0, "what was staged is rolled back"


def test_a_decision_that_its_mark_alone_tells_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = leading(monkeypatch, SWEEP_S=1)
    world.clock.advance(1_000_000_000)
    store = world.leader.store
    monkeypatch.setattr(store, "put_meta", lambda _: 0)  # its leader dies before
    published(world, SINK, "user v", said="what counts")
    assert not store.meta("sink")
    world.next_leader()
    world.confirm_log()
    world.pass_time(3_000)
    kept = world.leader.transactions.term.decided.get(SINK)
    assert kept is not None
    assert (kept.batch, kept.said, kept.user) == (5, "what counts", "user v")
    assert kept.at_ms >= 1_000_000_000
    assert SINK in world.leader.store.meta("sink"), "marks are not looked for forever"


def test_other_clients_have_their_turns_while_a_large_micro_batch_is_made_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = leading(monkeypatch, STEP_ROWS=4)
    for part in range(9):
        world.leader.stage(0, "a", part, 4, lambda _: None)
    world.confirm_log()
    loop, read = world.leader.loop, transaction_log.read_messages
    turns, call_soon = [0], loop.call_soon

    def soon(*asked: Any) -> Any:
        turns.append(0)
        return call_soon(*asked)

    def reads(*asked: Any) -> Any:
        turns[-1] += 1
        return read(*asked)

    monkeypatch.setattr(loop, "call_soon", soon)
    monkeypatch.setattr(transaction_log, "read_messages", reads)
    world.leader.staged.publish(SINK, 0, {"a": 9}, "x", lambda _: None, user="")
    world.confirm_log()
    assert (sum(turns), max(turns)) == (9, 1)
    assert world.leader.seen() == {0: {"a": 36}}


def test_what_readers_may_have_seen_is_never_cut(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = leading(monkeypatch)
    world.leader.stage(0, "a", 0, 9, lambda _: None)
    world.confirm_log()
    world.leader.staged.publish(SINK, 0, {"a": 1}, "x", lambda _: None, user="")
    world.leader.loop.run()
    seen = world.borders()[5]
    half = leading_store(world.vfs.crashed(power_loss=False), world.clock, 9, seen)
    half.follow(10)
    half.set_high_watermark(seen)
    assert cut_unpublished(half) is None
    assert half.log_end == seen
    assert "micro_batch_seen_in_part" in caplog.text
    half.close()


def test_a_sink_forgets_what_it_has_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    world = leading(monkeypatch)
    told: list[How] = []
    world.leader.stage(0, "a", 0, 3, told.append)
    world.confirm_log()
    world.leader.staged.roll_back(SINK, 0, told.append)
    world.confirm_log()
    assert (told, world.leader.seen()) == ([PutStatus.OK] * 2, {})
    assert world.leader.transactions.open.count == 0
    world.next_leader()
    world.confirm_log()
    assert world.leader.transactions.open.count == 0


def test_a_person_ends_nothing_of_a_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    world = leading(monkeypatch)
    world.leader.stage(0, "a", 0, 3, lambda _: None)
    world.confirm_log()
    (each,) = world.leader.transactions.open
    with pytest.raises(MetaqTransactionError, match="all of it or nothing"):
        world.leader.transactions.decide(
            each.key, MetaqOutcome.HEURISTICALLY_COMMITTED, lambda _: None
        )
