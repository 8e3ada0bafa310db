"""Certificates as planned: walks through every state, and a whole replacement of an authority."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_operator.certificates.plan import alternative_names, plan
from imago_operator.certificates.state import (
    QUORUM,
    TRUSTED,
    ZOOKEEPER,
    AuthorityPhase,
    Holder,
    SeenAuthority,
    SeenCertificate,
    SeenCertificates,
)
from imago_operator.manifests.brokers import template_notes
from imago_operator.model.actions import CertificateWork, Certify, destructive
from imago_operator.model.desired import Desired, fingerprint
from imago_testing.operated.resources import wanted
from imago_testing.searching import examples

START = datetime(2026, 1, 2, tzinfo=UTC)
SHARDS = (0, 1, 2)
DAY = timedelta(days=1)


class Secrets:
    """Secrets that do what the plan says, with numbers for certificates."""

    def __init__(self, desired: Desired) -> None:
        self.desired, self.now = desired, START
        self.made = 0
        self.authority: tuple[int, tuple[int, ...], int | None] | None = None
        """Who signs, who is trusted, who is next."""
        self.phase = AuthorityPhase.STABLE
        self.since = START
        self.until = START
        self.renewed = ""
        self.members: dict[Holder, tuple[int, tuple[int, ...], datetime, datetime]] = {}
        """By shard: signer, trusted, end, when it was written."""

    def seen(self) -> SeenCertificates:
        authority = None
        if self.authority is not None:
            signer, trusted, _ = self.authority
            authority = SeenAuthority(
                data={TRUSTED: str(trusted)},
                signer=str(signer),
                trusted=fingerprint(str(trusted)),
                phase=self.phase,
                since=self.since,
                not_after=self.until,
                renewed=self.renewed,
            )
        members: dict[Holder, SeenCertificate] = {
            shard: SeenCertificate(
                data={},
                signer=str(signer),
                trusted=fingerprint(str(trusted)),
                names=fingerprint(list(alternative_names(self.desired, shard))),
                since=since,
                not_after=until,
            )
            for shard, (signer, trusted, until, since) in self.members.items()
        }
        return SeenCertificates(authority=authority, read=frozenset(SHARDS), members=members)

    def step(self) -> tuple[Certify, ...]:
        actions = plan(self.desired, SHARDS, self.seen(), self.now).actions
        for action in actions:
            self._do(action)
        self.check()
        return actions

    def _do(self, action: Certify) -> None:
        ordered = self.desired.resource.annotations.get("imago.dev/force-renew", "")
        if action.holder is not None:
            assert self.authority is not None
            signer, trusted, _ = self.authority
            until = self.now + 90 * DAY
            if action.work is CertificateWork.TRUST:
                signer, _, until, _ = self.members[action.holder]
            self.members[action.holder] = signer, trusted, until, self.now
            return
        if action.work is CertificateWork.DROP_AUTHORITY:
            assert self.authority is not None
            self.authority = self.authority[0], (self.authority[0],), None
            self.phase = AuthorityPhase.STABLE
        elif action.work is CertificateWork.SWITCH_AUTHORITY:
            assert self.authority is not None
            signer, trusted, following = self.authority
            assert following is not None
            self.authority = following, trusted, None
            self.phase, self.until = AuthorityPhase.REPLACING, self.now + 365 * DAY
        else:
            self._make()
            self.renewed = ordered
        self.since = self.now

    def _make(self) -> None:
        self.made += 1
        if self.authority is not None:
            signer = self.authority[0]
            self.authority = signer, (signer, self.made), self.made
            self.phase = AuthorityPhase.TRUSTING
            return
        former = sorted({n for _, trusted, _, _ in self.members.values() for n in trusted})
        self.authority = self.made, (*former, self.made), None
        self.phase = AuthorityPhase.REPLACING if former else AuthorityPhase.STABLE
        self.until = self.now + 365 * DAY

    def check(self) -> None:
        """Each member that shows a certificate now is trusted by everybody else."""
        for signer, _, until, _ in self.members.values():
            assert until > self.now
            for _, trusted, _, _ in self.members.values():
                assert signer in trusted

    def settle(self) -> list[Certify]:
        found: list[Certify] = []
        for _ in range(50):
            actions = self.step()
            if not actions:
                return found
            found += actions
        raise AssertionError("it does not come to rest")


def cluster(annotations: dict[str, str] | None = None, **tls: Any) -> Desired:
    return wanted({"spec.tls": tls, "spec.brokers.shards": 3}, annotations)


def test_without_tls_nothing_is_made() -> None:
    without = wanted({"spec.zookeeper": {"managed": {"tls": "None"}}})
    assert plan(without, SHARDS, SeenCertificates(), START).actions == ()


def test_without_tls_of_members_zookeeper_alone_has_a_certificate() -> None:
    seen = SeenCertificates(read=frozenset((*SHARDS, ZOOKEEPER)))
    assert plan(wanted(), SHARDS, seen, START).actions == (Certify(CertificateWork.NEW_AUTHORITY),)
    signer = SeenAuthority(data={}, signer="1", trusted="1", not_after=START + 365 * DAY)
    seen = replace(seen, authority=signer)
    found = plan(wanted(), SHARDS, seen, START).actions
    assert found == (Certify(CertificateWork.ISSUE, ZOOKEEPER),)


def test_an_authority_and_then_all_members_at_once() -> None:
    secrets = Secrets(cluster())
    assert secrets.step() == (Certify(CertificateWork.NEW_AUTHORITY),)
    assert secrets.step() == tuple(Certify(CertificateWork.ISSUE, n) for n in SHARDS)
    assert secrets.step() == ()


def test_an_authority_is_replaced_in_three_phases() -> None:
    secrets = Secrets(cluster())
    secrets.settle()
    secrets.desired = cluster({"imago.dev/force-renew": "1"})
    told = [Certify(CertificateWork.TRUST, n) for n in SHARDS]
    assert secrets.settle() == [Certify(CertificateWork.NEXT_AUTHORITY), *told]
    assert secrets.settle() == [], "they have not had time to read it"
    secrets.now += timedelta(minutes=10)
    issued = [Certify(CertificateWork.ISSUE, n) for n in SHARDS]
    assert secrets.settle() == [Certify(CertificateWork.SWITCH_AUTHORITY), *issued]
    assert secrets.settle() == []
    secrets.now += timedelta(minutes=10)
    assert secrets.settle() == [Certify(CertificateWork.DROP_AUTHORITY), *told]
    secrets.now += DAY
    assert secrets.settle() == [], "one order is heeded once"
    assert secrets.authority == (2, (2,), None)


def test_certificates_that_end_are_replaced_one_shard_at_a_time() -> None:
    secrets = Secrets(cluster())
    secrets.settle()
    secrets.now += 61 * DAY
    assert secrets.step() == (Certify(CertificateWork.ISSUE, 0),)
    assert secrets.step() == (Certify(CertificateWork.ISSUE, 1),)
    assert secrets.step() == (Certify(CertificateWork.ISSUE, 2),)
    assert secrets.step() == ()


def test_nothing_is_replaced_as_soon_as_it_is_made() -> None:
    """Whole days count, and clocks differ: 24 h may be less than 23 h and 50 min more."""
    soon: dict[str, Any] = {"validity": "24h", "renewBefore": "23h50m"}
    desired = cluster(**soon, ca=soon)
    made = START + timedelta(hours=23)
    member = SeenCertificate(
        data={},
        signer="1",
        trusted="t",
        names=fingerprint(list(alternative_names(desired, 0))),
        since=START,
        not_after=made,
    )
    authority = SeenAuthority(data={}, signer="1", trusted="t", since=START, not_after=made)
    seen = SeenCertificates(authority=authority, read=frozenset({0}), members={0: member})
    assert plan(desired, [0], seen, START).actions == ()
    later = plan(desired, [0], seen, START + timedelta(hours=1)).actions
    assert later == (Certify(CertificateWork.ISSUE, 0),)


def test_who_signed_what_is_shown_is_trusted_while_another_takes_over_at_once() -> None:
    """Somebody names an authority of his own: servers show what the operator's has signed."""
    ours, theirs = (f"-----BEGIN-----{name}\n-----END CERTIFICATE-----\n" for name in ("a", "b"))
    authority = SeenAuthority(data={TRUSTED: theirs}, signer="b", trusted=fingerprint(theirs))
    desired = wanted({"spec.tls": {"ca": {"mode": "UserProvided", "secretName": "theirs"}}})

    def step(
        trusted: str, signer: str, now: datetime, quorum: str = "theirs alone"
    ) -> tuple[Certify, ...]:
        servers = SeenCertificate(
            data={TRUSTED: trusted, QUORUM: quorum},
            signer=signer,
            trusted=fingerprint(trusted),
            names=fingerprint(list(alternative_names(desired, ZOOKEEPER))),
            since=START,
            not_after=START + 90 * DAY,
        )
        seen = SeenCertificates(
            authority=authority, read=frozenset({ZOOKEEPER}), members={ZOOKEEPER: servers}
        )
        return plan(desired, (), seen, now).actions

    later = START + timedelta(minutes=10)
    assert step(ours, "a", START) == (Certify(CertificateWork.TRUST, ZOOKEEPER),)
    assert step(theirs + ours, "a", START) == ()
    assert step(theirs + ours, "a", later) == (Certify(CertificateWork.ISSUE, ZOOKEEPER),)
    assert step(theirs + ours, "b", START) == ()
    # What an operator wrote that knew of no certificate for servers among themselves.
    assert step(theirs + ours, "b", START, "") == (Certify(CertificateWork.ISSUE, ZOOKEEPER),)
    assert step(theirs + ours, "b", later) == (Certify(CertificateWork.TRUST, ZOOKEEPER),)
    assert step(theirs, "b", later) == ()


def test_an_authority_that_ends_is_replaced_before() -> None:
    secrets = Secrets(cluster())
    secrets.settle()
    for _ in range(400):
        secrets.now += DAY
        secrets.settle()
    assert secrets.made == 2
    assert secrets.until > secrets.now


def test_shards_that_were_not_read_wait() -> None:
    secrets = Secrets(cluster())
    secrets.step()
    seen = replace(secrets.seen(), read=frozenset({0}))
    assert plan(secrets.desired, SHARDS, seen, START).actions == (
        Certify(CertificateWork.ISSUE, 0),
    )


def test_an_authority_of_somebody_else_signs_and_is_never_replaced() -> None:
    desired = cluster(ca={"mode": "UserProvided", "secretName": "mine"})
    missing = plan(desired, SHARDS, SeenCertificates(read=frozenset(SHARDS)), START)
    assert missing.actions == ()
    assert [f.reason for f in missing.findings] == ["AuthorityMissing"]
    secrets = Secrets(desired)
    secrets.authority = 7, (7,), None
    assert secrets.settle() == [Certify(CertificateWork.ISSUE, n) for n in SHARDS]
    secrets.until = START
    assert secrets.settle() == []
    secrets.authority = 8, (8, 7), None
    assert secrets.settle() == [Certify(CertificateWork.TRUST, n) for n in SHARDS], (
        "first whom to trust"
    )
    secrets.now += timedelta(minutes=10)
    assert secrets.settle() == [Certify(CertificateWork.ISSUE, n) for n in SHARDS]


def test_cert_manager_signs_by_itself() -> None:
    desired = cluster(ca={"mode": "CertManager", "issuerRef": {"name": "issuer"}})
    found = plan(desired, SHARDS, SeenCertificates(read=frozenset(SHARDS)), START)
    assert found.actions == ()
    assert [f.reason for f in found.findings] == ["Issuing"]


@given(st.lists(st.integers(0, 40 * 24 * 60), max_size=25), st.integers(0, 24), st.integers(0, 24))
@settings(max_examples=examples(200), deadline=None)
def test_whenever_somebody_looks_everybody_trusts_everybody(
    minutes: list[int], at: int, lost: int
) -> None:
    """`check` runs after each step; an order to replace the authority comes at any moment, and
    at any moment somebody deletes the authority's Secret.
    """
    secrets = Secrets(cluster())
    secrets.settle()
    before = [template_notes(secrets.desired, n) for n in SHARDS]
    for number, passed in enumerate(minutes):
        # Somebody looks at least once a day: every five minutes, in truth.
        for _ in range(passed // (24 * 60) + 1):
            secrets.now += timedelta(minutes=min(passed, 24 * 60))
            if number == at:
                secrets.desired = cluster({"imago.dev/force-renew": str(number)})
            if number == lost:
                secrets.authority = None
            assert not destructive(secrets.settle())
    for _ in range(4):
        secrets.now += timedelta(minutes=10)
        secrets.settle()
    assert secrets.phase is AuthorityPhase.STABLE
    assert [template_notes(secrets.desired, n) for n in SHARDS] == before, "no pod is restarted"
