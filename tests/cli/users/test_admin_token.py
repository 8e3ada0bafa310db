"""What commands show of the admin token, and to whom."""

from __future__ import annotations

import socketserver
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, ClassVar

import pytest

from imago_broker.shard_work.signing import is_signed
from imago_cli.clusters.admin_http import TOKEN_VARIABLE, ask
from imago_cli.exits import CommandError
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "sesame"
PATH = "/admin/v1/topics/%25RETRY%25g?limit=1"


class Hearing(BaseHTTPRequestHandler):
    """Answers everybody, and keeps what was said."""

    heard: ClassVar[list[tuple[str, str, str, bytes]]] = []

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        given = self.headers.get("Authorization", "")
        self.heard.append((self.command, self.path, given, body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Hearing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Hearing.heard.clear()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def _token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv(TOKEN_VARIABLE, str(tmp_path / "token"))


@pytest.mark.usefixtures("_token")
@pytest.mark.parametrize("body", [None, {"target": 1}])
def test_an_address_that_a_broker_has_told_gets_a_signature_and_no_token(
    address: str, body: object
) -> None:
    ask(f"http://{address}", PATH, body, found=True)
    ((method, path, given, said),) = Hearing.heard
    assert TOKEN not in given
    now_ms = time.time_ns() // 1_000_000
    assert is_signed(given, TOKEN, now_ms, method, address, path, said)
    assert not is_signed(given, TOKEN, now_ms, method, "10.0.0.9:8080", path, said)


@pytest.mark.usefixtures("_token")
def test_the_address_that_the_user_gives_gets_the_token(address: str) -> None:
    ask(f"http://{address}", PATH)
    assert Hearing.heard[0][2] == f"Bearer {TOKEN}"


def test_without_a_token_nothing_is_shown(address: str) -> None:
    ask(f"http://{address}", PATH, found=True)
    assert Hearing.heard[0][2] == ""


def test_the_cure_of_a_certificate_that_has_ended_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    answering = threading.Thread(target=server.handle_request)
    answering.start()
    monkeypatch.setenv("IMAGO_TLS_CA", str(authority.file))
    try:
        with pytest.raises(CommandError, match="expired") as failed:
            ask(f"https://127.0.0.1:{server.server_address[1]}", "/admin/v1/cluster")
    finally:
        answering.join()
        server.server_close()
    assert "new certificate" in failed.value.cure
