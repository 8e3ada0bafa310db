"""ImagoUsers of type Token: no client ever reads a token that is refused, and few are around."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_operator.contents import users
from imago_operator.contents.tokens import NOTE
from imago_operator.contents.values import SeenToken
from imago_operator.errors import InvalidError, OperatorError, RetryError
from imago_testing.kubernetes.custom_resources import USER
from imago_testing.operated.users import Users
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

BY_TOKEN = {"type": "Token", "validity": "24h", "renewBefore": "6h"}
THEIRS = SeenToken(number="theirs", expires_ms=1 << 60, note="made by hand")


@pytest.fixture(name="stage")
def _stage() -> Users:
    stage = Users()
    stage.kube.edit("ImagoCluster", "demo", {"tls": {}})
    stage.put_secret("demo-s0-tls", **{"ca.crt": "PEM 1"})
    return stage


def number(stage: Users) -> str:
    """Return the number of the token in the Secret."""
    return (stage.secret() or {})["token"].split(".")[2]


async def test_a_user_gets_a_token_and_no_password_and_is_left_alone(stage: Users) -> None:
    stage.apply(authentication=BY_TOKEN)
    assert await stage.rest() == pytest.approx(18 * 3600, abs=60)
    secret = stage.secret()
    assert secret is not None
    assert secret["token"] == "imt.ann.n1.secret-of-n1"
    assert secret["admin"] == "https://demo-admin.mq.svc:8080"
    assert "password" not in secret
    assert stage.counting() == ()
    assert stage.asked("make_token") == [
        ("make_token", "ann", {"expiresSeconds": 86_400, "note": NOTE, "former": ""})
    ]
    assert stage.ready() == ("True", "InSync")
    assert stage.kube.condition(USER, "ann", "Warning") is None
    status = stage.kube.status(USER, "ann")
    assert status["token"]["number"] == "n1"
    assert status["credentialsGeneration"] == 1
    assert "secret-of" not in str(status) + str(stage.kube.events)
    writes, calls = stage.kube.status_writes, len(stage.brokers.calls)
    for _ in range(5):
        stage.pass_time(300)
        await stage.look()
    assert (stage.kube.status_writes, len(stage.brokers.calls)) == (writes, calls)


async def test_a_token_is_renewed_before_its_end_and_the_former_lasts_until_then(
    stage: Users,
) -> None:
    stage.apply(authentication=BY_TOKEN)
    again = await stage.rest()
    assert again is not None
    stage.brokers.users_by_name["ann"] = _with_theirs(stage)
    stage.pass_time(again)
    await stage.rest()
    assert number(stage) == "n2"
    assert stage.tokens() == ("n1", "theirs", "n2")
    status = stage.kube.status(USER, "ann")
    assert (status["token"]["number"], status["credentialsGeneration"]) == ("n2", 2)
    stage.pass_time(6 * 3600)
    assert stage.tokens() == ("theirs", "n2"), "it ends when it would have"


def _with_theirs(stage: Users) -> Any:
    ann = stage.brokers.users_by_name["ann"]
    return replace(ann, tokens=(*ann.tokens, THEIRS))


async def test_an_order_ends_the_former_token_after_the_overlap(stage: Users) -> None:
    """Who orders another may do so since somebody else has read it."""
    stage.apply(authentication={**BY_TOKEN, "overlap": "5m"})
    await stage.rest()
    stage.kube.annotate(USER, "ann", **{"force-renew": "1"})
    await stage.rest()
    assert stage.asked("make_token")[-1][2]["formerSeconds"] == 300
    assert stage.tokens() == ("n1", "n2")
    stage.pass_time(301)
    await stage.rest()
    assert (stage.tokens(), number(stage)) == (("n2",), "n2")


async def test_a_token_that_somebody_revoked_or_lost_is_replaced(stage: Users) -> None:
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    stage.pass_time(300)
    ann = stage.brokers.users_by_name["ann"]
    stage.brokers.users_by_name["ann"] = replace(ann, tokens=())
    await stage.rest()
    assert (number(stage), stage.tokens()) == ("n2", ("n2",))
    del stage.kube.objects["Secret", "mq", "ann"]
    stage.pass_time(300)
    await stage.rest()
    assert (number(stage), stage.tokens()) == ("n3", ("n2", "n3")), "clients have the one before"


async def test_a_member_that_is_behind_has_no_token_replaced(stage: Users) -> None:
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    ann = stage.brokers.users_by_name["ann"]
    stage.brokers.users_by_name["ann"] = replace(ann, tokens=())
    stage.pass_time(6)
    again = await stage.look()
    assert len(stage.asked("make_token")) == 1
    assert again is not None
    assert again <= 60
    stage.brokers.users_by_name["ann"] = ann
    stage.pass_time(again)
    await stage.rest()
    assert len(stage.asked("make_token")) == 1


async def test_another_way_to_prove_itself_takes_its_tokens_away(stage: Users) -> None:
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    stage.brokers.users_by_name["ann"] = _with_theirs(stage)
    stage.kube.edit(USER, "ann", {"authentication": {"type": "Password"}})
    stage.pass_time(300)
    await stage.rest()
    assert stage.tokens() == ("theirs",)
    secret = stage.secret()
    assert secret is not None
    assert "token" not in secret
    assert stage.counting() == (secret["password"],)
    assert "token" not in stage.kube.status(USER, "ann")
    stage.kube.edit(USER, "ann", {"authentication": BY_TOKEN})
    stage.pass_time(300)
    await stage.rest()
    assert stage.counting() == ()
    assert "password" not in (stage.secret() or {})


NOT_POSSIBLE: dict[str, dict[str, Any]] = {
    "ClientsAuthorityMissing": {"type": "Tls"},
    "SecretMissing": {"type": "Password", "passwordSecretRef": {"name": "gone", "key": "p"}},
}


@pytest.mark.parametrize("reason", [*NOT_POSSIBLE, "SecretNotOurs"])
async def test_its_tokens_end_where_another_way_is_not_possible_too(
    stage: Users, reason: str
) -> None:
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    stage.brokers.users_by_name["ann"] = _with_theirs(stage)
    to = NOT_POSSIBLE.get(reason, {"type": "Password"})
    if reason == "SecretNotOurs":
        del stage.kube.objects["Secret", "mq", "ann"]
        stage.put_secret("ann", theirs="yes")
    stage.kube.edit(USER, "ann", {"authentication": to})
    stage.pass_time(300)
    await stage.rest()
    assert stage.ready() == ("False", reason)
    assert stage.tokens() == ("theirs",)
    revoked = len(stage.asked("revoke_token"))
    stage.pass_time(300)
    await stage.rest()
    assert len(stage.asked("revoke_token")) == revoked == 1


async def test_its_tokens_end_before_brokers_take_another_way(stage: Users) -> None:
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    stage.brokers.trouble = lambda what: (
        RetryError("a shard has no master", delay_s=1) if what == "put_user" else None
    )
    stage.kube.edit(USER, "ann", {"authentication": {"type": "Password"}})
    stage.pass_time(300)
    await stage.look()
    assert stage.tokens() == ()


async def test_a_deleted_user_takes_its_tokens_along(stage: Users) -> None:
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    stage.kube.remove(USER, "ann")
    assert await stage.look() is None
    assert stage.brokers.users_by_name == {}


async def test_a_token_on_a_network_without_tls_is_said(stage: Users) -> None:
    stage.kube.objects["ImagoCluster", "mq", "demo"]["spec"].pop("tls")
    stage.apply(authentication=BY_TOKEN)
    await stage.rest()
    assert stage.kube.condition(USER, "ann", "Warning") == ("True", "TokenInTheClear")


async def test_anonymous_has_no_token(stage: Users) -> None:
    stage.apply("anonymous", authentication=BY_TOKEN)
    await stage.rest("anonymous")
    assert stage.asked("make_token") == []
    assert stage.ready("anonymous") == ("False", "InvalidSpec")


async def test_what_brokers_refuse_is_said(stage: Users) -> None:
    stage.brokers.trouble = lambda what: (
        InvalidError("a user has at most 32 tokens") if what == "make_token" else None
    )
    stage.apply(authentication=BY_TOKEN)
    assert await stage.rest() == 30
    assert stage.ready() == ("False", "BrokerRejected")
    assert stage.secret() is None


async def test_a_token_is_told_to_nobody_but_its_secret(
    stage: Users, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in logs, status and events, nor where the Secret cannot be written."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    plan = users.plan

    def noted(*said: Any, **more: Any) -> users.UserPlan:
        planned = plan(*said, **more)
        seen.extend([repr(said), repr(planned)])
        return planned

    monkeypatch.setattr(users, "plan", noted)
    write = stage.kube.apply

    async def refused(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        if manifest["kind"] == "Secret":
            raise RetryError("no room for Secrets", delay_s=1)
        return await write(manifest)

    stage.apply(authentication=BY_TOKEN)
    stage.kube.apply = refused  # type: ignore[method-assign]
    for _ in range(4):
        try:
            await stage.look()
        except OperatorError as error:
            seen.append(repr(error))
    assert len(stage.asked("make_token")) >= 2
    assert len(stage.tokens()) == 1, "those that reached nobody are taken back"
    stage.kube.apply = write  # type: ignore[method-assign]
    await stage.rest()
    stage.kube.annotate(USER, "ann", **{"force-renew": "1"})
    await stage.rest()
    told = [record.getMessage() for record in caplog.records]
    told += [str(stage.kube.status(USER, "ann")), str(stage.kube.events), *seen]
    assert number(stage) in str(stage.kube.status(USER, "ann"))
    assert "secret-of" in (stage.secret() or {})["token"]
    assert [text for text in told if "secret-of" in text] == []


@given(st.lists(st.integers(0, 12), max_size=6))
@settings(max_examples=examples(80), deadline=None)
def test_whatever_is_cut_short_no_client_reads_a_refused_token(deaths: list[int]) -> None:
    """The operator dies at any call, before or behind it; and tokens do not pile up."""
    asyncio.run(_with_deaths(deaths))


async def _with_deaths(deaths: list[int]) -> None:
    stage = Users()
    stage.apply(authentication={**BY_TOKEN, "validity": "1h", "renewBefore": "30m"})
    calls, due = count(), set(deaths)

    def dying() -> None:
        if next(calls) in due:
            raise RetryError("cut off", delay_s=1)

    write, make = stage.kube.apply, stage.brokers.make_token

    async def apply(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        dying()
        written = await write(manifest)
        dying()
        return written

    async def make_token(*said: Any, **more: Any) -> Any:
        dying()
        made = await make(*said, **more)
        dying()
        return made

    stage.kube.apply = apply  # type: ignore[method-assign]
    stage.brokers.make_token = make_token  # type: ignore[method-assign]
    for step in range(40):
        try:
            await stage.look()
        except OperatorError:
            stage.start()
        if step % 9 == 8:
            stage.start()
            stage.kube.annotate(USER, "ann", **{"force-renew": str(step)})
        secret = stage.secret()
        assert secret is None or number(stage) in stage.tokens()
        assert len(stage.tokens()) <= 3
        stage.pass_time(120)
    assert number(stage) == stage.tokens()[-1]
