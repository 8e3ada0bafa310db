"""The files of the dashboard: how large they are, what they refer to, and how they are served."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.admin.dashboard import files

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin

STATIC = Path(files.__file__).with_name("static")
BYTES_MAX = 150_000
LIBRARIES = {"uplot"}


def test_a_browser_gets_all_of_it_in_little() -> None:
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < BYTES_MAX
    assert (STATIC / "uplot.js").stat().st_size < 50 << 10


def test_each_library_has_its_licence_and_each_file_a_use() -> None:
    scripts = {path.name for path in STATIC.glob("*.js")}
    assert {path.stem for path in STATIC.glob("*.LICENSE")} == LIBRARIES
    own = [path for path in STATIC.iterdir() if path.stem not in LIBRARIES]
    texts = "\n".join(path.read_text() for path in own)
    assert all(re.search(rf"[/\"]{re.escape(name)}\"", texts) for name in scripts)
    assert set(re.findall(r"from \"\./([^\"]+)\"", texts)) <= scripts
    assert not re.search(r"https?://(?!www\.w3\.org)", texts.replace('"http://"', ""))


async def test_they_are_served_with_their_types_and_others_are_not(admin: Admin) -> None:
    url = f"http://127.0.0.1:{admin.broker.ports.admin_port}"
    for name, kind in (
        ("/", "text/html"),
        ("/dashboard/shell.js", "text/javascript"),
        ("/dashboard/uplot.css", "text/css"),
        ("/dashboard/uplot.LICENSE", "text/plain"),
    ):
        async with admin.session.get(url + name) as answer:
            assert (answer.status, answer.content_type) == (200, kind), name
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    status, body = await admin.call("GET", "/dashboard/..%2Ffiles.py")
    assert (status, body["error"]) == (404, "file_not_found")
