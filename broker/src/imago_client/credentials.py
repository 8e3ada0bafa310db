"""Whose requests a client's are: each carries a signature made with the user's password."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from imago_client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOK_AGAIN_S: Final = 1.0
"""A password's file that has changed is read again after so long, at most."""


class UserSettings(Protocol):
    """What a client's configuration says of its user."""

    @property
    def user(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...

    @property
    def password_file(self) -> str | None: ...


def check_user(config: UserSettings) -> None:
    """UsageError: there is a user without a password, or with two, or a password of nobody."""
    given = [value for value in (config.password, config.password_file) if value]
    if config.user is None and given:
        raise UsageError("user: a password is given, and no user")
    if config.user is not None and len(given) != 1:
        raise UsageError("user: needs one of password and password_file")


class UserCredentials:
    """Signs requests. What it knows is in no text of it."""

    def __init__(self, user: str, password: str = "", file: str | None = None) -> None:
        """`file` holds the password, and may change."""
        from imago_wire.remoting.signing import signed  # most clients are nobody's

        self.user = user
        self._secret = password
        self._file = file
        self._sign = signed
        self._changed_ns = -1
        self._look_at = 0.0
        if file is not None:
            self._read(file)

    @classmethod
    def of(cls, config: UserSettings) -> UserCredentials | None:
        """Return those of a configuration; None: it has none."""
        if config.user is None:
            return None
        return cls(config.user, config.password or "", config.password_file)

    def __repr__(self) -> str:
        return f"UserCredentials({self.user!r})"

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return a request's fields with its user and signature."""
        return self._sign(ext, body, access_key=self.user, secret=self.secret())

    def secret(self) -> str:
        """Return the password as it is now."""
        if self._file is not None and time.monotonic() >= self._look_at:
            self._read(self._file)
        return self._secret

    def _read(self, file: str) -> None:
        self._look_at = time.monotonic() + LOOK_AGAIN_S
        try:
            changed_ns = Path(file).stat().st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            secret = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._secret:
                return  # it is being replaced: the former one holds meanwhile
            raise UsageError(f"password_file: {file}: {_why(error)}") from error
        if secret:
            self._secret, self._changed_ns = secret, changed_ns
        elif not self._secret:
            raise UsageError(f"password_file: {file}: is empty")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or "holds no text"
