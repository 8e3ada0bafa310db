"""Commands and clients of users who may read or write a topic and see nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_client.blocking import metaq as blocking
from imago_client.metaq import MetaqClient, MetaqConfig, MetaqError, Partition
from imago_client.metaq.reading import bounds
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


async def test_metaq_takes_messages_of_who_may_not_ask_for_its_topics(shell: Shell) -> None:
    shell.broker.topics.create_or_update(TopicConfig(name="orders"))
    await shell.run("user", "create", "ann")
    await shell.run("user", "allow", "ann", "topic:orders", "publish", "subscribe")
    metaq = ("--protocol", "metaq", "--metaq", f"127.0.0.1:{shell.broker.ports.metaq_port}")
    ann = ("--user", "ann", "--password-file", "ann.password")
    assert "1 sent" in await shell.run(*ann, "produce", "orders", "hello", *metaq)
    said = await shell.run(*ann, "consume", "orders", *metaq, code=1)
    assert "imago user allow ann group:IMAGO_CLI describe" in said
    await shell.run("user", "allow", "ann", "group:IMAGO_CLI", "describe")
    said = await shell.run(*ann, "consume", "orders", *metaq, code=1)
    assert "imago user allow ann group:IMAGO_CLI subscribe" in said, "and nothing waits for ever"
    await shell.run("user", "allow", "ann", "group:IMAGO_CLI", "subscribe")
    assert "hello" in await shell.run(*ann, "consume", "orders", *metaq)
    said = await shell.run(*ann, "consume", "orders", "--follow", "--count", "1", *metaq)
    assert "hello" in said
    assert "note: no --group was named, and so no positions are kept" in said
    await shell.run("user", "allow", "ann", "group:g", "subscribe")
    said = await shell.run(*ann, "consume", "orders", "--group", "g", "--count", "1", *metaq)
    assert "hello" in said
    assert "--offsets FILE would keep those of g" in said
    await shell.run("user", "allow", "ann", "topic:none", "subscribe")
    assert "it may be no topic" in await shell.run(*ann, "consume", "none", *metaq)
    said = await shell.run(*ann, "consume", "others", *metaq, code=1)
    assert "imago user allow ann topic:others describe" in said


async def test_refusals_of_rocketmq_name_the_command_that_gives_the_right(shell: Shell) -> None:
    shell.broker.topics.create_or_update(TopicConfig(name="orders"))
    await shell.run("user", "create", "ann")
    ann = ("--user", "ann", "--password-file", "ann.password")
    said = await shell.run(*ann, "produce", "orders", "hello", code=1)
    assert "cure: an administrator allows it: imago user allow ann topic:orders publish\n" in said


async def test_both_clients_find_partitions_without_the_right_to_see_all(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "AT_ONCE", 2)
    shell.broker.topics.create_or_update(TopicConfig(name="orders", read_queues=5, write_queues=5))
    await shell.run("user", "create", "ann")
    await shell.run("user", "allow", "ann", "topic:orders", "publish", "subscribe")
    await shell.run("user", "allow", "ann", "group:g", "subscribe")
    server = f"127.0.0.1:{shell.broker.ports.metaq_port}"
    config = MetaqConfig(
        servers=(server,), user="ann", password_file=str(shell.folder / "ann.password")
    )
    async with MetaqClient(config) as client:
        for number in (0, 2, 3):
            await client.producer().send("orders", b"x" * number, partition=number)
        wanted = {Partition("orders", server, each): (0, 20 + each) for each in (0, 2, 3)}
        assert await client.partitions("orders", group="g") == wanted
        with pytest.raises(MetaqError, match="may not describe cluster"):
            await client.partitions("orders")

    def ask() -> object:
        with blocking.MetaqClient(config) as client:
            with pytest.raises(MetaqError, match="may not describe cluster"):
                client.partitions("orders")
            return client.partitions("orders", group="g")

    assert await asyncio.to_thread(ask) == wanted


async def test_a_reader_sees_how_far_his_group_is_and_no_other(shell: Shell) -> None:
    shell.broker.topics.create_or_update(TopicConfig(name="orders"))
    for group in ("billing", "others"):
        shell.broker.groups.update(GroupConfig(name=group))
        shell.broker.offsets.commit(group, "orders", 0, 0)
    await shell.run("user", "create", "ann")
    ann = ("--user", "ann", "--password-file", "ann.password")
    said = await shell.run(*ann, "group", "describe", "billing", code=1)
    assert "imago user allow ann group:billing describe" in said
    assert "OPERATION" not in said
    await shell.run("user", "allow", "ann", "group:billing", "describe")
    said = await shell.run(*ann, "group", "describe", "billing")
    assert "orders" in said
    assert "it is not behind" in said
    said = await shell.run(*ann, "group", "describe", "others", code=1)
    assert "imago user allow ann group:others describe" in said
    await shell.run("user", "allow", "ann", "group:bil", "describe")
    assert "there is no group bil" in await shell.run(*ann, "group", "describe", "bil", code=1)


async def test_what_a_topics_reader_may_not_see_of_it_is_said(shell: Shell) -> None:
    shell.broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
    shell.broker.offsets.commit("billing", "orders", 0, 0)
    await shell.run("user", "create", "ann")
    await shell.run("user", "allow", "ann", "topic:orders", "subscribe")
    ann = ("--user", "ann", "--password-file", "ann.password")
    said = await shell.run(*ann, "topic", "describe", "orders")
    assert "orders: 0 messages" in said
    assert "how far groups are behind is not shown: " in said
    assert "billing" not in said
    assert '"lag":null' in await shell.run(*ann, "topic", "describe", "orders", "--json")
