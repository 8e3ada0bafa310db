"""What a broker answers a person, or another broker, that it does not do something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class AdminError(Exception):
    """An answer `{"error": code, "message": …, "cure": …}` with an HTTP status."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        cure: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.headers = headers
        self.status = status
        self.code = code
        self.message = message
        self.cure = cure

    def body(self) -> dict[str, str]:
        return {"error": self.code, "message": self.message, "cure": self.cure}
