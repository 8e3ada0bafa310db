"""Delayed messages become the same, made from their records as they stand or one by one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.broker.service.delays.test_delay import DelayWorld, Slave

from imago_broker.service.delays.parking import delayed_entry
from imago_wire.records.record import decode_record


def test_messages_are_delivered_alike_together_and_one_by_one() -> None:
    logs = []
    for slave in (None, Slave()):
        world = DelayWorld()
        world.broker.messages.pair = slave
        for name in ("first", "a", "b", "c"):
            entry = delayed_entry(
                world.broker.store, world.broker.delay, 1, topic="T", queue_id=0,
                body=name.encode(), properties=b"TAGS\x01red\x02KEYS\x01k\x02", flag=7, sys_flag=0,
                born_ms=1, born_host=bytes(20), reconsume_times=3,
            )  # fmt: skip
            world.broker.put(entry)
            world.broker.loop.run()
            world.run(1500 if name in {"first", "c"} else 0)
        read_one = partial(world.broker.store.read, "T", 0, messages_max=1, bytes_max=1)
        read = [decode_record(read_one(at).body) for at in range(4)]
        # A run is not divided between two files: it may stand further behind.
        for message in read:
            del message.properties["__CRC32#"]
        logs.append([replace(message, physical_offset=0) for message in read])
    assert logs[0] == logs[1]
