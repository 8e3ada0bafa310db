"""How a connection tells a broker whose it is: the client's side of `imago_wire.text.handshake`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from imago_client.credentials import UserCredentials
from imago_client.errors import AnswerError, ConnectionLostError
from imago_client.metaq.values import MetaqError, result_text
from imago_wire.text.commands import Auth
from imago_wire.text.handshake import OPEN, Side, is_proof, is_token, new_nonce, proof

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.metaq.values import MetaqConfig
    from imago_wire.text.commands import Request, Response


class AsyncLink(Protocol):
    """A connection of an event loop."""

    address: str

    async def ask(self, make: Callable[[int], Request], *, timeout_s: float) -> Response: ...
    async def close(self) -> None: ...


class Introduction:
    """One handshake: make the first command, read its answer, make the second, read its answer."""

    def __init__(self, address: str, credentials: UserCredentials) -> None:
        self._address, self._user, self._secret = address, credentials.user, credentials.secret()
        self._nonces = (new_nonce(), "")

    def begin(self, opaque: int) -> Auth:
        return Auth(self._user, self._nonces[0], opaque)

    def goes_on(self, answer: Response) -> bool:
        """Whether the broker asks for a proof. ClientError: it takes no handshake."""
        said = self._read(answer)
        if said == OPEN:
            return False
        if not is_token(said):
            raise AnswerError(self._address, f"auth answered {said[:80]!r}")
        self._nonces = (self._nonces[0], said)
        return True

    def prove(self, opaque: int) -> Auth:
        made = proof(Side.CLIENT, self._secret, self._user, self._nonces)
        return Auth(self._user, made, opaque)

    def finish(self, answer: Response) -> None:
        """ClientError: the broker refuses the user, or does not know the password itself."""
        shown = self._read(answer)
        if not is_proof(shown, Side.BROKER, self._secret, self._user, self._nonces):
            raise AnswerError(self._address, "does not know the password of its own user")

    def _read(self, answer: Response) -> str:
        try:
            return result_text(self._address, answer)
        except MetaqError as error:
            text = f"user {self._user}: {error.text}"
            raise MetaqError(self._address, error.status, text) from None

    def closed(self, error: ConnectionLostError, config: MetaqConfig) -> ConnectionLostError:
        """Return the error for a connection that ends meanwhile."""
        tls = "" if config.tls_ca_file else "does this port ask for TLS (tls_ca_file)? Or "
        return ConnectionLostError(
            self._address,
            f"{error.reason} when user {self._user} was named",
            cure=f"{tls}is this no broker of Imago's? Others know no users: name none there",
        )


def introduce(
    address: str,
    config: MetaqConfig,
    ask: Callable[[Callable[[int], Request], float], Response],
) -> None:
    """Tell a broker whose the connection is, where the configuration says so."""
    credentials = UserCredentials.of(config)
    if credentials is None:
        return
    told, timeout_s = Introduction(address, credentials), config.request_timeout_s
    try:
        if told.goes_on(ask(told.begin, timeout_s)):
            told.finish(ask(told.prove, timeout_s))
    except ConnectionLostError as error:
        raise told.closed(error, config) from error


async def introduce_async(connection: AsyncLink, config: MetaqConfig) -> None:
    """Do the same in an event loop; a connection that fails is closed."""
    credentials = await asyncio.to_thread(UserCredentials.of, config)
    if credentials is None:
        return
    told, timeout_s = Introduction(connection.address, credentials), config.request_timeout_s
    try:
        if told.goes_on(await connection.ask(told.begin, timeout_s=timeout_s)):
            told.finish(await connection.ask(told.prove, timeout_s=timeout_s))
    except ConnectionLostError as error:
        raise told.closed(error, config) from error
    except BaseException:
        await connection.close()
        raise
