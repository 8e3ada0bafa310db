"""Calls of one broker to another over TLS: what they say is not to be read on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.config.sections.security_sections import TlsSection
from imago_testing.clusters.shard_pair import running_pair
from imago_testing.processes.capture import Capture
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.clusters.shard_pair import Pair

NAME = "marked-topic-of-two-shards"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def secured(authority: Authority, by: Authority | None = None, *, calls: str) -> TlsSection:
    pair = (by or authority).issue("broker")
    return TlsSection(
        certificate_file=str(pair.certificate),
        key_file=str(pair.key),
        ca_file=str(authority.file),
        client_auth="required",
        calls=calls,
    )


async def made(pair: Pair) -> tuple[int, bytes]:
    """Make a topic at the first broker; return its answer, and what went to the second."""
    with Capture(pair.two.broker.ports.admin_port) as capture:
        status, _ = await pair.one.call("PUT", f"/admin/v1/topics/{NAME}", {"queues": 1})
    return status, bytes(capture.data)


async def test_calls_go_over_tls_where_both_have_certificates(
    tmp_path: Path, authority: Authority
) -> None:
    tls = secured(authority, calls="enforcing")
    async with running_pair(tmp_path, tls, tls) as pair:
        status, seen = await made(pair)
        assert status < 300
        assert pair.two.broker.topics.get(NAME) is not None
        assert seen
        assert NAME.encode() not in seen


@pytest.mark.parametrize(("calls", "done"), [("permissive", True), ("enforcing", False)])
async def test_one_without_tls_is_asked_only_where_that_is_allowed(
    tmp_path: Path, authority: Authority, calls: str, done: bool
) -> None:
    async with running_pair(tmp_path, secured(authority, calls=calls), TlsSection()) as pair:
        status, seen = await made(pair)
        assert (status < 300) is done
        assert (pair.two.broker.topics.get(NAME) is not None) is done
        assert (NAME.encode() in seen) is done


async def test_a_broker_of_another_authority_hears_nothing(
    tmp_path: Path, authority: Authority
) -> None:
    other = Authority(tmp_path / "other")
    ours, theirs = secured(authority, calls="enforcing"), secured(other, calls="enforcing")
    async with running_pair(tmp_path, ours, theirs) as pair:
        status, seen = await made(pair)
        assert status == 502
        assert pair.two.broker.topics.get(NAME) is None
        assert NAME.encode() not in seen
