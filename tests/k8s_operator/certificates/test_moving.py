"""A shard of real brokers gets TLS and another authority, by the operator's Secrets, under load.

Kubernetes' part is played: each pod has its Secret as the kubelet keeps it, and follows when it
likes.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_broker.replication.links.secure_link import SecureLink
from imago_broker.service.puts.put_status import PutStatus
from imago_operator.certificates.state import SeenCertificates, authority_of, certificate_of
from imago_operator.issuing.writing import secret_of
from imago_operator.model import names
from imago_operator.model.actions import CertificateWork, Certify
from imago_operator.model.desired import Desired, desired_of
from imago_operator.model.secret_data import decoded
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.operated.resources import OPERATOR, resource
from imago_testing.processes.mounted_secret import MountedSecret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

CLUSTER: Final = "imago"
MEMBERS: Final = (0, 1, 2)
MESSAGES: Final = 20
"""Acknowledged between one step and the next."""
PUT_SECONDS_MAX: Final = 20
PHASES: Final = (
    (Certify(CertificateWork.NEXT_AUTHORITY), Certify(CertificateWork.TRUST, 0)),
    (Certify(CertificateWork.SWITCH_AUTHORITY), Certify(CertificateWork.ISSUE, 0)),
    (Certify(CertificateWork.DROP_AUTHORITY), Certify(CertificateWork.TRUST, 0)),
)


class Secrets:
    """What the operator has written."""

    def __init__(self) -> None:
        manifest = resource({"spec.tls": {}})
        manifest["metadata"]["name"] = CLUSTER
        desired = desired_of(manifest, OPERATOR)
        assert isinstance(desired, Desired)
        self._desired = desired
        self._kept: dict[str, Mapping[str, Any]] = {}

    async def do(self, *works: Certify) -> None:
        """Have the operator do some pieces of work, one after the other."""
        for work in works:
            member = certificate_of(self._kept.get(names.certificate(CLUSTER, 0)))
            seen = SeenCertificates(
                authority=authority_of(self._kept.get(names.authority(CLUSTER))),
                members={0: member} if member else {},
            )
            made = secret_of(self._desired, work, seen, datetime.now(UTC))
            self._kept[made["metadata"]["name"]] = made

    async def begin(self) -> None:
        """Make an authority and the members' first certificate."""
        await self.do(Certify(CertificateWork.NEW_AUTHORITY), Certify(CertificateWork.ISSUE, 0))

    @property
    def member(self) -> dict[str, str]:
        """Return the files that each pod of the shard is to have."""
        return decoded(self._kept[names.certificate(CLUSTER, 0)])


class Mounted(MountedSecret):
    """The certificate of a pod's broker."""

    def settings(self, replication: str) -> tuple[str, ...]:
        """Return what a broker in this pod is told."""
        return (
            f"tls.certificate_file={self.folder}/tls.crt",
            f"tls.key_file={self.folder}/tls.key",
            f"tls.ca_file={self.folder}/ca.crt",
            f"tls.replication={replication}",
        )


class Pods:
    """The members of a shard, their Secrets, and what was acknowledged to whoever sends."""

    def __init__(self, folder: Path) -> None:
        self.shard = ShardBrokers(folder)
        self.secrets = Secrets()
        self.mounted = {n: Mounted(folder / f"secret-{n}") for n in MEMBERS}
        self.acknowledged: list[bytes] = []

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[None]:
        """Send while the block runs."""
        task = asyncio.create_task(self._send())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(self) -> None:
        number = 0
        while True:
            number += 1
            body = b"%06d" % number
            if await self._put(body) is PutStatus.OK:
                self.acknowledged.append(body)
            await asyncio.sleep(0.01)

    async def _put(self, body: bytes) -> PutStatus | None:
        leader = self.shard.leader
        if leader is None:
            return None
        try:
            async with asyncio.timeout(PUT_SECONDS_MAX):
                [status] = await self.shard.put(leader, body)
        except TimeoutError:  # it was stopped meanwhile: the sender is not told, and must ask again
            return None
        return status

    async def more(self) -> None:
        """Wait until some more messages were acknowledged."""
        wanted = len(self.acknowledged) + MESSAGES
        await until(lambda: len(self.acknowledged) >= wanted)

    async def restart(self, number: int, *settings: str) -> None:
        """Restart one member as the operator does: while all others are in sync."""
        await self.shard.all_in_sync(*MEMBERS)
        await self.shard.stop(number)
        self.shard.more[number] = settings or self.shard.more[number]
        await self.shard.start(number)
        await self.shard.all_in_sync(*MEMBERS)

    async def follow(self, number: int) -> None:
        """Have one pod's files follow the Secret, and its broker the files."""
        certificates = self.shard.brokers[number].ports.certificates
        assert certificates is not None
        before = certificates.loaded
        self.mounted[number].write(self.secrets.member)
        await until(lambda: certificates.loaded > before)

    async def is_trusted_by(self, trusted: str) -> None:
        """Connect to every member as a client that trusts these authorities."""
        context = ssl.create_default_context(cadata=trusted)
        for broker in self.shard.brokers.values():
            _, writer = await asyncio.open_connection(
                "127.0.0.1", broker.rocketmq_port, ssl=context, server_hostname="127.0.0.1"
            )
            writer.close()
            await writer.wait_closed()

    def links(self) -> Iterator[object]:
        """Yield the connections of those that follow."""
        for number in set(MEMBERS) - {self.shard.leader}:
            following = self.shard.shell(number).executor.following
            yield following and following.session and following.session.link


@pytest.fixture
async def pods(tmp_path: Path) -> AsyncIterator[Pods]:
    made = Pods(tmp_path)
    await made.shard.start(*MEMBERS)
    await made.shard.all_in_sync(*MEMBERS)
    yield made
    await made.shard.close()


async def switch_on(pods: Pods) -> None:
    """Give a shard without TLS certificates, and make it strict in two rounds of restarts."""
    await pods.secrets.begin()
    for mode in ("permissive", "enforcing"):
        for number in MEMBERS:
            pods.mounted[number].write(pods.secrets.member)
            await pods.restart(number, *pods.mounted[number].settings(mode))
            await pods.more()


@pytest.mark.full
async def test_nothing_acknowledged_is_lost_on_the_way(pods: Pods) -> None:
    async with pods.loaded():
        await pods.more()
        await switch_on(pods)
        first = pods.secrets.member["ca.crt"]
        for works in PHASES:
            trusted = pods.secrets.member["ca.crt"]
            await pods.secrets.do(*works)
            for number in MEMBERS:
                await pods.follow(number)
                # Who connects anew meets members that have followed, and others that have not.
                await pods.restart((number + 1) % len(MEMBERS))
                await pods.is_trusted_by(trusted)  # a client whose files are a phase behind
                await pods.more()
    assert pods.secrets.member["ca.crt"] != first
    assert [type(link) for link in pods.links()] == [SecureLink] * 2
    with pytest.raises(ssl.SSLCertVerificationError):
        await pods.is_trusted_by(first)
    await pods.shard.same_logs()
    for number in MEMBERS:
        kept = pods.shard.bodies(number)
        assert set(pods.acknowledged) <= set(kept)
        assert kept == sorted(kept), "the order in which one sends"


async def test_an_authority_that_nobody_was_told_of_cuts_its_member_off(pods: Pods) -> None:
    """What the phases are for: the test above would see it."""
    await switch_on_at_once(pods)
    others = Secrets()
    await others.begin()
    leader = await pods.shard.led()
    number = next(n for n in MEMBERS if n != leader)
    await pods.shard.stop(number)
    pods.mounted[number].write(others.member)
    await pods.shard.start(number)
    await until(lambda: bool(pods.shard.shell(number).obstacle))
    assert number not in pods.shard.in_sync(leader)


async def switch_on_at_once(pods: Pods) -> None:
    """Stop the whole shard, and start it strict."""
    await pods.secrets.begin()
    for number in MEMBERS:
        await pods.shard.stop(number)
        pods.mounted[number].write(pods.secrets.member)
        pods.shard.more[number] = pods.mounted[number].settings("enforcing")
    await pods.shard.start(*MEMBERS)
    await pods.shard.all_in_sync(*MEMBERS)
