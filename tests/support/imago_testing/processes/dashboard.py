"""The dashboard of a broker of a test, in a real browser."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from imago_testing.processes.browser import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_testing.processes.browser import Page
    from imago_testing.processes.up import Up

TEXT = "document.body.innerText"


def admin_of(cluster: Up, number: int) -> str:
    return str(cluster.ready["brokers"][number]["admin"])


@asynccontextmanager
async def watched(admin: str, folder: Path) -> AsyncIterator[Page]:
    """Open the dashboard; what fails in its scripts, or runs that is not ours, is found after."""
    async with opened(admin, folder / "profile") as page:
        await page.until("document.getElementById('state')?.textContent.startsWith('as of')")
        await page.value(
            "window.failed = []; window.alert = () => failed.push('alert');"
            " for (const name of ['error', 'unhandledrejection', 'securitypolicyviolation'])"
            " addEventListener(name, event => failed.push(`${name} ${event.message}`)); true"
        )
        yield page
        assert await page.value("JSON.stringify(failed)") == "[]"
        assert await page.value("document.querySelectorAll('main img, main script').length") == 0


async def go(page: Page, place: str, *texts: str) -> None:
    """Go to an address, and wait for all that is to be seen there."""
    await _shown(page, f"location.hash = {json.dumps(place)}", *texts)


async def follow(page: Page, link: str, *texts: str) -> None:
    """Click a link, which an expression finds, and wait for all that is to be seen there."""
    await _shown(page, f"{link}.click()", *texts)


async def _shown(page: Page, change: str, *texts: str) -> None:
    # The page before may hold the texts as well.
    await page.value(f"{change}; true")
    await page.until("document.body.dataset.shown === location.hash")
    for text in texts:
        await page.until(f"{TEXT}.includes({json.dumps(text)})")
