"""How a server of a managed ZooKeeper begins: its configuration, and its certificate.

What concerns TLS is in the pod, not in the file that all servers share: that one changes under pods
that run, and a server that begins again there would look for a certificate that its pod lacks.

A server reads its certificate again when a file changes that it knows by name. A Secret's files
change otherwise: by a link to the folder that they are in. So they are copied, with their key
before them in one file, as the server wants them. It asks nobody for a certificate: whom it trusts
it would keep until it is started again.

A server that comes back has another address. Java would keep the former one for 30 s: where that
server is elected meanwhile, nobody finds it, and it waits `initLimit` for those who do not come. So
Java keeps no address, and a server is ready once its name leads to it.
"""

from __future__ import annotations

from typing import Final

from imago_operator.desired import ZOOKEEPER_PORT, ZOOKEEPER_TLS_PORT
from imago_operator.spec.zookeeper import RegistryTls

CONFIG: Final = "zoo.cfg"
FOLDER: Final = "/etc/imago-zookeeper"
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
WITHIN: Final = "clientPortAddress=127.0.0.1"
"""Where the plain port is for the pod's own probes alone."""
TAKE: Final = f"""\
take() {{
  now=$(readlink -f {TLS_FOLDER}/..data)
  [ "$now" = "$last" ] ||
    {{ cat "$now/tls.key" "$now/tls.crt" > {STORES}/next-store.pem &&
      mv {STORES}/next-store.pem {STORES}/server-store.pem && last=$now; }}
}}"""


def start(tls: RegistryTls) -> str:
    """Return what the shell of a server's container runs."""
    if tls is RegistryTls.NONE:
        return f"{NUMBER} && {LOOKED_UP} && {SERVE} {FOLDER}/{CONFIG}"
    lines = SECURE if tls is RegistryTls.PERMISSIVE else (*SECURE, WITHIN)
    return "\n".join(
        (
            "set -e",
            "umask 077",
            NUMBER,
            LOOKED_UP,
            TAKE,
            "last= server=$BASHPID",
            "take",
            f"cp {FOLDER}/{CONFIG} {STORES}/{CONFIG}",
            f"printf '%s\\n' {' '.join(lines)} >> {STORES}/{CONFIG}",
            f"(while sleep {FOLLOWS_S} && kill -0 $server 2> /dev/null; do take || true; done) &",
            f"{SERVE} {STORES}/{CONFIG}",
        )
    )


SERVES: Final = (
    f"exec 3<>/dev/tcp/127.0.0.1/{ZOOKEEPER_PORT} && echo srvr >&3 && grep -q ^Mode: <&3"
)
"""A server without a quorum answers, but has no mode."""
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
