"""When certificates end, and what is said of those that nobody replaced."""

from __future__ import annotations

import base64
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.certificates.ends import CONDITION, end_of, ending, ends
from imago_operator.certificates.state import (
    ZOOKEEPER,
    Holder,
    SeenAuthority,
    SeenCertificate,
    SeenCertificates,
    SeenClients,
)
from imago_operator.reasons import find
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import resource, wanted
from imago_testing.processes.certificates import Authority, openssl

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)
OWN: dict[str, Any] = {}
YOURS = {"ca": {"mode": "UserProvided", "secretName": "mine"}}


@pytest.fixture(name="made", scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Authority(tmp_path_factory.mktemp("ends")).file.read_text()


def read_by_openssl(pem: str) -> datetime:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem)
    (one,) = context.get_ca_certs()
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(one["notAfter"])), UTC)


@pytest.mark.parametrize("days", [2, 20_000], ids=["two digits", "four digits"])
def test_the_end_is_what_openssl_reads(tmp_path: Path, days: int) -> None:
    """Years from 2050 on are written in another form."""
    file, key = tmp_path / "a.pem", tmp_path / "a.key"
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        *(*request, "-keyout", str(key), "-out", str(file), "-days", str(days), "-subj", "/CN=a")
    )
    assert end_of(file.read_text()) == read_by_openssl(file.read_text())


def test_what_is_no_certificate_has_no_end(made: str) -> None:
    der = base64.b64decode("".join(made.splitlines()[1:-1]))
    marks = made.splitlines()[0], made.splitlines()[-1]
    for size in range(0, len(der), 7):
        text = "\n".join([marks[0], base64.b64encode(der[:size]).decode(), marks[1], ""])
        assert end_of(text) is None, size
    broken = der.replace(b"\x17\x0d", b"\x16\x0d")
    text = "\n".join([marks[0], base64.b64encode(broken).decode(), marks[1], ""])
    assert [end_of(each) for each in ("", "no PEM", f"{marks[0]}\n?\n{marks[1]}\n", text)] == [
        None
    ] * 4


def seen(made: str) -> SeenCertificates:
    data = {"tls.crt": made}
    member = SeenCertificate(data=data, signer="", trusted="", names="", since=None, not_after=None)
    authority = SeenAuthority(data=data, signer="", trusted="")
    members: dict[Holder, SeenCertificate] = {0: member, ZOOKEEPER: member}
    return SeenCertificates(
        authority=authority, members=members, clients=SeenClients(authority=authority)
    )


def test_each_is_named(made: str) -> None:
    end = read_by_openssl(made)
    names = ["authority", "clients-authority", "shard-0", "zookeeper"]
    assert ends(seen(made)) == dict.fromkeys(names, end)
    assert ends(None) == {}
    assert ends(SeenCertificates(clients=SeenClients())) == {}


@pytest.mark.parametrize(
    ("tls", "left", "reason", "named"),
    [
        (OWN, 31, None, ""),
        (OWN, 16, None, "replaced by itself any day now"),
        (OWN, 14, "NotReplaced", "authority, shard-0, zookeeper"),
        ({"ca": {"renewBefore": "48h"}, "renewBefore": "24h"}, 0.9, "NotReplaced", "authority"),
        ({"ca": {"renewBefore": "48h"}, "renewBefore": "24h"}, 1.1, None, ""),
        (YOURS, 31, None, ""),
        (YOURS, 29, "NobodyReplacesIt", "authority"),
        ({"clientsCa": {"mode": "UserProvided", "secretName": "c"}}, 29, "NobodyReplacesIt", "cl"),
        ({"clientsCa": {}}, 29, "NotReplaced", "clients-authority"),
        (OWN, -1, "NotReplaced", "authority, shard-0, zookeeper"),
    ],
)
def test_what_ends_is_said_before(
    made: str, tls: dict[str, Any], left: float, reason: str | None, named: str
) -> None:
    desired, found = wanted({"spec.tls": tls}), seen(made)
    if "clientsCa" not in tls:
        found = replace(found, clients=None)
    said = list(ending(desired, found, read_by_openssl(made) - left * DAY))
    assert [(one.type, one.reason) for one in said] == ([(CONDITION, reason)] if reason else [])
    for one in said:
        assert find("ImagoCluster", one.type, one.reason) is not None
        for name in named.split(", "):
            assert name in one.message
        assert f"{read_by_openssl(made):%Y-%m-%d}" in one.message


def test_the_operator_shows_all_of_a_cluster_until_it_is_gone() -> None:
    cluster = OperatedCluster(resource({"spec.tls": {}, "spec.brokers.shards": 2}))
    cluster.world.now = datetime.now(UTC)
    cluster.run()
    told = {tuple(one[:3]): one[3] for one in cluster.reconciler.certificate_ends()}
    names = {"authority", "shard-0", "shard-1", "zookeeper"}
    assert set(told) == {("mq", "demo", name) for name in names}
    assert min(told.values()) > datetime.now(UTC).timestamp()
    assert cluster.condition(CONDITION) is None
