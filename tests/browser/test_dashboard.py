"""The dashboard of a cluster of two shards in a real browser: Debian's chromium, headless."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from imago_cli.clusters.admin_http import ask
from imago_client import Message, ResetTo
from imago_client.blocking import Client
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.processes.dashboard import TEXT, admin_of, follow, go, watched
from imago_testing.processes.servers import wait_until
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from imago_testing.processes.browser import Page
    from imago_testing.processes.up import Up

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SECONDS_MAX = 60
MESSAGES = 20
HOSTILE = "<img src=x onerror=alert(1)>"
BODY = json.dumps({"n": 12345678901234567890, "evil": HOSTILE}).encode()
ASKED_HISTORY = ("topic=orders", "group=billing")
AXE = Path(__file__).with_name("axe") / "axe.min.js.gz"
"""The checks of axe-core, unchanged; its licence is beside it."""
PAGES = {
    "#/": "Cluster imago",
    "#/topics": "orders",
    "#/topics?system=true": "TBW102",
    "#/topics/orders": "queues on 2 shards",
    "#/groups": "billing",
    "#/groups/billing?reset=orders&to=latest": "Nothing is changed yet",
    "#/messages?by=newest&topic=orders": "k19",
    "#/message?topic=orders&shard=0&queue=0&offset=0": "Facts",
    "#/letters": "payer",
    "#/letters/payer": "imago dlq replay payer",
    "#/waiting": "remind",
    "#/clients": "Connected to any broker",
    "#/nodes": "2 brokers answer",
    "#/pipelines?name=sales": "No run of this pipeline",
    "#/users": "Access control is off",
    "#/users/ann": "Sun, the first",
    "#/limits": "producerBytesPerSecond",
    "#/configuration": "keys",
    "#/configuration/limits.topics_max": "Topics of one shard",
    "#/audit": "PUT /admin/v1/users/ann by",
    "#/doctor": "findings",
    "#/nowhere": "There is no page nowhere",
}
"""Every page, and what it shows once it is whole."""
SHARD_PAGES = ("#/", "#/topics", "#/topics/orders", "#/groups", "#/groups/billing", "#/messages")


async def test_the_same_cluster_is_shown_at_every_broker(cluster: Up, tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with watched(admin_of(cluster, number), folder) as page:
            await go(page, "#/", "2 of 2", "Members", *(b["rocketmq"] for b in brokers(cluster)))
            await go(page, "#/topics?contains=ord&sort=-queues", "1 found", "orders", "21")
            assert "idle" not in await page.value("document.getElementById('main').innerText")
            await go(page, "#/topics/orders", "queues on 2 shards", "shard-1", "billing")
            await go(page, "#/groups?sort=-lag", "billing", "nobody reads")
            await go(page, "#/groups/billing", "Nobody reads: no member is connected.", "shard-1")
            assert await page.value("document.getElementById('alerts').innerText") == ""


def brokers(cluster: Up) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.ready["brokers"]
    return found


async def test_a_message_is_found_and_shown_as_it_is(cluster: Up, tmp_path: Path) -> None:
    async with watched(admin_of(cluster, 0), tmp_path) as page:
        await go(page, "#/messages?by=key&topic=orders&key=k3", "1 found", "k3")
        await follow(page, "document.querySelector('main td a')", "Facts")
        shown = await page.value("document.querySelector('pre.json').textContent")
        assert shown == BODY.decode().replace("{", "{\n  ").replace(", ", ",\n  ").replace(
            "}", "\n}"
        ), "numbers as they were sent, markup as text"
        assert HOSTILE in await page.value(TEXT), "of a property, too"
        unique = ask(admin_of(cluster, 1), "/admin/v1/messages?topic=orders&key=k3")["items"][0]
        await go(page, f"#/messages?by=id&id={unique['uniqueId']}", "1 found")
        await go(page, "#/messages?by=key&topic=orders&key=binary", "3 B, not text")
        await follow(page, "document.querySelector('main td a')")
        await page.until("document.querySelector('pre.hex')?.textContent.includes('ff 00 01')")
        await go(page, "#/messages?by=key&topic=orders&key=none", "0 found")
        await go(page, f"#/topics/{quote(HOSTILE)}", "There is no topic", HOSTILE)
        await page.until("document.querySelector('main code')?.textContent === 'imago topic list'")
        for place in ("#/topics/order", "#/messages?by=newest&topic=order"):
            await go(page, place, "Did you mean 'orders'?", "all topics")
            await follow(page, "document.querySelector('main p a')", "k19")
            assert "orders" in await page.value("location.hash")
        await go(page, "#/topics/%25DLQ%25billing", "No message of this group was given up")


async def test_charts_show_what_came_before_the_page_was_opened(
    cluster: Up, tmp_path: Path
) -> None:
    admin = admin_of(cluster, 0)
    wait_until(
        lambda: all(ask(admin, f"/admin/v1/history?{of}")["items"] for of in ASKED_HISTORY),
        seconds_max=SECONDS_MAX,
        what="both brokers have noted their figures",
    )
    chart = "document.querySelector('imago-chart')"
    async with watched(admin, tmp_path) as page:
        for place, title, told in (
            ("#/", "Messages of all", "messages a second, steps of 10 s"),
            ("#/topics/orders?span=24h", "Messages in", "messages a second, steps of 4 min"),
            ("#/groups/billing?span=6h", "Lag", "messages, steps of 60 s"),
        ):
            await go(page, place, title)
            await page.until(f"{chart}?.getAttribute('aria-label').startsWith('{told}')")
            await page.until(f"{chart}.querySelector('canvas')?.width > 300")
        await page.value(f"window.drawn = {chart}.querySelector('canvas'); true")
        await page.value("document.dispatchEvent(new Event('visibilitychange')); true")
        behind = f"{chart}.getAttribute('aria-label').includes('behind: {MESSAGES + 1} now')"
        await page.until(f"{behind} && drawn.isConnected")


async def test_what_a_person_does_outlives_what_comes(cluster: Up, tmp_path: Path) -> None:
    """Focus, words that are typed and rows stay the same elements while figures change."""
    async with watched(admin_of(cluster, 0), tmp_path) as page:
        await go(page, "#/topics", "orders")
        await page.value(
            "window.row = document.querySelector('tr[data-key=orders]');"
            " window.field = document.querySelector('main input');"
            " document.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }));"
            " field.value = 'ide'; window.before = document.getElementById('state').textContent;"
            " true"
        )
        with Client(cluster.ready["namesrv"]) as client:
            client.producer().send(Message("orders", b"one more"))
        await page.value("document.dispatchEvent(new Event('visibilitychange')); true")
        await page.until("row.isConnected && row.innerText.includes('22')")
        assert await page.value("document.activeElement === field && field.value") == "ide"
        await page.value("field.form.requestSubmit(); true")
        await page.until(f"location.hash.includes('contains=ide') && {TEXT}.includes('no topic')")
        await page.value("history.back(); true")
        await page.until(f"{TEXT}.includes('orders')")


async def test_a_group_goes_on_elsewhere_once_its_name_is_typed(
    cluster: Up, tmp_path: Path
) -> None:
    admin = admin_of(cluster, 0)
    with Client(cluster.ready["namesrv"]) as client:
        client.admin.reset_group("audit", "orders", ResetTo.EARLIEST)

    def lag() -> int:
        (found,) = ask(admin, "/admin/v1/cluster/groups?group=audit")["items"]
        return int(found["topics"]["orders"]["lag"])

    before = lag()
    assert before > MESSAGES
    async with watched(admin, tmp_path) as page:
        await go(page, "#/groups/audit?reset=orders&to=earliest", "nothing changes")
        await go(page, "#/groups/audit?reset=orders&to=latest", "are left out", "shard-1")
        confirm = "document.querySelector('form[data-act]')"
        await page.value(f"{confirm}.elements.word.value = 'audi'; {confirm}.requestSubmit(); true")
        await page.until(f"{TEXT}.includes('Nothing was changed: type audit')")
        assert lag() == before
        await page.value(f"{confirm}.elements.word.value = 'audit'; {confirm}.requestSubmit(); 1")
        await page.until(f"{TEXT}.includes('audit goes on elsewhere in orders.')")
        await page.until(f"{TEXT}.includes('It is not behind.')")
        assert lag() == 0
        now = "2020-01-01T00:00:00"
        await go(page, f"#/groups/audit?reset=orders&to=time&time={now}", "are read again")


async def test_what_a_group_has_to_try_again_stands_on_its_page(
    cluster: Up, tmp_path: Path
) -> None:
    with Client(cluster.ready["namesrv"]) as client:
        client.admin.create_topic("shrunk", queues=2)
        for topic in ("orders", "shrunk"):
            client.admin.reset_group("failing", topic, ResetTo.LATEST)
    ask(admin_of(cluster, 0), "/admin/v1/topics/shrunk", {"queues": 1}, method="PUT")
    peer = await RemotingPeer.connect(int(brokers(cluster)[0]["rocketmq"].rpartition(":")[2]))
    message = (await peer.messages("orders"))[0]
    back = {"offset": message.physical_offset, "group": "failing", "delayLevel": 18}
    for _ in range(2):
        answer = await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer.code == ResponseCode.SUCCESS
    await peer.close()
    said = "2 wait to be tried again, and no member is connected"
    async with watched(admin_of(cluster, 1), tmp_path) as page:
        await go(page, "#/groups/failing", f"All is read, but {said}.", "1 (gone)")
        await go(page, "#/doctor", said)
        named = "[...document.querySelectorAll('a')].find(one => one.textContent === 'failing')"
        await follow(page, named, "All is read")
        await follow(page, "document.querySelector('.card a')")
        await page.until(f"{TEXT}.split('%RETRY%failing').length === 3")


async def resize(page: Page, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    await page.call("Emulation.setDeviceMetricsOverride", **size)


async def test_no_page_is_a_barrier_or_cut_off_in_light_or_dark(
    cluster: Up, tmp_path: Path
) -> None:
    """What axe-core calls serious: names, contrasts, roles, headings, keyboard."""
    serious = (
        "axe.run(document, %s).then(found => JSON.stringify("
        "found.violations.filter(each => ['serious', 'critical'].includes(each.impact))"
        ".map(each => [each.id, each.nodes[0].html, each.nodes[0].failureSummary])))"
    )
    everything = serious % "{ resultTypes: ['violations'] }"
    contrast = serious % "{ runOnly: ['color-contrast'] }"
    wide = "document.documentElement.scrollWidth"
    async with watched(admin_of(cluster, 0), tmp_path) as page:
        assert await page.value(gzip.decompress(AXE.read_bytes()).decode() + "; true")
        planted = "document.getElementById('main').append(document.createElement('button'))"
        assert "button-name" in await page.value(f"{planted}; {everything}"), "it finds something"
        for place, shown in PAGES.items():
            await resize(page, 1280)
            await page.value("document.getElementById('main').replaceChildren(); true")
            await go(page, place, shown)
            for scheme, checks in (("light", everything), ("dark", contrast)):
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                await page.call("Emulation.setEmulatedMedia", features=media)
                assert await page.value(checks) == "[]", (place, scheme)
            for width in (390, 2560):
                await resize(page, width)
                assert await page.value(wide) <= width, (place, width)
        background = "getComputedStyle(document.body).backgroundColor"
        assert await page.value(background) == "rgb(18, 22, 29)"


async def test_what_changes_something_is_confirmed_by_a_word(cluster: Up, tmp_path: Path) -> None:
    admin = admin_of(cluster, 0)
    form = "document.querySelector('main form[data-act]')"
    notice = "document.getElementById('notice').textContent"

    def topics_max() -> int:
        items = ask(admin, "/admin/v1/config")["items"]
        (found,) = [item["value"] for item in items if item["key"] == "limits.topics_max"]
        return int(found)

    async with watched(admin, tmp_path) as page:
        for value, word, said in (
            ("7777", "topics_max", "type limits.topics_max to confirm"),
            ("many", "limits.topics_max", "is no number"),
            ("-1", "limits.topics_max", "nothing was changed"),
        ):
            await go(page, "#/configuration/limits.topics_max", "Change it now")
            await page.value(
                f"{form}.elements.value.value = '{value}'; {form}.elements.word.value = '{word}';"
                f" {form}.requestSubmit(); true"
            )
            await page.until(f"{notice}.toLowerCase().includes('{said}')")
            assert topics_max() == 100_000
        await page.value(
            f"{form}.elements.value.value = '7777'; {form}.elements.word.value ="
            f" 'limits.topics_max'; {form}.requestSubmit(); true"
        )
        await page.until(f"{TEXT}.includes('is set on this broker')")
        assert topics_max() == 7777
        with (
            Client(cluster.ready["namesrv"]) as client,
            client.group_consumer("idlers", ["idle"]) as consumer,
        ):

            def is_connected() -> bool:
                consumer.poll(0.1)
                return bool(ask(admin, "/admin/v1/cluster/clients?group=idlers")["items"])

            wait_until(is_connected, seconds_max=SECONDS_MAX, what="a client is connected")
            await go(page, "#/clients?group=idlers", "idlers")
            await follow(page, "document.querySelector('main td a')", "Close its connections")
            word = f"{form}.elements.word.value = {form}.dataset.word"
            await page.value(f"{word}; {form}.requestSubmit(); true")
            await page.until(f"{TEXT}.includes('are closed; it may connect again')")


async def test_a_dead_shard_stands_on_every_page(cluster: Up, tmp_path: Path) -> None:
    """Last: the other tests need it."""
    admin = admin_of(cluster, 0)
    async with watched(admin, tmp_path) as page:
        os.kill(cluster.ready["brokers"][1]["pid"], signal.SIGKILL)
        wait_until(
            lambda: ask(admin, "/admin/v1/cluster")["shards"][1]["master"] is None,
            seconds_max=SECONDS_MAX,
            what="shard-1 is missed",
        )
        alerts = "document.getElementById('alerts').innerText"
        for place in SHARD_PAGES:
            await go(page, place)
            await page.until("document.getElementById('state').textContent.startsWith('as of')")
            await page.until(f"{alerts}.includes('shard-1 has no live member')")
            assert "away since" in await page.value(alerts), place
        await go(page, "#/", "1 of 2", "not alive")
        await go(page, "#/topics", "and those of 1 away")
        await go(page, "#/topics/orders", "messages, on the shards that answer")
        await go(page, "#/groups/billing", "On the shards that answer: ")
        await go(page, "#/messages?by=key&topic=orders&key=none", "none, on the shards that answer")
        await go(page, "#/messages?by=offset&topic=orders&shard=1&queue=0", "no master now")
