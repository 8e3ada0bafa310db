"""Topics as tables for a user with a password file, and that nothing of Spark's shows the secret.

Spark's pages are made of what its event log holds: plans, options and settings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlparse

import pytest
from pyspark.errors import PySparkException

from imago_client import Message
from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_operator.pipelines.config import pipeline_file
from imago_operator.pipelines.user import acls, user_name
from imago_spark.pipelines.ingest import build
from imago_spark.pipelines.late_workers import run_stream
from imago_testing.operated.pipelines import desired
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SECRET = "mark-7Zk0Qe-secret-of-spark"


class Cluster(NamedTuple):
    bootstrap: str
    password_file: Path
    run: Up
    user: Callable[..., None]
    """Runs `imago user` as the administrator."""

    @property
    def named(self) -> dict[str, str]:
        return {
            "bootstrap": self.bootstrap,
            "user": "spark",
            "passwordFile": str(self.password_file),
        }

    def client(self, user: str, password_file: Path) -> Client:
        return Client(
            ClientConfig(
                bootstrap=parse_addresses(self.bootstrap),
                user=user,
                password_file=str(password_file),
            )
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with access control, where `spark` may read orders and write copies."""
    data, password_file = tmp_path / "data", tmp_path / "spark.password"
    password_file.write_text(SECRET)
    password_file.chmod(0o600)
    base = ("--zookeeper", "none", "--port-base", str(free_port_block(20)))
    with up(data, *base, "--set", "acl.enabled=true") as running:

        def user(*words: str) -> None:
            environment = {
                "IMAGO_ADMIN": running.ready["brokers"][0]["admin"],
                "IMAGO_ADMIN_TOKEN_FILE": str(data / "admin-token"),
            }
            subprocess.run(
                [sys.executable, "-m", "imago_cli", "user", *words],
                cwd=tmp_path,
                env=os.environ | environment,
                check=True,
                capture_output=True,
            )

        user("create", "root", "--super")
        user("create", "spark", "--from-file", str(password_file))
        user("allow", "spark", "topic:orders", "subscribe")
        user("allow", "spark", "topic:copies", "publish")
        user("allow", "spark", "group:IMAGO_SPARK", "subscribe")
        yield Cluster(running.ready["namesrv"], password_file, running, user)


def test_a_query_is_its_users_and_shows_no_secret(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client("root", tmp_path / "root.password") as root:
        for topic in ("orders", "copies", "others"):
            root.admin.create_topic(topic, queues=1)
            root.producer().send(Message(topic, topic.encode()))
        frame = build(spark, {**cluster.named, "subscribe": "orders"})
        written = frame.select("value").write.format("imago").mode("append")
        written.options(**cluster.named, topic="copies").save()
        source = {**cluster.named, "subscribe": "orders", "startingOffsets": "earliest"}
        checkpoint = tmp_path / "checkpoint"
        stream = (
            spark.readStream.format("imago")
            .options(**source)
            .load()
            .select("value")
            .writeStream.format("imago")
            .options(**cluster.named, topic="copies", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
        )
        run_stream(lambda: stream.start().awaitTermination())
        consumer = root.pull_consumer("reader")
        [queue] = consumer.queues("copies")
        assert consumer.max_offset(queue) == 3

    plan = frame._jdf.queryExecution().toString()
    assert "imago" in plan
    assert SECRET not in plan
    assert SECRET not in cluster.run.log()
    events = Path(urlparse(spark.sparkContext.getConf().get("spark.eventLog.dir") or "").path)
    assert events.is_absolute()
    for folder, mark in ((events, b"SQLExecutionStart"), (checkpoint, b"shard-0")):
        kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert any(mark in content for content in kept.values()), "the right files are searched"
        assert [path for path, content in kept.items() if SECRET.encode() in content] == []

    with pytest.raises(PySparkException, match="User:spark has no permission"):
        build(spark, {**cluster.named, "subscribe": "others"}).count()
    with pytest.raises(PySparkException, match="username cannot be null"):
        build(spark, {"bootstrap": cluster.bootstrap, "subscribe": "orders"}).count()


def _ingest(cluster: Cluster, folder: Path, *topics: str, config: str = "") -> tuple[int, str]:
    """Run a pipeline as the user that the operator makes for it; return exit code and words."""
    source = {"topics": list(topics), "groupName": "lake"}
    made = desired({"spec.source": source, "spec.ingest": {"path": str(folder / "lake")}})
    text = pipeline_file(made).replace(made.bootstrap, cluster.bootstrap)
    text = text.replace('"/checkpoint"', f'"{folder / "checkpoint"}"')
    (folder / "pipeline.toml").write_text(f'{text}[config]\ntrigger = "available-now"\n{config}')
    program = [sys.executable, "-m", "imago_spark.pipelines.ingest", "--short", "--cores", "1"]
    program += ["--memory", "512m", "--config", str(folder / "pipeline.toml"), "--epoch", "0"]
    password = {"IMAGO_USER": user_name(made), "IMAGO_PASSWORD_FILE": str(cluster.password_file)}
    ended = subprocess.run(
        program, env=os.environ | password, capture_output=True, text=True, timeout=240, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.full
def test_a_pipelines_own_user_may_do_what_a_run_does(cluster: Cluster, tmp_path: Path) -> None:
    """Read its topics, ask whether the run may go on, report progress, commit for its group."""
    made = desired({"spec.source": {"topics": ["orders"], "groupName": "lake"}})
    name = user_name(made)
    cluster.user("create", name, "--from-file", str(cluster.password_file))
    for acl in acls(made):
        resource = acl["resource"]
        cluster.user(
            "allow", name, f"{resource['type'].lower()}:{resource['name']}", *acl["operations"]
        )
    with cluster.client("root", tmp_path / "root.password") as root:
        for topic in ("orders", "others"):
            root.admin.create_topic(topic, queues=1)
            root.producer().send(Message(topic, topic.encode()))
        code, words = _ingest(cluster, tmp_path, "orders")
        assert (code, '"rows": 1' in words) == (0, True), words[-4000:]
        consumer = root.pull_consumer("lake")
        assert [consumer.committed(queue) for queue in consumer.queues("orders")] == [1]
    code, words = _ingest(cluster, tmp_path, "others")
    assert code != 0
    assert "no permission" in words, words[-4000:]
