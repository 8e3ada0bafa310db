"""The dashboard in a real browser: kept up to date, and what is sent and given back from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from imago_cli.clusters.admin_http import ask
from imago_testing.processes.dashboard import TEXT, admin_of, follow, go, watched

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.processes.up import Up

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


async def test_a_hidden_page_asks_for_nothing(cluster: Up, tmp_path: Path) -> None:
    async with watched(admin_of(cluster, 0), tmp_path) as page:
        await page.value(
            "window.planned = 0; window.setTimeout = () => ++planned; window.streams = [];"
            " window.EventSource = class extends EventSource"
            " { constructor(url) { super(url); streams.push(this); } };"
            " window.hide = hidden => { Object.defineProperty(document, 'hidden',"
            " { configurable: true, value: hidden });"
            " document.dispatchEvent(new Event('visibilitychange')); }; hide(true); true"
        )
        await go(page, "#/topics", "orders")
        await page.until("document.getElementById('state').textContent.startsWith('as of')")
        assert await page.value("[planned, streams.length].join()") == "0,0"
        await page.value("hide(false); true")
        await page.until("streams.length === 1 && streams[0].readyState === 1")
        await page.value("hide(true); true")
        await page.until("streams[0].readyState === 2")
        assert await page.value("[planned, streams.length].join()") == "0,1"


async def test_what_is_selected_and_clicked_survives_what_changes(
    cluster: Up, tmp_path: Path
) -> None:
    admin = admin_of(cluster, 0)
    row = "document.querySelector('main tr[data-key=\"orders\"]')"
    async with watched(admin, tmp_path) as page:
        await go(page, "#/topics", "orders")
        await page.value(
            f"window.row = {row}; window.link = row.querySelector('a'); link.focus();"
            " getSelection().selectAllChildren(row.cells[0]); window.moved = 0;"
            " new MutationObserver(() => ++moved).observe(row, { childList: true }); true"
        )
        name = f"aaa{tmp_path.name[-8:]}".replace("_", "-")
        ask(admin, f"/admin/v1/topics/{name}", {"queues": 1}, method="PUT")
        await page.until(f"{TEXT}.includes('{name}')")
        kept = f"[row === {row}, document.activeElement === link, moved, getSelection() + '']"
        assert await page.value(f"JSON.stringify({kept})") == '[true,true,0,"orders"]'
        asked = "performance.getEntriesByType('resource').filter(e => e.name.includes('/topics?'))"
        assert await page.value(f"{asked}.filter(e => e.initiatorType === 'fetch').length") == 1
        await follow(page, "link", "Groups that read it")
        ask(admin, f"/admin/v1/topics/{name}", method="DELETE")


async def test_a_page_without_a_stream_asks_by_itself(cluster: Up, tmp_path: Path) -> None:
    async with watched(admin_of(cluster, 1), tmp_path) as page:
        await page.value(
            "window.refused = 0; window.EventSource = class { constructor() { ++refused;"
            " queueMicrotask(() => this.onerror()); } close() {} }; true"
        )
        await go(page, "#/topics", "orders")
        await page.until("refused > 1")
        assert await page.value("document.getElementById('state').className") == ""


async def test_letters_are_given_back_and_messages_sent(cluster: Up, tmp_path: Path) -> None:
    admin = admin_of(cluster, 0)
    form = "document.querySelector('main form[data-act]')"
    notice = "document.getElementById('notice').textContent"

    def count(topic: str) -> int:
        shards = ask(admin, f"/admin/v1/cluster/topics/{quote(topic, safe='')}")["items"]
        return sum(q["maxOffset"] - q["minOffset"] for shard in shards for q in shard["queues"])

    async with watched(admin, tmp_path) as page:
        await go(page, "#/letters/payer", "Give them back")
        await page.value(f"{form}.elements.word.value = 'x'; {form}.requestSubmit(); true")
        await page.until(f"{notice}.includes('type payer to confirm')")
        assert count("%RETRY%payer") == 0
        for told in ("Given back to payer: 1; left: 0.", "Given back to payer: 0; left: 0."):
            await page.value(f"{form}.elements.word.value = 'payer'; {form}.requestSubmit(); true")
            await page.until(f"{notice} === {json.dumps(told)}")
        assert count("%RETRY%payer") == 1
        before = count("idle")
        await go(page, "#/topics/idle", "Send a message")
        await page.value(
            f"{form}.elements.value.value = 'typed <b>'; {form}.elements.keys.value = ' t1  t2 ';"
            f" {form}.elements.tags.value = 'by-hand'; {form}.elements.word.value = 'idle';"
            f" {form}.requestSubmit(); true"
        )
        await page.until(f"{notice}.startsWith('Stored: shard-')")
        await page.until(f"{TEXT}.includes('typed <b>')")
        assert count("idle") == before + 1
        (item,) = ask(admin, "/admin/v1/messages?topic=idle&key=t2")["items"]
        assert (item["text"], item["tags"], item["keys"]) == ("typed <b>", "by-hand", "t1 t2")
