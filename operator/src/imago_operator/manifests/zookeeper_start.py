"""How a server of a managed ZooKeeper begins: its configuration, and its certificate.

What concerns TLS is in the pod, not in the file that all servers share: that one changes under pods
that run, and a server that begins again there would look for a certificate that its pod lacks.

A server reads its certificate again when a file changes that it knows by name. A Secret's files
change otherwise: by a link to the folder that they are in. So they are copied, with their key
before them in one file, as the server wants them. It asks no client for a certificate: whom it
trusts among them it would keep until it is started again.

Servers know each other by a certificate that they alone have, and that is signed by itself, not by
the cluster's authority: brokers have certificates of that one, and are no servers. What takes its
place is trusted some time before it is shown, for one kubelet writes it later than another; what
it replaces goes as much later. Servers read again whom they trust among themselves. Who has no such
certificate, since somebody else writes the Secret, has the authority's.

A server that comes back has another address. Java would keep the former one for 30 s: where that
server is elected meanwhile, nobody finds it, and it waits `initLimit` for those who do not come. So
Java keeps no address, and a server is ready once its name leads to it.
"""

from __future__ import annotations

from typing import Final

from imago_operator.certificates.state import CERTIFICATE, KEY, QUORUM, TRUSTED
from imago_operator.manifests.zookeeper_members import CHANGE, KEEPS, KEPT, SERVES, SUPERUSER
from imago_operator.model.desired import ZOOKEEPER_PORT, ZOOKEEPER_TLS_PORT
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryTls

CONFIG: Final = "zoo.cfg"
TLS_FOLDER: Final = "/etc/imago-zookeeper-tls"
STORES: Final = "/stores"
"""In memory."""
FOLLOWS_S: Final = 5
"""How soon a server has a certificate that the kubelet has written."""
RESOLVES: Final = "/tmp/java.security"  # noqa: S108  the pod's own
LOOKED_UP: Final = (
    f"printf '%s\\n' networkaddress.cache.ttl=0 networkaddress.cache.negative.ttl=0 > {RESOLVES}"
    f' && export JVMFLAGS="-Djava.security.properties={RESOLVES} ${{JVMFLAGS:-}}"'
)
NUMBER: Final = "echo $((${HOSTNAME##*-} + 1)) > /data/myid"
SERVE: Final = "exec zkServer.sh start-foreground"
SECURE: Final = (
    f"secureClientPort={ZOOKEEPER_TLS_PORT}",
    "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
    f"ssl.keyStore.location={STORES}/server-store.pem",
    "ssl.clientAuth=none",
    "client.certReload=true",
)
"""More lines of the configuration."""
MEETS: Final = (
    "sslQuorumReloadCertFiles=true",
    f"ssl.quorum.keyStore.location={STORES}/quorum-store.pem",
    f"ssl.quorum.trustStore.location={STORES}/quorum-trust.pem",
    "ssl.quorum.clientAuth=need",
    # Who has the key is a server; all of them have the same names.
    "ssl.quorum.hostnameVerification=false",
    # To end a connection with TLS may take long, and an election would wait for it.
    "learner.closeSocketAsync=true",
    "leader.closeSocketAsync=true",
)
"""And for the ports where servers meet."""
KNOWN_S: Final = 120
"""How long after one server has another certificate all have it: kubelets look once a minute."""
WITHIN: Final = "clientPortAddress=127.0.0.1"
"""Where the plain port is for the pod's own probes alone."""
TAKE: Final = f"""\
take() {{
  now=$(readlink -f {TLS_FOLDER}/..data)
  [ "$now" = "$last" ] ||
    {{ cat "$now/tls.key" "$now/tls.crt" > {STORES}/next-store.pem &&
      mv {STORES}/next-store.pem {STORES}/server-store.pem && last=$now; }}
}}"""

MEET: Final = f"""\
meet() {{
  made=$(readlink -f {TLS_FOLDER}/..data) || return
  own=$made/{QUORUM} ours=$own
  [ -e "$own" ] || own=$made/{CERTIFICATE} ours=$made/{TRUSTED}
  both=$(cat "$own" "$ours") || return
  if [ ! -e {STORES}/quorum-store.pem ]; then
    trust && show
  elif [ "$both" != "$newest" ]; then
    trust {STORES}/quorum-trust.pem
  elif [ "$both" != "$shown" ] && ((SECONDS - since >= {KNOWN_S})); then
    show
  elif [ "$both" != "$trusted" ] && ((SECONDS - since >= 2 * {KNOWN_S})); then
    trust
  fi
}}
trust() {{
  cat "$@" "$ours" > {STORES}/next-trust.pem &&
    mv {STORES}/next-trust.pem {STORES}/quorum-trust.pem || return
  [ "$both" = "$newest" ] || since=$SECONDS
  newest=$both trusted=
  [ $# -gt 0 ] || trusted=$both
}}
show() {{
  cat "$made/{KEY}" "$own" > {STORES}/next-quorum.pem &&
    mv {STORES}/next-quorum.pem {STORES}/quorum-store.pem && shown=$both
}}"""
"""A container that begins again finds what it showed and trusted before."""


def start(tls: RegistryTls, quorum: QuorumTls = QuorumTls.NONE) -> str:
    """Return what the shell of a server's container runs."""
    secure, meets = tls is not RegistryTls.NONE, quorum is not QuorumTls.NONE
    lines: tuple[str, ...] = SECURE if tls is RegistryTls.PERMISSIVE else (*SECURE, WITHIN)
    if meets:
        lines += (*MEETS, *_modes(quorum))
    host = "127.0.0.1" if tls is RegistryTls.ENFORCING else "0.0.0.0"  # noqa: S104  in a pod
    tasks = [*(["take"] if secure else []), *(["meet"] if secure and meets else []), "change"]
    follow = "; ".join(f"{task} || true" for task in tasks)
    return "\n".join(
        (
            "set -e",
            "umask 077",
            NUMBER,
            KEEPS,
            SUPERUSER,
            LOOKED_UP,
            *((TAKE,) if secure else ()),
            *((MEET, "newest= shown= trusted= since=0") if "meet" in tasks else ()),
            CHANGE,
            f"last= server=$BASHPID open={host}:{ZOOKEEPER_PORT}",
            *tasks[:-1],
            *((f"printf '%s\\n' {' '.join(lines)} >> {KEPT}",) if secure else ()),
            f"(while sleep {FOLLOWS_S} && kill -0 $server 2> /dev/null; do {follow}; done) &",
            f"{SERVE} {KEPT}",
        )
    )


def _modes(quorum: QuorumTls) -> tuple[str, ...]:
    """Return whether a server sends TLS to the others, and accepts what has none."""
    sends = quorum in (QuorumTls.SENDING, QuorumTls.ENFORCING)
    both = quorum is not QuorumTls.ENFORCING
    return f"sslQuorum={str(sends).lower()}", f"portUnification={str(both).lower()}"


ADDRESS: Final = "POD_IP"
FOUND: Final = "/tmp/found"  # noqa: S108  the pod's own
LIVES: Final = f"exec 3<>/dev/tcp/127.0.0.1/{ZOOKEEPER_PORT}"


def is_ready(domain: str) -> str:
    """Return how the kubelet sees that a server serves, and that the others find it.

    `domain`: in which its pod has a name that the others know. Once it was found there, its name is
    not looked up again: clients that are connected go on while there is no DNS. An image without
    what looks names up is taken at its word.
    """
    found = f'[[ $(cat {FOUND} 2> /dev/null) = "${ADDRESS}" ]]'
    looked_up = f'$(getent ahosts "$HOSTNAME.{domain}")'
    known = f'[[ " {looked_up} " = *[[:space:]]"${ADDRESS}"[[:space:]]* ]]'
    unable = "! type getent > /dev/null 2>&1"
    return (
        f'{SERVES} && {{ {found} || {unable} || {{ {known} && echo "${ADDRESS}" > {FOUND}; }}; }}'
    )
