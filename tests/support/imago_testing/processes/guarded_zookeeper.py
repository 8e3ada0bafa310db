"""A ZooKeeper with a plain port and one with mutual TLS, and what brokers need to be its users."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from imago_broker.cluster.session.tree_access import TreeAccess
from imago_broker.cluster.zookeeper import ZooKeeperTree
from imago_testing.processes.certificates import Authority
from imago_testing.processes.ports import free_port_block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_testing.processes.zookeeper import RunningZooKeeper


class GuardedZooKeeper:
    """A server with a plain port and one with mutual TLS, and what its clients need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        server = self.authority.issue("zookeeper")
        both = folder / "zookeeper-store.pem"
        both.write_bytes(server.key.read_bytes() + server.certificate.read_bytes())
        self.shown = self.authority.issue("broker")
        self.password = folder / "password"
        self.password.write_text("secret\n")
        self.port = free_port_block(1)
        self.more = {
            "secureClientPort": self.port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": both,
            "ssl.trustStore.location": self.authority.file,
            "ssl.clientAuth": "need",
        }
        self.server: RunningZooKeeper

    def access(self, **changes: Any) -> TreeAccess:
        return TreeAccess(
            **{
                "ca_file": str(self.authority.file),
                "certificate_file": str(self.shown.certificate),
                "key_file": str(self.shown.key),
                "user": "brokers",
                "password_file": str(self.password),
                **changes,
            }
        )

    def tree(self, chroot: str = "", **changes: Any) -> ZooKeeperTree:
        return ZooKeeperTree(
            self.connect(chroot),
            session_timeout_ms=6000,
            connect_timeout_ms=8000,
            access=self.access(**changes),
            owned=("/imago/c", "/meta/brokers"),
        )

    def connect(self, chroot: str = "") -> str:
        """What brokers write as their ZooKeeper."""
        return f"localhost:{self.port}{chroot}"

    def settings(self) -> dict[str, str]:
        """Settings of brokers, of the section `zookeeper`."""
        access = self.access()
        return {
            "tls_ca_file": access.ca_file,
            "tls_certificate_file": access.certificate_file,
            "tls_key_file": access.key_file,
            "user": access.user,
            "password_file": access.password_file,
        }

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator[KazooClient]:
        """Somebody at the plain port: a stranger, unless he says who he is."""
        client = KazooClient(self.server.address, **options)
        client.start(timeout=50)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def insider(self) -> contextlib.AbstractContextManager[KazooClient]:
        """The brokers' own user."""
        return self.client(auth_data=[("digest", f"brokers:{self.password.read_text().strip()}")])
