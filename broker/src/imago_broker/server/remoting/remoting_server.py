"""One port of the remoting protocol."""

from __future__ import annotations

from imago_broker.server.remoting.remoting_port import RemotingPort
from imago_broker.server.remoting.remoting_session import RemotingSession


class RemotingServer(RemotingPort):
    """A port that makes its connections: `session` is the protocol factory."""

    def session(self) -> RemotingSession:
        """Make the protocol object of a new connection."""
        return RemotingSession(self)
