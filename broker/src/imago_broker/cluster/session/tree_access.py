"""How a broker connects to ZooKeeper, and what others may do with the nodes that it makes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from imago_broker.cluster.tree import TreeConfigurationError


class NodeRights(Enum):
    """What others than our user may do with a node."""

    NONE = "nothing"
    READ = "read it"
    EXTEND = "read it, and make nodes below it"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAccess:
    """Files and names of the configuration's section `zookeeper`."""

    ca_file: str = ""
    """Authorities of the servers; empty: no TLS."""
    certificate_file: str = ""
    key_file: str = ""
    user: str = ""
    password_file: str = ""
    protect: bool = True
    """Whether what is made belongs to the user."""
    public_root: str = "/meta"
    """Where MetaQ's clients look for brokers and keep their groups."""
    public_shared: bool = False
    """Whether original brokers, which are no user of ZooKeeper's, write there too."""

    @property
    def protects(self) -> bool:
        """Whether nodes have rights; with a user and without them, they are given back."""
        return bool(self.user) and self.protect

    @property
    def folders(self) -> tuple[str, ...]:
        """What others may have made and extend; no more than that is theirs."""
        return ("/imago",) if self.public_shared else ("/imago", self.public_root)

    def leaves(self, path: str) -> bool:
        """Whether a node is left as others have made it."""
        return self.public_shared and f"{path}/".startswith(f"{self.public_root}/")

    def rights(self, path: str) -> NodeRights:
        """Return what others may do with a node."""
        if path in self.folders:
            return NodeRights.EXTEND
        if path.startswith("/imago/"):
            return NodeRights.NONE
        public = f"{path}/".startswith(f"{self.public_root}/brokers/")
        return NodeRights.READ if public and not self.public_shared else NodeRights.ALL

    def context(self) -> ssl.SSLContext | None:
        """Return what connections are made with, out of the files as they are now; None: no TLS.

        TreeConfigurationError: they cannot be used.
        """
        if not self.ca_file:
            return None
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        path = self.ca_file
        try:
            made.load_verify_locations(path)
            if self.certificate_file:
                path = self.certificate_file
                made.load_cert_chain(path, self.key_file)
        except (ssl.SSLError, OSError) as error:
            reason = error.strerror or str(error)
            raise TreeConfigurationError(f"{path}: {reason}, for TLS to ZooKeeper") from error
        return made

    def credentials(self) -> list[tuple[str, str]]:
        """Return who we are to ZooKeeper, as its client takes it; empty: nobody.

        TreeConfigurationError: the password cannot be read.
        """
        if not self.user:
            return []
        try:
            password = Path(self.password_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TreeConfigurationError(
                f"zookeeper.password_file: {self.password_file}: {reason}"
            ) from error
        if not password:
            raise TreeConfigurationError(f"zookeeper.password_file: {self.password_file} is empty")
        return [("digest", f"{self.user}:{password}")]
