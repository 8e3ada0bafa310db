"""`imago user`, and commands with a user, against a broker with access control."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_broker.config import load
from imago_broker.errors import RequestError
from imago_broker.model.access.access import AccessKind, Operation
from imago_broker.service.access.access import AccessService
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.shard_work.access_spreading import AccessSpreader
from imago_cli.exits import Exit
from imago_cli.up.access import use_token, with_token
from imago_testing.peers.admin import broker_config
from imago_testing.peers.shell import Shell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    base = broker_config(tmp_path)
    broker = Broker(replace(base, acl=replace(base.acl, enabled=True)))
    await broker.start()
    try:
        yield Shell(tmp_path, broker)
    finally:
        await broker.stop()


async def test_the_way_of_the_manual(shell: Shell) -> None:
    broker = shell.broker
    assert "acl.enabled" not in await shell.run("user", "create", "ann")
    password = shell.folder / "ann.password"
    assert password.stat().st_mode & 0o777 == 0o600
    assert password.read_text().strip() not in await shell.run("user", "show", "ann", "--json")
    again = await shell.run("user", "create", "ann", code=1)
    assert "there is a user ann already" in again
    ann = ("--user", "ann", "--password-file", str(password))
    denied = await shell.run(*ann, "topic", "create", "orders", code=1)
    assert "has no permission" in denied
    await shell.run("user", "allow", "ann", "topic:orders*", "create", "describe", "publish")
    await shell.run("user", "allow", "ann", "cluster", "describe", "--from", "127.0.0.0/8")
    await shell.run("user", "deny", "ann", "topic:orders-secret", "all")
    await shell.run(*ann, "topic", "create", "orders")
    assert broker.topics.get("orders") is not None
    assert "has no permission" in await shell.run(*ann, "topic", "create", "orders-secret", code=1)
    assert "username cannot be null" in await shell.run("topic", "create", "more", code=1)
    await shell.run("user", "forget", "ann", "topic:orders*")
    assert "has no permission" in await shell.run(*ann, "topic", "create", "orders-2", code=1)
    exported = await shell.run("user", "export")
    assert password.read_text().strip() not in exported
    (shell.folder / "users.yml").write_text(exported)
    before = broker.core.access.rules
    await shell.run("user", "delete", "ann", "--yes")
    assert broker.core.access.users == {}
    await shell.run("user", "import", "users.yml")
    assert broker.core.access.rules == before


async def test_changes_of_users_say_where_access_control_is_off(tmp_path: Path) -> None:
    broker = Broker(broker_config(tmp_path))
    await broker.start()
    try:
        off = "note: access control is off here (acl.enabled)"
        shell = Shell(tmp_path, broker)
        assert off in await shell.run("user", "create", "ann")
        assert off in await shell.run("user", "allow", "ann", "topic:orders", "publish")
        assert off in await shell.run("user", "limit", "ann", "connections=5")
        assert off not in await shell.run("user", "list")
    finally:
        await broker.stop()


async def test_another_password_is_made_up_where_clients_read_it(shell: Shell) -> None:
    users = shell.broker.core.access.users
    await shell.run("user", "create", "ann")
    first = users["ann"].secret
    assert "in ann.password" in await shell.run("user", "password", "ann", "--former", "60")
    path = shell.folder / "ann.password"
    assert path.stat().st_mode & 0o777 == 0o600
    assert users["ann"].secret == path.read_text().strip() != first
    assert users["ann"].former_secret == first
    (shell.folder / "ann.password.new").write_text("perhaps in force")
    said = await shell.run("user", "password", "ann", code=2)
    assert "ann.password.new is there already" in said
    assert "--from-file ann.password.new && mv ann.password.new ann.password" in said
    await shell.run("user", "password", "ann", "--from-file", "ann.password.new")
    assert users["ann"].secret == "perhaps in force"


async def test_a_password_that_a_broker_may_have_all_the_same_is_kept(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("user", "create", "ann")
    path = shell.folder / "ann.password"
    before = path.read_text()

    async def spread(_: AccessSpreader) -> dict[str, str]:
        return {"shard-0": "ok", "shard-1": "it has no master now"}

    admin = f"http://127.0.0.1:{shell.broker.ports.admin_port}"
    words = ("user", "password", "ann", "--former", "60", "--admin", admin)
    with monkeypatch.context() as patch:
        patch.setattr(AccessSpreader, "spread", spread)
        said = await shell.run(*words, code=1, IMAGO_ADMIN="http://127.0.0.1:1")
    again = f"ann --former 60 --admin {admin} --from-file ann.password.new"
    assert f"{again} && mv ann.password.new ann.password" in " ".join(said.split())
    assert path.read_text() == before != (shell.folder / "ann.password.new").read_text()


async def test_the_first_password_is_kept_where_its_answer_is_lost(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spread(_: AccessSpreader) -> dict[str, str]:
        return {"shard-0": "ok", "shard-1": "it has no master now"}

    with monkeypatch.context() as patch:
        patch.setattr(AccessSpreader, "spread", spread)
        said = await shell.run("user", "create", "ann", "--super", "--no-signs", code=1)
    admin = f"--admin http://127.0.0.1:{shell.broker.ports.admin_port}"
    again = f"imago user create ann --super --no-signs {admin} --from-file ann.password.new"
    assert f"{again} && mv ann.password.new ann.password" in " ".join(said.split())
    kept = shell.folder / "ann.password.new"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not (shell.folder / "ann.password").exists()
    said = await shell.run(*again.split()[1:], code=1)
    assert "imago user password ann --from-file ann.password.new" in said, "the broker has it"
    users = shell.broker.core.access.users
    await shell.run("user", "password", "ann", "--from-file", "ann.password.new")
    assert users["ann"].has_password(kept.read_text().strip())


@pytest.mark.parametrize("command", ["create", "password"])
async def test_a_password_outlives_an_interruption_before_the_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    if command == "password":
        await shell.run("user", "create", "ann")
    taken, interrupted = asyncio.Event(), asyncio.Event()

    async def spread(_: AccessSpreader) -> dict[str, str]:
        taken.set()
        await interrupted.wait()
        return {}

    monkeypatch.setattr(AccessSpreader, "spread", spread)
    process = await shell.start("user", command, "ann")
    await taken.wait()
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    interrupted.set()
    assert process.returncode == Exit.INTERRUPTED
    admin = f"--admin http://127.0.0.1:{shell.broker.ports.admin_port}"
    again = f"imago user {command} ann {admin} --from-file ann.password.new"
    assert f"{again} && mv ann.password.new ann.password" in " ".join(out.decode().split())
    kept = (shell.folder / "ann.password.new").read_text().strip()
    assert shell.broker.core.access.users["ann"].secret == kept


async def test_a_password_that_a_broker_refuses_is_not_kept(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("user", "create", "ann")
    path = shell.folder / "ann.password"
    before = path.read_text()

    def refuses(*_: object) -> None:
        raise RequestError("the user cannot have it")

    with monkeypatch.context() as patch:
        patch.setattr(AccessService, "put_account", refuses)
        said = await shell.run("user", "password", "ann", code=1)
    assert "the user cannot have it" in said
    assert "--from-file" not in said
    assert path.read_text() == before
    assert not (shell.folder / "ann.password.new").exists()
    await shell.run("user", "password", "ann")


@pytest.mark.full
async def test_a_secret_that_no_file_takes_is_never_made(shell: Shell) -> None:
    (shell.folder / "ann.password").write_text("of before")
    said = await shell.run("user", "create", "ann", code=2)
    assert "ann.password is there already" in said
    assert dict(shell.broker.core.access.users) == {}
    assert (shell.folder / "ann.password").read_text() == "of before"
    await shell.run("user", "create", "bob", "--from-file", "ann.password")
    (shell.folder / "bob.token").write_text("of before")
    assert "bob.token is there already" in await shell.run("user", "token", "bob", code=2)
    assert shell.broker.core.access.users["bob"].tokens == ()
    gone = {"IMAGO_ADMIN": "http://127.0.0.1:1"}
    await shell.run("user", "create", "carl", code=1, **gone)
    await shell.run("user", "token", "bob", "--out", "later.token", code=1, **gone)
    await shell.run("user", "token", "nobody", code=1)
    left = {path.name for path in shell.folder.iterdir() if path.suffix in (".password", ".token")}
    assert left == {"ann.password", "bob.token"}


async def test_who_is_not_known_hears_what_to_do(shell: Shell) -> None:
    await shell.run("user", "create", "ann")
    ann = ("--user", "ann", "--password-file", "ann.password")
    said = await shell.run(*ann, "user", "list", code=1, IMAGO_ADMIN_TOKEN_FILE="")
    assert "This call needs a user." in said
    assert "from the file that IMAGO_ADMIN_TOKEN_FILE names, and no password" in said
    said = await shell.run("user", "list", code=1, IMAGO_ADMIN_TOKEN_FILE="ann.password")
    assert "The token of this call is not known here." in said
    (shell.folder / "wrong").write_text("guessed")
    said = await shell.run(*ann[:3], "wrong", "topic", "create", "orders", code=1)
    assert "check signature failed" in said
    assert "see --password-file" in said
    said = await shell.run("--user", "bob", *ann[2:], "topic", "create", "orders", code=1)
    assert "User:bob is not found" in said
    assert "see --user" in said
    said = await shell.run("topic", "list", code=2, IMAGO_TLS_CA="nowhere.pem")
    assert "error: IMAGO_TLS_CA: nowhere.pem: No such file" in said
    assert "PEM" in said
    address = f"https://127.0.0.1:{shell.broker.ports.admin_port}"
    said = await shell.run("user", "list", code=1, IMAGO_ADMIN=address)
    assert "answers http:// only" in said


async def test_a_right_that_is_none_is_named(shell: Shell) -> None:
    await shell.run("user", "create", "ann")
    said = await shell.run("user", "allow", "ann", "topic:orders", "write", code=1)
    assert "operation 'write': must be one of publish, " in said
    assert "; or all, alone" in said
    said = await shell.run("user", "allow", "ann", "orders", "publish", code=2)
    assert "'orders' is no resource" in said
    assert "did you mean topic:orders?" in said
    said = await shell.run("user", "allow", "ann", "topics:orders", "publish", code=1)
    assert "type of resource 'Topics': must be one of " in said
    assert "nothing was changed" in said
    assert "yes" in await shell.run("user", "list")


async def test_a_token_of_a_user(shell: Shell) -> None:
    await shell.run("user", "create", "ann", "--super", "--no-signs")
    await shell.run("user", "token", "ann", "--days", "1", "--note", "ci")
    token = shell.folder / "ann.token"
    assert token.stat().st_mode & 0o777 == 0o600
    [listed] = json.loads(await shell.run("user", "list", "--json"))
    assert [one["note"] for one in listed["tokens"]] == ["ci"]
    assert token.read_text().strip().rpartition(".")[2] not in str(listed)
    assert (listed["signs"], listed["password"]) == (False, True)


async def test_a_token_that_not_every_shard_has_yet_is_written_and_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spread(_: AccessSpreader) -> dict[str, str]:
        return {"shard-0": "ok", "shard-1": "it has no master now"}

    await shell.run("user", "create", "ann", "--super", "--no-signs")
    monkeypatch.setattr(AccessSpreader, "spread", spread)
    said = await shell.run("user", "token", "ann")
    assert "shard-1 does not have it yet, and gets it by itself: it has no master now" in said
    assert (shell.folder / "ann.token").read_text().startswith("imt.ann.")


async def test_a_token_that_is_not_replicated_is_told_to_nobody(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("user", "create", "ann", "--super", "--no-signs")
    acknowledgements = shell.broker.core.messages.acknowledgements
    with monkeypatch.context() as patch:
        patch.setattr(
            acknowledgements,
            "when_replicated",
            lambda done, token: done(token, PutStatus.SLAVE_UNAVAILABLE, ()),
        )
        said = await shell.run("user", "token", "ann", code=1)
        assert "No token was made: the shard answers slave-unavailable" in said
        assert not (shell.folder / "ann.token").exists()
    await shell.run("user", "token", "ann")


async def test_accounts_of_rocketmq_4_are_taken_over(shell: Shell) -> None:
    (shell.folder / "plain_acl.yml").write_text(
        "globalWhiteRemoteAddresses:\n  - 10.10.103.*\n"
        "accounts:\n  - accessKey: RocketMQ\n    secretKey: '12345678'\n    admin: false\n"
        "    defaultTopicPerm: SUB\n    topicPerms:\n      - topicA=DENY\n      - topicB=PUB|SUB\n"
        "  - accessKey: rocketmq2\n    secretKey: '12345678'\n    admin: true\n"
    )
    await shell.run("user", "import", "plain_acl.yml")
    access = shell.broker.core.access
    assert access.white_addresses == ("10.10.103.*",)
    assert access.users["rocketmq2"].is_super
    rights = access.rights_of("RocketMQ")
    both = (Operation.PUBLISH, Operation.SUBSCRIBE)
    allowed = [
        [what.value for what in both if rights.allows(what, AccessKind.TOPIC, name, "10.0.0.1")]
        for name in ("topicA", "topicB", "topicC")
    ]
    assert allowed == [[], ["publish", "subscribe"], ["subscribe"]]


def test_imago_up_makes_a_token_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGO_ADMIN_TOKEN_FILE", "")  # put back afterwards
    monkeypatch.delenv("IMAGO_ADMIN_TOKEN_FILE")
    assert with_token({}, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    base = {"acl": {"enabled": "true"}, "admin": {"port": 1}}
    first = with_token(base, tmp_path)
    file = tmp_path / "admin-token"
    assert first["admin"] == {"port": 1, "token_file": str(file)}
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text()
    assert with_token(base, tmp_path) == first
    assert file.read_text() == token
    own = {"acl": {"enabled": True}, "admin": {"token_file": "mine"}}
    assert with_token(own, tmp_path)["admin"]["token_file"] == "mine"
    assert "IMAGO_ADMIN_TOKEN_FILE" not in os.environ
    use_token({})
    assert "IMAGO_ADMIN_TOKEN_FILE" not in os.environ
    use_token(first)
    assert os.environ["IMAGO_ADMIN_TOKEN_FILE"] == str(file)
    use_token(own)
    assert os.environ["IMAGO_ADMIN_TOKEN_FILE"] == str(file), "what the user says wins"


async def test_a_closed_cluster_in_a_few_lines(tmp_path: Path) -> None:
    """What `imago security init` makes is a broker's configuration that serves its users alone."""
    folder = tmp_path / "security"
    base = broker_config(tmp_path)
    run = Shell(tmp_path, Broker(base)).run
    told = await run("security", "init", str(folder), "--host", "broker.example", "--host", "::1")
    start = f"imago up --config {folder / 'security.toml'}"
    for said in ("imago user create", "IMAGO_ADMIN=https://", start):
        assert said in told
    assert folder.stat().st_mode & 0o777 == 0o700
    files = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert {*files} == {
        "admin-token",
        "ca.key",
        "ca.pem",
        "server.key",
        "server.pem",
        "security.toml",
    }
    assert set(files.values()) == {0o600}
    assert "is there already" in await run("security", "init", str(folder), code=2)
    settings = load((folder / "security.toml").read_text())
    config = replace(
        base,
        tls=settings.tls,
        acl=settings.acl,
        security=settings.security,
        admin=replace(base.admin, token_file=settings.admin.token_file),
    )
    broker = Broker(config)
    await broker.start()
    try:
        shell = Shell(tmp_path, broker)
        await shell.run("user", "create", "root", "--super")
        root = ("--user", "root", "--password-file", "root.password")
        await shell.run(*root, "topic", "create", "orders", IMAGO_TLS_CA=str(folder / "ca.pem"))
        assert broker.topics.get("orders") is not None
        said = await shell.run(*root, "topic", "create", "more", code=1)
        assert "IMAGO_TLS_CA" in said
        said = await shell.run(
            "topic", "create", "more", code=1, IMAGO_TLS_CA=str(folder / "ca.pem")
        )
        assert "--password-file" in said
        assert broker.topics.get("more") is None
    finally:
        await broker.stop()


@pytest.mark.full
async def test_limits_by_commands(shell: Shell) -> None:
    await shell.run("user", "create", "ann")
    said = await shell.run("user", "limit", "ann", "producer-bytes=1MiB", "connections=20")
    assert "user:ann: producer-bytes=1048576 connections=20" in said
    said = await shell.run("user", "limit", "ann", "producer-bytes=none")
    assert "user:ann: connections=20" in said
    await shell.run("user", "limit", "topic:orders*", "topics=3", "consumer-bytes=1KiB")
    said = await shell.run("user", "describe", "ann")
    assert "limits: connections=20" in said
    assert "here: throttled for 0.0 s, 0 refused" in said
    said = await shell.run("user", "limits")
    assert said.index("topic:orders*") < said.index("consumer-bytes=1024") < said.index("user:ann")
    for wrong in ("connections", "connections=0", "connections=-1", "bytes=1", "connections=1MiB"):
        await shell.run("user", "limit", "ann", wrong, code=2)
    exported = await shell.run("user", "export")
    told = json.loads(exported)
    assert told["quotas"] == {"topic:orders*": {"consumerBytesPerSecond": 1024, "topics": 3}}
    assert [one["quotas"] for one in told["users"]] == [{"connections": 20}]
    await shell.run("user", "delete", "ann", "--yes")
    await shell.run("user", "limit", "topic:orders*", "topics=none", "consumer-bytes=none")
    assert dict(shell.broker.core.access.quota_table.quotas) == {}
    (shell.folder / "users.yml").write_text(exported)
    await shell.run("user", "import", "users.yml")
    table = shell.broker.core.access.quota_table
    assert [str(each) for each in sorted(table.quotas)] == ["topic:orders*", "user:ann"]
