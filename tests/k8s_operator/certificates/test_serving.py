"""A real broker with the operator's certificate, called by the operator's own client."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_operator.brokers.http import BrokerHttp, SilentError
from imago_operator.certificates.plan import alternative_names
from imago_operator.issuing import making
from imago_operator.issuing.making import IssuedPair, Validity
from imago_testing.operated.resources import wanted
from imago_testing.peers.admin import TOKEN, broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

VALID = Validity(datetime.now(UTC), 30)
STATUS = "/admin/v1/status"


@pytest.fixture(name="signer")
async def _signer() -> IssuedPair:
    return making.authority("demo CA", VALID)


@pytest.fixture(name="broker")
async def _broker(tmp_path: Path, signer: IssuedPair) -> AsyncIterator[Broker]:
    """One that would start only with a certificate of a member of demo's shard 0."""
    names = alternative_names(wanted(), 0)
    made = making.certificate("demo-s0", names, VALID, signer)
    for name, text in (
        ("tls.crt", made.certificate + signer.certificate),
        ("tls.key", made.key),
        ("ca.crt", signer.certificate),
    ):
        (tmp_path / name).write_text(text)
    base = broker_config(tmp_path)
    files = replace(
        base.tls,
        certificate_file=str(tmp_path / "tls.crt"),
        key_file=str(tmp_path / "tls.key"),
        ca_file=str(tmp_path / "ca.crt"),
        replication="enforcing",
    )
    running = Broker(replace(base, tls=files, broker=replace(base.broker, cluster="demo")))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


async def test_the_operator_calls_over_tls_and_only_who_was_signed(
    broker: Broker, signer: IssuedPair
) -> None:
    other = making.authority("another CA", VALID)
    url = f"https://127.0.0.1:{broker.ports.admin_port}"
    async with BrokerHttp(lambda: "id") as http:
        answer = await http.with_token(TOKEN, signer.certificate).get(url, STATUS)
        assert answer["shard"] == "shard-0"
        both = other.certificate + signer.certificate
        await http.with_token(TOKEN, both).get(url, STATUS)
        for trusted in (other.certificate, ""):
            with pytest.raises(SilentError):
                await http.with_token(TOKEN, trusted).get(url, STATUS)
