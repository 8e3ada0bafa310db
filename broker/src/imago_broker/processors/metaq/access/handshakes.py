"""The handshake of our own clients: whose a connection of the text protocol is, without TLS too.

A broker tells nobody which users there are: it answers each first line with a nonce, and refuses
a wrong password, an unknown user and one who is shut out after the same work with the same words.
A connection that fails is closed; so is one whose user is gone or has another password since.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.text.encoder import result
from imago_wire.text.handshake import Side, is_proof, is_token, new_nonce, proof
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.service.access.access import AccessService
    from imago_wire.text.commands import Auth

REFUSED: Final = "there is no such user, or its password is another one"
KEYS_COMPARED: Final = 2
"""Passwords that a user may have at a time: so many are compared for everybody."""


class _Begun(NamedTuple):
    user: str
    nonces: tuple[str, str]
    """The client's, the broker's."""


class Handshakes:
    """Those of all connections of the port. They are told by their peers, which are watched."""

    def __init__(
        self,
        access: AccessService,
        settings: LiveSettings[MetaqSection],
        met: Callable[[Peer], None],
        *,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        """`met` is told of a connection that has become a user's."""
        self._access, self._settings, self._met, self._nonce = access, settings, met, nonce
        self._begun: dict[Peer, _Begun] = {}
        self._proved: dict[Peer, str] = {}
        """The password that a connection's user had."""
        self._nobodys = secrets.token_hex(32)
        """Compared in place of a password that there is not."""
        access.on_change.append(self._changed)

    def auth(self, peer: Peer, command: Auth) -> None:
        """Answer the first or the second line of a handshake."""
        if not self._settings.current.handshake:
            text = "this broker takes no handshakes: metaq.handshake"
            peer.reply(result(Status.FORBIDDEN, text, command.opaque))
            return
        if peer in self._proved or not is_token(command.token):
            text = "this connection is a user's already" if peer in self._proved else "no token"
            peer.reply(result(Status.BAD_REQUEST, text, command.opaque))
            return
        begun = self._begun.pop(peer, None)
        if begun is not None:
            self._prove(peer, begun, command)
            return
        peer.watch(lambda: self._forget(peer))
        nonces = (command.token, self._nonce())
        self._begun[peer] = _Begun(command.user, nonces)
        peer.reply(result(Status.SUCCESS, nonces[1], command.opaque))

    def _prove(self, peer: Peer, begun: _Begun, command: Auth) -> None:
        name, nonces = begun
        keys = self._keys(name) if command.user == name else ()
        compared = (*keys, *[self._nobodys] * KEYS_COMPARED)[:KEYS_COMPARED]
        said = [is_proof(command.token, Side.CLIENT, each, name, nonces) for each in compared]
        right = [key for key, is_right in zip(keys, said, strict=False) if is_right]
        if not right:
            if why := self._access.awaited.why:
                peer.reply(result(Status.SERVICE_UNAVAILABLE, why, command.opaque))
            else:
                self._access.denials.note(peer.address, f"metaq user={name[:64]!a}", REFUSED)
                peer.reply(result(Status.FORBIDDEN, REFUSED, command.opaque))
            peer.finish()
            return
        self._proved[peer] = right[0]
        peer.become(name)
        self._met(peer)
        shown = proof(Side.BROKER, right[0], name, nonces)
        peer.reply(result(Status.SUCCESS, shown, command.opaque))

    def _keys(self, name: str) -> tuple[str, ...]:
        """Return the passwords that a user may have now; none: nobody gets in by this name."""
        user = self._access.users.get(name) if not self._access.outdated.why else None
        return self._access.signing_keys(user) if user is not None and user.enabled else ()

    def _changed(self) -> None:
        """Close connections whose users are gone, or have another password."""
        for peer, key in list(self._proved.items()):
            if key not in self._keys(peer.certificate_user):
                peer.finish()

    def _forget(self, peer: Peer) -> None:
        self._begun.pop(peer, None)
        self._proved.pop(peer, None)
