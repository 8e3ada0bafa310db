"""Drive the ports of a broker with access control: signed requests and changed bytes.

    PYTHONPATH=tests/support:. python -m tests.fuzz.served --seconds 60

The requests are of every code, of users who may everything, little and nothing, with right
signatures and wrong ones: each is answered. The bytes are golden frames and lines, changed: after
them a connection ends. The run fails where an answer is missing, where the broker ends, and where
its log has a trace.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.access import SEEDS as ACCESS_SEEDS
from tests.fuzz.counting import record, refuse_again
from tests.fuzz.grpc import SEEDS as GRPC_SEEDS
from tests.fuzz.mutation import mutated
from tests.fuzz.remoting import SEEDS as REMOTING_SEEDS

from imago_testing.frames.text import golden_metaq_frames
from imago_testing.peers.generated import BATCH, PATIENCE_S, storm
from imago_testing.peers.signing import GROUP, TOPIC
from imago_testing.processes.broker import broker_process
from imago_wire.grpc.frames import PREFACE
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_testing.processes.broker import BrokerProcess
    from imago_wire.remoting.command import RemotingCommand

TOKEN: Final = "admin-token-of-this-run"
SECRET: Final = "secret-of-the-users"
RULES: Final[Mapping[str, Sequence[tuple[str, str, tuple[str, ...]]]]] = {
    "some": (("Topic", TOPIC, ("publish",)), ("Group", GROUP, ("subscribe",))),
    "none": (),
    "anonymous": (("Topic", "test", ("publish", "subscribe")),),
}
CONNECTIONS: Final = 3
"""At once, to each port."""
CONNECTIONS_A_ROUND: Final = 20
"""With changed bytes, beside BATCH requests."""
READ_BYTES: Final = 1 << 18
REQUESTS_TO: Final = ("rocketmq", "namesrv")
BYTES_TO: Final = ("rocketmq", "namesrv", "metaq", "admin", "grpc")
TARGETS: Final = (
    *(f"served.{port}" for port in REQUESTS_TO),
    *(f"served.{port}.bytes" for port in BYTES_TO),
)
"""Names under which inputs are counted."""


def sign(request: RemotingCommand, rng: random.Random) -> None:
    """Give a request the credentials of somebody, right ones or wrong ones."""
    user = rng.choice(("super", "super", "some", "none", "stranger", "anonymous", ""))
    if not user:
        return
    secret = SECRET if rng.random() < 0.8 else "wrong"
    token = rng.choice(("", "", "token"))
    request.ext = signed(
        request.ext, request.body, access_key=user, secret=secret, security_token=token
    )
    if rng.random() < 0.1:  # what is changed afterwards is not signed
        request.ext[rng.choice(list(request.ext))] = rng.choice(("", "x", "0"))


def http_seeds() -> list[bytes]:
    """Return calls of the admin interface, with credentials of all kinds."""
    found = []
    body = json.dumps({"user": "super", "password": SECRET}).encode()
    for line in ("GET /admin/v1/users", "PUT /admin/v1/topics/a", "POST /login", "GET /metrics"):
        for credentials in (
            f"Authorization: Bearer {TOKEN}",
            "Authorization: Bearer imt.super.0123456789ab.secret",
            "Cookie: imago_session=super|1800000000|0123",
        ):
            head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{credentials}\r\n"
            found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def bytes_storm(port: int, corpus: Sequence[bytes], rng: random.Random, count: int) -> None:
    """Send changed bytes, a connection each; AssertionError: it does not end."""
    for _ in range(count):
        data = mutated(rng, corpus)
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    with contextlib.suppress(ConnectionError):
                        writer.write(data)
                        writer.write_eof()
                        while await reader.read(READ_BYTES):
                            pass
                finally:
                    writer.close()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()
        except TimeoutError:
            raise AssertionError(f"port {port} does not end after {data.hex()}") from None


class Run:
    """All storms against one broker, in rounds until the time is over."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker, self._seed = broker, seed
        self.inputs: Counter[str] = Counter()
        golden = [b"\0" * 4 + data for data in ACCESS_SEEDS["access.signer"]]
        remoting = [*REMOTING_SEEDS["remoting.frames"], *map(_framed, golden)]
        self._bytes = {
            "rocketmq": remoting,
            "namesrv": remoting,
            "metaq": [frame.data for frame in golden_metaq_frames()],
            "admin": http_seeds(),
            "grpc": [PREFACE + stream for stream in GRPC_SEEDS["grpc.frames"]],
        }

    async def until(self, end: float, executions_max: int) -> None:
        """Run rounds; the same seed gives the same inputs."""
        for number in range(sys.maxsize):
            async with asyncio.TaskGroup() as tasks:
                for each in range(CONNECTIONS):
                    tasks.create_task(self._round(f"{self._seed}/{number}/{each}"))
            assert self._broker.alive, self._broker.server.log_tail()
            if time.monotonic() > end or self.inputs.total() >= executions_max:
                break

    async def _round(self, seed: str) -> None:
        for port in REQUESTS_TO:
            rng = random.Random(f"{seed}/{port}")
            await storm(getattr(self._broker, port), rng, BATCH, sign)
            self.inputs[f"served.{port}"] += BATCH
        for port in BYTES_TO:
            corpus = self._bytes[port]
            rng = random.Random(f"{seed}/{port}/bytes")
            await bytes_storm(getattr(self._broker, port), corpus, rng, CONNECTIONS_A_ROUND)
            self.inputs[f"served.{port}.bytes"] += CONNECTIONS_A_ROUND


def _framed(data: bytes) -> bytes:
    return (len(data) - 4).to_bytes(4, "big") + data[4:]


def set_up(broker: BrokerProcess) -> None:
    """Make the users and what they use."""
    _put(broker, f"/admin/v1/topics/{TOPIC}", {"queues": 2})
    _put(broker, "/admin/v1/topics/test", {"queues": 2})
    _put(broker, "/admin/v1/users/super", {"password": SECRET, "super": True})
    for name, rules in RULES.items():
        told: dict[str, Any] = {
            "rules": [
                {"resource": {"type": kind, "name": of}, "operations": list(operations)}
                for kind, of, operations in rules
            ]
        }
        if name != "anonymous":
            told["password"] = SECRET
        _put(broker, f"/admin/v1/users/{name}", told)


def _put(broker: BrokerProcess, path: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.admin}{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status < 300, answer.status


def main() -> int:
    """Return 0, or 1 where something went wrong, with what it was."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--executions", type=int, default=sys.maxsize, help="at most")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--record", type=Path, help="add the counts to this file")
    chosen = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if chosen.seed is None else chosen.seed
    refuse_again(chosen.record, seed, TARGETS)
    print(f"a broker with access control; seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="imago-fuzz-") as name:
        return _main(Path(name), chosen, seed)


def _main(folder: Path, chosen: argparse.Namespace, seed: int) -> int:
    token_file = folder / "admin-token"
    token_file.write_text(TOKEN)
    began = time.monotonic()
    settings: dict[str, Mapping[str, object]] = {
        "acl": {"enabled": True},
        "admin": {"token_file": str(token_file)},
        "limits": {
            "input_stall_seconds": 600,
            "output_stall_seconds": 600,
            "connections_per_address_max": 4096,
        },
        "rocketmq": {"pull_hold_ms_max": 600_000},
        "store": {"retention_bytes_max": 256 << 20, "segment_bytes_max": 16 << 20},
    }
    with broker_process(folder, settings) as broker:
        set_up(broker)
        run = Run(broker, seed)
        asyncio.run(run.until(began + chosen.seconds, chosen.executions))
        log = broker.log_text()
    if "Traceback" in log:
        print(log[max(0, log.index("Traceback") - 500) :][:8000], file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    for target, count in run.inputs.items():
        print(f"{target:28} {count:>10,} inputs {count / seconds:>10,.0f}/s")
    print(f"{run.inputs.total():,} inputs, no failure")
    if chosen.record:
        total = record(chosen.record, seed=seed, inputs=run.inputs, seconds=seconds)
        print(f"{total:,} inputs in {chosen.record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
