"""What a name service says, asked from a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers

_ROUTE = """\
import socket, sys
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame
asked = RemotingCommand(
    code=RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=1, ext={"topic": sys.argv[3]}
)
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as server:
    server.sendall(encode_frame(asked))
    server.settimeout(5)
    print(server.recv(1 << 16).decode("latin-1"))
"""


def route(brokers: Brokers, names: str, topic: str) -> str:
    """Return what a name service says of a topic."""
    host, _, port = names.partition(":")
    asked = ("python3", "-c", _ROUTE, host, port, topic)
    return brokers.kube.execute(brokers.namespace, brokers.names()[0], *asked, seconds_max=20)
