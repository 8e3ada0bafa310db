"""A closed cluster: one authority, a certificate for each member, users with rights."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from imago_broker.replication.links.member_tls import member_uri
from imago_testing.chaos.cluster.knobs import Knobs
from imago_testing.chaos.connections import GROUP, XA
from imago_testing.chaos.credentials import Credentials
from imago_testing.chaos.producers import LIGHT
from imago_testing.peers.sdk_peer import signed_headers
from imago_testing.processes.certificates import Authority, Pair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_testing.chaos.cluster.members import Member

SIGNS, SHOWS, READS = "chaos-signs", "chaos-shows", "chaos-reads"
"""Users: who signs, whose certificate is shown, and who may not write."""
TOPICS: Final = "chaos-"
"""What the names of all topics begin with."""
_SECRET = "first-secret-of-"
_FORMER_SECONDS = 600
_OK = 200
_SERVED_SECONDS_MAX = 5.0
_BEFORE_SECONDS = 86_400.0
"""Certificates begin to be valid so long ago: clocks of members jump by an hour."""
_SETTINGS = """\
[tls]
certificate_file = "{certificate}"
key_file = "{key}"
ca_file = "{authority}"
mode = "enforcing"
client_auth = "optional"
metaq_port = {metaq_port}
replication = "enforcing"
calls = "enforcing"
[acl]
enabled = true
"""


class Closed:
    """Who is let in, and with what."""

    def __init__(self, folder: Path, library: Path) -> None:
        """`library`: with it `openssl` works in the past."""
        past = Knobs(folder / "past")
        past.turn(clock_s=-_BEFORE_SECONDS)
        environment = {"LD_PRELOAD": str(library), "IMAGO_FAULTS": str(past.path)}
        self.authority = Authority(folder / "authority", env=environment)
        self._issued = 0
        self.rocketmq = Credentials(SIGNS, _SECRET + SIGNS, self._trusting())
        """Of clients that sign, and show no certificate."""
        self.reads = Credentials(READS, _SECRET + READS, self._trusting())
        self.metaq = Credentials(tls=self._trusting())
        """Of clients that show the certificate that names them."""
        assert self.metaq.tls is not None
        shown = self.authority.issue(SHOWS)
        self.metaq.tls.load_cert_chain(shown.certificate, shown.key)
        self.unnamed = Credentials(tls=self._trusting())

    def _trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.file))

    def shown_over_grpc(self) -> tuple[Mapping[str, str], ssl.SSLContext]:
        """Return the headers of a client's calls, and what its connection trusts."""
        trusts = self._trusting()
        trusts.set_alpn_protocols(["h2"])
        return signed_headers(SIGNS, self.rocketmq.secret), trusts

    def settings_of(self, member: Member, metaq_port: int) -> str:
        """Give a member its first certificate; return the sections of its configuration."""
        self.new_certificate(member).copy_to(member.pair)
        return _SETTINGS.format(
            certificate=member.pair.certificate,
            key=member.pair.key,
            authority=self.authority.file,
            metaq_port=metaq_port,
        )

    def new_certificate(self, member: Member) -> Pair:
        """Return one more certificate of a member, which does not have it yet."""
        self._issued += 1
        hosts = f"IP:{member.address},URI:{member_uri('chaos', member.number)}"
        return self.authority.issue(f"{member.name}-{self._issued}", hosts=hosts)

    def let_in(self, leader: Member) -> None:
        """Make the users, as far as they are not there."""
        topics = {"type": "Topic", "name": TOPICS, "patternType": "prefix"}
        light = {"type": "Topic", "name": LIGHT, "patternType": "prefix"}
        dead = {"type": "Topic", "name": f"%DLQ%{GROUP}", "patternType": "prefix"}
        group = {"type": "Group", "name": GROUP, "patternType": "prefix"}
        lights = {"type": "Group", "name": LIGHT, "patternType": "prefix"}
        in_group = {"resource": group, "operations": ["subscribe"]}
        reads = [in_group, {"resource": topics, "operations": ["subscribe"]}]
        both = ["publish", "subscribe"]
        in_light = {"resource": lights, "operations": ["subscribe"]}
        keys = {"type": "Transaction", "name": XA, "patternType": "prefix"}
        writes = [
            in_group,
            in_light,
            {"resource": keys, "operations": ["publish"]},
            {"resource": dead, "operations": ["subscribe"]},
            *({"resource": each, "operations": both} for each in (topics, light)),
        ]
        for user, told in (
            (SIGNS, {"password": self.rocketmq.secret, "rules": writes}),
            (SHOWS, {"rules": writes}),
            (READS, {"password": self.reads.secret, "rules": reads}),
        ):
            code, answer = leader.ask(f"/admin/v1/users/{user}", method="PUT", body=told)
            assert code == _OK, answer

    def new_password(self, leader: Member, secret: str) -> bool:
        """Have the clients that sign use another password from now on; False: nobody knows it.

        The one before counts for a while more: some requests are under way.
        """
        told = {"password": secret, "formerSeconds": _FORMER_SECONDS}
        code, _ = leader.ask(
            f"/admin/v1/users/{SIGNS}", method="PUT", body=told, seconds_max=_SERVED_SECONDS_MAX
        )
        if code == _OK:
            self.rocketmq.secret = secret
        return code == _OK


def shown_by(host: str, port: int) -> str:
    """Return the certificate that a port shows now; "": none."""
    try:
        return ssl.get_server_certificate((host, port), timeout=_SERVED_SECONDS_MAX)
    except OSError:
        return ""
