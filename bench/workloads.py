"""The workloads, as a table: what is sent, how many at once, with which settings, and the aim."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the benchmark.

    `aim` and `aim_of` say what is hoped for on two cores (`server_cpu_us`: µs of broker CPU a
    message, at most; `times_plain`: how many times the CPU of the plain work, at most; `rate`,
    `bytes_per_second`: at least). `floor` also runs the same load against the server that stores
    nothing.
    """

    name: str
    work: str
    keys: dict[str, int | str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    aim: float = 0
    aim_of: str = "server_cpu_us"
    floor: bool = True
    fill_bytes: int = 0
    """Backlog to write before reading."""
    beside: str = ""
    """The plain work that it is compared with, run just before on the same broker."""
    reader: str = ""
    """`first` or `later`: a consumer that comes back to a broker started behind the fill."""

    @property
    def protocol(self) -> str:
        return "metaq" if self.work in {"put", "get"} else "rocketmq"


FSYNC = ("acknowledgement.level=leader-fsync",)
GIB = 1 << 30

WORKLOADS = [
    Workload("MetaQ put, 64 × 1", "put", {"conns": 64}, aim=5),
    Workload("RocketMQ send, 64 × 1", "send", {"conns": 64}, aim=8),
    Workload("MetaQ put, 1 × 64", "put", {"conns": 1, "depth": 64}, aim=2),
    Workload("MetaQ put, 16 × 64", "put", {"conns": 16, "depth": 64}, aim=2),
    Workload("RocketMQ send, 16 × 64", "send", {"conns": 16, "depth": 64}, aim=8),
    Workload("RocketMQ batches of 16, 64 × 1", "batch", {"conns": 64}, aim=2),
    Workload("MetaQ put, 64 × 1, 128 B", "put", {"conns": 64, "size": 128}, aim=5),
    Workload("MetaQ put, fsync, 64 × 1", "put", {"conns": 64}, FSYNC, 60_000, "rate", floor=False),
    Workload(
        "MetaQ put, fsync, 16 × 64",
        "put",
        {"conns": 16, "depth": 64},
        FSYNC,
        200_000,
        "rate",
        floor=False,
    ),
    Workload(
        "MetaQ get, catch-up",
        "get",
        {"conns": 4, "fetch": 1 << 20},
        (),
        4e9,
        "bytes_per_second",
        floor=False,
        fill_bytes=GIB,
    ),
    Workload(
        "MetaQ get, backlog of 3 GB, first reader",
        "get",
        {"conns": 4, "fetch": 1 << 20},
        (),
        1e9,
        "bytes_per_second",
        floor=False,
        fill_bytes=3 * GIB,
        reader="first",
    ),
    Workload(
        "MetaQ get, backlog of 3 GB, later readers",
        "get",
        {"conns": 4, "fetch": 1 << 20},
        (),
        4e9,
        "bytes_per_second",
        floor=False,
        fill_bytes=3 * GIB,
        reader="later",
    ),
    Workload(
        "RocketMQ pull, catch-up",
        "pull",
        {"conns": 4, "fetch": 1 << 22, "messages": 32},
        (),
        1.2e9,
        "bytes_per_second",
        floor=False,
        fill_bytes=GIB,
    ),
    Workload(
        "RocketMQ transactions, 64 × 1",
        "transaction",
        {"conns": 64},
        aim=2.5,
        aim_of="times_plain",
        floor=False,
        beside="send",
    ),
    Workload(
        "RocketMQ timer messages of 1 s, 64 × 1",
        "timer",
        {"conns": 64, "warmup": 3},
        aim=2.5,
        aim_of="times_plain",
        floor=False,
        beside="send",
    ),
    Workload(
        "RocketMQ delay level of 1 s, 64 × 1",
        "delay",
        {"conns": 64, "warmup": 3},
        aim=2.5,
        aim_of="times_plain",
        floor=False,
        beside="send",
    ),
    Workload(
        "RocketMQ pull, SQL92 filter over all, half match",
        "filter",
        {"conns": 4, "fetch": 1 << 22, "messages": 32},
        aim=2.5,
        aim_of="times_plain",
        floor=False,
        fill_bytes=GIB // 4,
        beside="pull",
    ),
    Workload(
        "MetaQ put, open loop 20 k/s", "put", {"conns": 16, "depth": 1024, "rate": 20_000}, aim=0
    ),
    Workload(
        "RocketMQ send, open loop 20 k/s",
        "send",
        {"conns": 16, "depth": 1024, "rate": 20_000},
        aim=0,
    ),
    Workload(
        "RocketMQ send, open loop 20 k/s, read along",
        "send",
        {"conns": 16, "depth": 1024, "rate": 20_000, "along": 4},
        aim=0,
    ),
    Workload(
        "MetaQ put, 64 × 1, 1,000 topics × 10",
        "put",
        {"topics": 1000, "queues": 10, "warmup": 15},
        aim=6,
    ),
]
