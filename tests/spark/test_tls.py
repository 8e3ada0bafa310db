"""Topics as tables over TLS alone, in a real Spark with a broker of its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from imago_client import Message
from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_spark.pipelines.ingest import build
from imago_testing.processes.certificates import Authority
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import up

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.processes]


@pytest.mark.full
def test_a_table_is_read_and_written_over_mutual_tls(spark: SparkSession, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("both")
    files = {
        "tlsCaFile": str(authority.file),
        "tlsCertificateFile": str(pair.certificate),
        "tlsKeyFile": str(pair.key),
    }
    wanted = (
        f"tls.certificate_file={pair.certificate}",
        f"tls.key_file={pair.key}",
        f"tls.ca_file={authority.file}",
        "tls.mode=enforcing",
        "tls.client_auth=required",
    )
    options = [part for one in wanted for part in ("--set", one)]
    base = ("--zookeeper", "none", "--port-base", str(free_port_block(20)))
    with up(tmp_path / "data", *base, *options) as running:
        bootstrap = running.ready["namesrv"]
        config = ClientConfig(
            bootstrap=parse_addresses(bootstrap),
            tls_ca_file=files["tlsCaFile"],
            tls_certificate_file=files["tlsCertificateFile"],
            tls_key_file=files["tlsKeyFile"],
        )
        with Client(config) as client:
            client.admin.create_topic("orders", queues=2)
            client.admin.create_topic("copies", queues=1)
            for number in range(20):
                client.producer().send(Message("orders", b"%d" % number))
        frame = build(spark, {"bootstrap": bootstrap, "subscribe": "orders", **files})
        written = frame.select("value").write.format("imago").mode("append")
        written.options(bootstrap=bootstrap, topic="copies", **files).save()
        copies = build(spark, {"bootstrap": bootstrap, "subscribe": "copies", **files})
        found = {bytes(row.value) for row in copies.select("value").collect()}
        assert found == {b"%d" % number for number in range(20)}
        with pytest.raises(PySparkException, match=r"running and reachable|closed"):
            build(spark, {"bootstrap": bootstrap, "subscribe": "orders", "timeout": "2"}).count()
