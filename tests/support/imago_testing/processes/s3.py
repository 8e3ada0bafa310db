"""A server that speaks S3, in this process: moto's, with buckets in memory."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_objects import ObjectsConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "bucket"


@dataclass(slots=True)
class S3Server:
    """A server that can be away and come back: what is stored stays."""

    port: int
    credentials: Path
    _server: Any = None

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def objects(self, prefix: str = "", bucket: str = BUCKET) -> ObjectsConfig:
        """Return how the bucket is reached, with little patience."""
        return ObjectsConfig(
            f"s3://{bucket}/{prefix}",
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            credentials_folder=str(self.credentials),
            timeout_s=10,
            attempts=2,
        )


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """Run a server with one empty bucket; `folder` takes its credentials."""
    from moto.s3.models import s3_backends

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "access_key_id").write_text("key\n")
    (folder / "secret_access_key").write_text("a secret of a test\n")
    server = S3Server(0, folder)
    server.start()
    backend = s3_backends["123456789012"]["aws"]
    backend.reset()
    backend.create_bucket(BUCKET, "us-east-1")
    try:
        yield server
    finally:
        server.stop()
        backend.reset()
