"""A client with a user signs its requests; what it knows is shown nowhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from imago_client.config import ClientConfig
from imago_client.core.framing import request_frame
from imago_client.credentials import UserCredentials
from imago_client.errors import UsageError
from imago_wire.remoting.frame import FrameDecoder
from imago_wire.remoting.headers.pull import GetMaxOffsetRequestHeader
from imago_wire.remoting.signing import is_signed

if TYPE_CHECKING:
    from pathlib import Path

    from imago_wire.remoting.command import RemotingCommand

HEADER = GetMaxOffsetRequestHeader(topic="orders", queue_id=0)


def decoded(frame: bytes) -> list[RemotingCommand]:
    decoder = FrameDecoder()
    decoder.feed(frame)
    found = decoder.next_frame()
    assert found is not None
    return [found]


def test_requests_are_signed() -> None:
    config = ClientConfig(bootstrap=("a:1",), user="ann", password="password")
    frame = request_frame(
        30, HEADER, b"body", opaque=1, oneway=False, credentials=UserCredentials.of(config)
    )
    [command] = decoded(frame)
    assert command.ext["AccessKey"] == "ann"
    assert is_signed("password", command)
    assert b"password" not in frame
    assert "password'" not in repr(config).replace("password_file", "")
    assert repr(UserCredentials.of(config)) == "UserCredentials('ann')"


def test_a_client_without_a_user_signs_nothing() -> None:
    assert UserCredentials.of(ClientConfig(bootstrap=("a:1",))) is None
    [command] = decoded(request_frame(30, HEADER, b"", opaque=1, oneway=False))
    assert "AccessKey" not in command.ext


def test_a_password_file_is_read_again_once_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imago_client.credentials.LOOK_AGAIN_S", 0.0)
    file = tmp_path / "password"
    file.write_text("first-password\n")
    credentials = UserCredentials("ann", file=str(file))

    def signs_with(secret: str) -> bool:
        frame = request_frame(30, HEADER, b"", opaque=1, oneway=False, credentials=credentials)
        [command] = decoded(frame)
        return is_signed(secret, command)

    assert signs_with("first-password")
    file.write_text("")  # being replaced
    os.utime(file, ns=(1, 1))
    assert signs_with("first-password")
    file.write_text("other-password")
    os.utime(file, ns=(2, 2))
    assert signs_with("other-password")
    file.unlink()
    assert signs_with("other-password")


@pytest.mark.parametrize(
    "settings",
    [
        {"user": "ann"},
        {"password": "password"},
        {"password_file": "file"},
        {"user": "ann", "password": "password", "password_file": "file"},
    ],
)
def test_a_user_has_one_password(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"^user: "):
        ClientConfig(bootstrap=("a:1",), **settings)  # type: ignore[arg-type]


def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"password_file: .*No such file"):
        UserCredentials("ann", file=str(tmp_path / "none"))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match=r"password_file: .*is empty"):
        UserCredentials("ann", file=str(tmp_path / "empty"))
