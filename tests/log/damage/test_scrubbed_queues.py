"""What a step of the scrubber reads of more queues than the compiled scan holds at a time."""

from __future__ import annotations

from imago_log.lifecycle.scrubbing import _Step
from imago_testing.stores.in_memory import Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.record_format.layout import UNIT

QUEUES = 300


def test_every_unit_of_every_queue_is_seen() -> None:
    store = open_store(MemoryVfs(), segment_bytes_max=1 << 18)
    store.create_topic("many", {"queues": QUEUES})
    for _ in range(3):
        Model().send(store, [("many", queue, 20) for queue in range(QUEUES)])
    state = store.components.storage
    end = store.log_end
    step = _Step(state.log, state.damage, state.witness, 0, end, end, [])
    step.run()
    tails = [
        pair for block in step.blocks for key, pair in block.units.items() if key[0] == b"many"
    ]
    assert sum(len(tail.units) // UNIT.size for _, tail in tails) == 3 * QUEUES
    assert step.suspects == []
