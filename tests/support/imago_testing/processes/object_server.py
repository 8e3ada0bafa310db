"""A server that speaks S3, in a process of its own: moto's, with its buckets in memory.

Of its own, since PyArrow's and Delta's clients wait for answers without letting other threads of
their process run.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imago_spark.pipelines.tables.bucket import LakeBucket
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREDENTIALS = "[default]\naws_access_key_id = key\naws_secret_access_key = a secret of a test\n"


@contextmanager
def running_object_server(folder: Path, name: str) -> Iterator[LakeBucket]:
    """Run one with an empty bucket of this name; return how it is reached."""
    from pyarrow import fs

    port = free_port_block(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = ServerProcess.start("objects", command, folder)
    credentials = folder / "s3-credentials"
    credentials.write_text(CREDENTIALS, encoding="utf-8")
    try:
        server.wait_for_port(port)
        maker = fs.S3FileSystem(
            access_key="key",
            secret_key="a secret of a test",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
        )
        maker.create_dir(name)
        yield LakeBucket(endpoint=f"http://127.0.0.1:{port}", credentials_file=credentials)
    finally:
        server.stop()
