"""mqadmin asks every member of a shard: those that may not write have the master do it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app.member.shard_worker import ShardWorker
from imago_broker.errors import BrokerError, RequestError
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.quotas import Limit, subject_of_user
from imago_broker.model.access.users import User
from imago_broker.processors.rocketmq.exchange import Exchange, Lane
from imago_broker.processors.rocketmq.identity import RocketmqIdentity
from imago_broker.processors.rocketmq.users.access_rows import access_rows
from imago_broker.service.access.access import AccessService
from imago_broker.service.access.access_drafts import Drafts, delete_left, take_drafts, version_of
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.access.access_records import USER_KIND
from imago_testing.virtual.clocks import ManualClock
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.exchange import Reply
    from imago_broker.processors.rocketmq.users.access_rows import PassOn


BY = Actor("the tests", "nowhere")


class Metadata:
    """A store that may be written, or not."""

    def __init__(self, *, leads: bool) -> None:
        self.on_metadata: set[Any] = set()
        self._values: dict[str, dict[str, Any]] = {}
        self._leads = leads

    def meta(self, kind: str) -> dict[str, Any]:
        return self._values.setdefault(kind, {})

    def put_meta(self, changes: Any) -> None:
        assert self._leads, "a member that does not lead has written"
        for kind, key, value in changes:
            self.meta(kind)[key] = value


class Caller:
    """A connection that keeps its answers."""

    peer, address, certificate_user = "10.0.0.1:1", "10.0.0.1", ""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Reply] = asyncio.Queue()

    def reply(self, _: RemotingCommand, reply: Reply) -> None:
        self.answers.put_nowait(reply)


def service(*, leads: bool) -> AccessService:
    return AccessService(Metadata(leads=leads), clock=ManualClock(), shard=0)


async def refuse(_: Drafts) -> None:
    raise BrokerError("shard-0 has no master now")


async def no_others() -> None:
    """There is one shard."""


def create_user(caller: Caller, follower: AccessService, pass_on: PassOn) -> Reply | None:
    identity = RocketmqIdentity(cluster="c", broker_name="shard-0", host="h", port=1)
    lane = Lane("admin", 10)
    rows = {row.code: row for row in access_rows(follower, identity, lane, pass_on, no_others)}
    body = json.dumps({"username": "ann", "password": "password"}).encode()
    command = RemotingCommand(code=Code.AUTH_CREATE_USER, ext={"username": "ann"}, body=body)
    elsewhere = rows[Code.AUTH_CREATE_USER].elsewhere
    assert elsewhere is not None
    return elsewhere(Exchange(caller, command))  # type: ignore[arg-type]


async def test_a_follower_has_the_master_make_the_user() -> None:
    master, follower, caller = service(leads=True), service(leads=False), Caller()

    async def pass_on(drafts: Drafts) -> None:
        take_drafts(master, drafts)

    assert create_user(caller, follower, pass_on) is None
    async with asyncio.timeout(50):
        answer = await caller.answers.get()
    assert answer.code == 0
    assert master.users["ann"].secret == "password"
    assert follower.users == {}, "it follows by the log alone"


@pytest.mark.parametrize("way", ["none", "refused"], ids=["while it starts", "refused"])
async def test_a_master_that_does_not_take_it_is_said_so(way: str) -> None:
    follower, caller = service(leads=False), Caller()
    starting = ShardWorker()
    pass_on = {"refused": refuse, "none": starting.pass_users_on}[way]
    assert create_user(caller, follower, pass_on) is None
    async with asyncio.timeout(50):
        answer = await caller.answers.get()
    assert answer.code == 14
    assert "master" in (answer.remark or "")


async def test_what_a_follower_knows_to_be_wrong_is_refused_at_once() -> None:
    follower, caller = service(leads=False), Caller()
    assert create_user(caller, follower, refuse) is None
    identity = RocketmqIdentity(cluster="c", broker_name="shard-0", host="h", port=1)
    table = access_rows(follower, identity, Lane("admin", 10), refuse, no_others)
    rows = {row.code: row for row in table}
    command = RemotingCommand(code=Code.AUTH_DELETE_USER, ext={"username": "nobody"})
    elsewhere = rows[Code.AUTH_DELETE_USER].elsewhere
    assert elsewhere is not None
    reply = elsewhere(Exchange(caller, command))  # type: ignore[arg-type]
    assert reply is not None, "there is nothing to be passed on"
    assert reply.code == 0
    await caller.answers.get()


async def test_a_draft_is_audited_as_what_was_asked(caplog: pytest.LogCaptureFixture) -> None:
    follower = service(leads=False)
    caplog.set_level(logging.INFO, "imago.audit")
    with follower.drafting():
        follower.put_user(User(name="bob", secret="secret-of-bob"), BY)
    (line,) = caplog.messages
    assert line.startswith("asked of the master: user bob by ")
    assert follower.users == {}


async def test_a_master_that_knows_better_changes_nothing() -> None:
    """Neither by a member that still has a user who is gone, nor over a newer record."""
    master, follower, caller = service(leads=True), service(leads=False), Caller()
    for each in (master, follower):
        store: Any = each._store
        store._leads = True
        each.put_user(User(name="root", secret="secret-of-root", is_super=True), BY)
        each.put_user(User(name="bob", secret="secret-of-bob"), BY)
        store._leads = each is master

    async def pass_on(drafts: Drafts) -> None:
        try:
            take_drafts(master, drafts)
        except RequestError as error:
            raise BrokerError(str(error)) from error

    def drafted(name: str, by: str | None) -> Drafts:
        with follower.drafting() as changes:
            follower.put_user(User(name=name, secret="another secret"), BY)
        return Drafts(by, version_of(follower, by), changes)

    await pass_on(drafted("bob", "root"))
    assert master.users["bob"].secret == "another secret"
    with pytest.raises(BrokerError, match="access-user bob was changed meanwhile"):
        await pass_on(drafted("bob", "root"))
    master.delete_user("root", BY)
    with pytest.raises(BrokerError, match="user root was changed meanwhile"):
        await pass_on(drafted("eve", "root"))
    assert create_user(caller, follower, pass_on) is None, "nobody is asked who that is"
    async with asyncio.timeout(50):
        assert (await caller.answers.get()).code == 0
    assert set(master.users) == {"bob", "ann"}


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"by": 1, "version": "", "changes": []},
        {"by": None, "version": "", "changes": [1]},
    ],
)
def test_what_is_no_draft_is_refused(told: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Drafts.read(told)


def test_nobody_inherits_what_was_left_of_a_name() -> None:
    access = service(leads=True)
    rule = AccessRule(Resource(AccessKind.TOPIC, "secret"), frozenset({Operation.SUBSCRIBE}))
    subject = subject_of_user("ann")
    access.put_account(User(name="ann", secret="secret-of-ann"), [rule], BY)
    access.set_quotas(subject, {Limit.CONNECTIONS: 5}, BY)
    left = [record for record in access.records() if record[0] != USER_KIND]
    assert access.delete_user("ann", BY)
    later = [[kind, key, [made[0] + 10_000, 1], value] for kind, key, made, value in left]
    assert access.merge(later) == 2, "another shard changed them at the same time"
    assert access.rules == {"ann": (rule,)}
    assert delete_left(access, "ann")
    assert not delete_left(access, "ann")
    access.merge([[kind, key, [made[0] + 20_000, 1], value] for kind, key, made, value in left])
    access.put_user(User(name="ann", secret="somebody else"), BY)
    assert access.rules == {}
    assert subject not in access.quota_table.quotas
