"""One remoting command, request or response, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from imago_wire.remoting.peer import OWN_VERSION, Language

if TYPE_CHECKING:
    from imago_wire.remoting.fields import Header

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2


class SerializeType(IntEnum):
    """How a frame's header is written: the top byte of its header word."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class RemotingCommand:
    """A whole frame: header fields and body.

    `code` is a RequestCode or a ResponseCode number, also an unknown one. `opaque` is the
    requester's signed 32-bit number and comes back in the response. `ext` is the header class of
    the code as text (see `imago_wire.remoting.headers`); it is empty when the frame had none.
    An empty `body` and none are the same. A command is not changed after it was made.
    """

    code: int
    flag: int = 0
    opaque: int = 0
    version: int = OWN_VERSION
    language: Language = Language.JAVA
    remark: str | None = None
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True for a request that must never be answered, not even with an error."""
        return bool(self.flag & FLAG_ONEWAY)

    def answer(
        self,
        code: int,
        remark: str | None = None,
        *,
        header: Header | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Return the response to this request, in the request's own header form."""
        return RemotingCommand(
            code=code,
            flag=FLAG_RESPONSE,
            opaque=self.opaque,
            remark=remark,
            ext=header.to_ext() if header is not None else {},
            body=body,
            serialize=self.serialize,
        )


def request(
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int,
    oneway: bool = False,
    serialize: SerializeType = SerializeType.JSON,
) -> RemotingCommand:
    """Return a request that is ready to be encoded."""
    return RemotingCommand(
        code=code,
        flag=FLAG_ONEWAY if oneway else 0,
        opaque=opaque,
        ext=header.to_ext() if header is not None else {},
        body=body,
        serialize=serialize,
    )
