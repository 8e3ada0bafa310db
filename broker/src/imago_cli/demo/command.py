"""`imago demo`: both protocols and Spark agree on tens of thousands of real records."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from imago_cli.connect import AsJson, client_errors
from imago_cli.exits import CommandUsageError, Exit
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_cli.demo.checks import ReadRecords
    from imago_cli.demo.processes import Cluster
    from imago_cli.demo.records import DemoRecord
    from imago_cli.messages.pace import Pace

DEFAULT_DATA = Path("demo-data")
PAGE = "report.html"
_MARKER = ".imago-demo"


class DemoStep(NamedTuple):
    """One row of the closing table."""

    what: str
    messages: int
    size: int
    seconds: float

    @property
    def rate(self) -> int:
        return round(self.messages / max(1e-9, self.seconds))


class StepOutcome(NamedTuple):
    """What happened."""

    steps: list[DemoStep]
    problems: list[str]


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("demo", demo)


def demo(
    keep: Annotated[
        bool, Option("--keep", help="Keep the cluster running afterwards, until Ctrl-C.")
    ] = False,
    replicas: Annotated[int, Option(help="Members of each shard.", least=1, most=5)] = 1,
    data: Annotated[
        Path, Option(help="Folder for all files; an earlier run's content is removed.")
    ] = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Run a real cluster here and check that both protocols and Spark agree on real records.

    Two shards, ZooKeeper and a name service run as processes of this machine. The messages are its
    own package lists, change logs and dpkg log, half through each protocol; a group of each
    protocol reads all of them; Spark writes the topic as Parquet, and a page about it. The command
    compares counts and checksums record by record. Exit codes: 0 all agree, 1 something differs,
    which it prints, 2 the folder belongs to something else.
    """
    folder = prepare_folder(data.absolute())
    with client_errors():
        code = asyncio.run(_run(folder, replicas=replicas, keep=keep, as_json=as_json))
    sys.exit(code)


def prepare_folder(folder: Path) -> Path:
    """Empty a folder that is ours, or make it. UsageError: it holds something else."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARKER).exists():
            raise CommandUsageError(
                f"{folder} holds something that is not of a demonstration",
                cure="give another folder with --data",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).touch()
    return folder


async def _run(folder: Path, *, replicas: int, keep: bool, as_json: bool) -> int:
    from imago_cli.demo.processes import SHARDS, start_cluster
    from imago_cli.demo.records import collect

    began = time.monotonic()
    brokers = SHARDS * replicas
    say(f"starting ZooKeeper, a name service and {brokers} brokers; reading this machine's records")
    reading = asyncio.create_task(asyncio.to_thread(collect))
    cluster = await start_cluster(folder / "cluster", folder / "cluster.log", replicas=replicas)
    try:
        say(f"dashboard while it runs: {cluster.dashboard}")
        outcome = await _show(cluster, await reading, folder)
        _report(outcome, cluster, folder, time.monotonic() - began, as_json=as_json)
        if keep:
            await _until_interrupted(cluster)
    finally:
        await cluster.stop()
    if not keep:
        shutil.rmtree(folder / "cluster", ignore_errors=True)
    return Exit.FAILED if outcome.problems else Exit.DONE


async def _show(cluster: Cluster, records: Sequence[DemoRecord], folder: Path) -> StepOutcome:
    from imago_cli.demo import traffic
    from imago_cli.demo.processes import start_spark
    from imago_client import Client

    parquet = folder / "parquet"
    page, groups = folder / PAGE, [traffic.ROCKETMQ_GROUP]
    spark = await start_spark(
        cluster.bootstrap, traffic.TOPIC, parquet, folder, page=page, groups=groups
    )
    try:
        async with Client(cluster.bootstrap) as client:
            await client.admin.create_topic(traffic.TOPIC, queues=4)
        by_metaq, by_rocketmq = records[0::2], records[1::2]
        say(f"sending {len(records):,} records, half through each protocol")
        sent = await asyncio.gather(
            traffic.send_by_metaq(cluster.metaq, by_metaq),
            traffic.send_by_rocketmq(cluster.bootstrap, by_rocketmq),
        )
        say("a group of each protocol reads all of them")
        read = await asyncio.gather(
            traffic.read_by_metaq(cluster.metaq, len(records)),
            traffic.read_by_rocketmq(cluster.bootstrap, len(records)),
        )
        say("Spark lands the topic as Parquet")
        landed = await spark.land()
    finally:
        await spark.stop()
    seen_by_spark = await asyncio.to_thread(_read_parquet, parquet)
    steps = [
        _step("sent through MetaQ", sent[0]),
        _step("sent through RocketMQ", sent[1]),
        _step("read by a MetaQ group", read[0][1]),
        _step("read by a RocketMQ group", read[1][1]),
        DemoStep("landed by Spark", landed["rows"], seen_by_spark.size, landed["seconds"]),
    ]
    return StepOutcome(
        steps, _problems(records, [read[0][0], read[1][0], seen_by_spark], landed["damaged"])
    )


def _step(what: str, pace: Pace) -> DemoStep:
    return DemoStep(what, pace.count, pace.size, pace.seconds)


def _problems(
    records: Sequence[DemoRecord], readers: Sequence[ReadRecords], damaged: int
) -> list[str]:
    from imago_cli.demo.checks import differences

    problems = [line for seen in readers for line in differences(records, seen)]
    if damaged:
        problems.append(f"Spark: {damaged} bodies do not match the checksum stored with them")
    return problems


def _read_parquet(path: Path) -> ReadRecords:
    """Read the landed files back, as any other program would."""
    import pyarrow.dataset

    from imago_cli.demo.checks import ReadRecords

    seen = ReadRecords("Parquet files")
    dataset = pyarrow.dataset.dataset(path, partitioning="hive")
    for batch in dataset.to_batches(columns=["value"]):
        for value in batch.column(0):
            seen.add(value.as_py())
    return seen


def _report(
    outcome: StepOutcome, cluster: Cluster, folder: Path, seconds: float, *, as_json: bool
) -> None:
    files = sorted((folder / "parquet").rglob("*.parquet"))
    if as_json:
        print_json(
            {
                "ok": not outcome.problems,
                "problems": outcome.problems,
                "seconds": round(seconds, 1),
                "steps": [{**step._asdict(), "perSecond": step.rate} for step in outcome.steps],
                "parquet": [str(path) for path in files],
                "report": str(folder / PAGE),
                "dashboard": cluster.dashboard,
            }
        )
        return
    print_table(
        f"{seconds:.0f} s in all",
        ("step", "messages", "bytes", "seconds", "messages/s"),
        [
            (step.what, step.messages, step.size, round(step.seconds, 2), step.rate)
            for step in outcome.steps
        ],
    )
    dates = sorted({path.parent.name for path in files})
    say(f"Parquet: {folder / 'parquet'} ({len(files)} files, {', '.join(dates)})")
    for problem in outcome.problems:
        say(f"MISMATCH {problem}")
    if not outcome.problems:
        say("every record, body for body, is the same in MetaQ, RocketMQ and Spark")
    say(f"a page about it, to open or to send: {folder / PAGE}")


async def _until_interrupted(cluster: Cluster) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    say(f"the cluster stays up until Ctrl-C: name service {cluster.bootstrap},")
    say(f"  MetaQ {cluster.metaq}, dashboard {cluster.dashboard}")
    await stopping.wait()
