"""A ZooKeeper with a plain port and one with mutual TLS, and what brokers need to be its users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.cluster.tree_access import TreeAccess
from imago_broker.cluster.zookeeper import ZooKeeperTree
from imago_testing.processes.certificates import Authority
from imago_testing.processes.ports import free_port_block

if TYPE_CHECKING:
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
        self.client = self.authority.issue("broker")
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
                "certificate_file": str(self.client.certificate),
                "key_file": str(self.client.key),
                "user": "brokers",
                "password_file": str(self.password),
                **changes,
            }
        )

    def tree(self, chroot: str = "", **changes: Any) -> ZooKeeperTree:
        return ZooKeeperTree(
            f"localhost:{self.port}{chroot}",
            session_timeout_ms=6000,
            connect_timeout_ms=8000,
            access=self.access(**changes),
            owned=("/imago/c", "/meta/brokers"),
        )

    def settings(self) -> list[str]:
        access = self.access()
        return [
            f"zookeeper.connect=localhost:{self.port}/guarded",
            f"zookeeper.tls_ca_file={access.ca_file}",
            f"zookeeper.tls_certificate_file={access.certificate_file}",
            f"zookeeper.tls_key_file={access.key_file}",
            "zookeeper.user=brokers",
            f"zookeeper.password_file={self.password}",
        ]
