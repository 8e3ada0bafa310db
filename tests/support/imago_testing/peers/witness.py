"""Connections that were there before anything bad came, and must not be harmed by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_testing.peers.remoting import pull_ext, send_ext
from imago_testing.peers.wild import WildPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.text.commands import Get, Put, Result, Value
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

TOPIC = "wild"
"""Two queues: the witness writes to queue 0 through MetaQ and to queue 1 through RocketMQ."""


@dataclass(slots=True)
class Witness:
    """One connection to each port, open since before anything bad was sent."""

    metaq: WildPeer
    rocketmq: WildPeer
    fast: WildPeer
    namesrv: WildPeer
    puts: int = 0

    @classmethod
    def of(cls, broker: BrokerProcess) -> Witness:
        return cls(
            WildPeer(broker.metaq),
            WildPeer(broker.rocketmq),
            WildPeer(broker.fast),
            WildPeer(broker.namesrv),
        )

    def unharmed(self) -> None:
        """All four work, and the broker stores and shows what they send."""
        self.puts += 1
        body = f"witness {self.puts}".encode()
        put = self._text(Put(TOPIC, 0, 0, body, 1))
        assert isinstance(put, Result)
        assert put.code == 200, put
        position = int(put.text.split(" ")[2])
        got = self._text(Get(TOPIC, "g", 0, position, 1 << 16, 2))
        assert isinstance(got, Value)
        assert body in got.body
        offsets = [self._send(peer, body) for peer in (self.rocketmq, self.fast)]
        ext = pull_ext(TOPIC, offsets[-1], queueId=1)
        pulled = self._call(self.rocketmq, RequestCode.PULL_MESSAGE, ext)
        assert body in pulled.body
        assert self.has_route()

    def has_route(self) -> bool:
        """Whether the name service knows the topic: it does a moment after the topic was made."""
        ext: dict[str, object] = {"topic": TOPIC}
        route = self._call(self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
        return route.code == ResponseCode.SUCCESS

    def close(self) -> None:
        for peer in (self.metaq, self.rocketmq, self.fast, self.namesrv):
            peer.close()

    def _send(self, peer: WildPeer, body: bytes) -> int:
        sent = self._call(peer, RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, 1), body)
        assert sent.code == ResponseCode.SUCCESS, sent
        return int(sent.ext["queueOffset"])

    def _text(self, command: Put | Get) -> Result | Value:
        self.metaq.send(encode(command))
        decoder = Decoder(line_bytes_max=4096, body_bytes_max=1 << 22)
        while (answer := decoder.next_command()) is None:
            data = self.metaq.read()
            assert data, "the witness's MetaQ connection was closed"
            decoder.feed(data)
        assert isinstance(answer, Result | Value)
        return answer

    @staticmethod
    def _call(
        peer: WildPeer, code: RequestCode, ext: dict[str, object], body: bytes = b""
    ) -> RemotingCommand:
        texts = {name: str(value) for name, value in ext.items()}
        peer.send(encode_frame(RemotingCommand(code=code, opaque=7, ext=texts, body=body)))
        decoder = FrameDecoder()
        while (answer := decoder.next_frame()) is None:
            data = peer.read()
            assert data, "a witness's connection was closed"
            decoder.feed(data)
        return answer
