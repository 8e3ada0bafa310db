"""How servers of a managed ZooKeeper become more or fewer while they serve.

Each keeps who its members are in a file on its claim, as ZooKeeper itself writes it there. The
ConfigMap says how many there are to be; the one that leads has ZooKeeper take another in, or do
without the last, one at a time. A server that is new begins as an observer: it is no member, and
has everything before it becomes one. `founders` says who may begin an ensemble without others.

ZooKeeper wants to know of members where clients reach them, and opens that port: the one that leads
says it of all as it has it itself. A server that begins goes by its own configuration.

ZooKeeper lets only its superuser change members. Each server makes a password for that when it
begins, which nobody but its own process knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from imago_operator.model.desired import ZOOKEEPER_PORT

FOLDER: Final = "/etc/imago-zookeeper"
KEPT: Final = "/data/zoo.cfg"
"""Its configuration; ZooKeeper says in it which file has the members."""
MEMBERS: Final = "members"
FOUNDERS: Final = "founders"
SERVERS: Final = "servers"
"""Files: how many servers are to be members, how many may begin without others, where all are."""
LOOKS_S: Final = 5


@dataclass(frozen=True, slots=True)
class ServerNumbers:
    """How many servers there are for now."""

    there: int
    """Pods."""
    members: int
    founders: int


MODE: Final = (
    f"(exec 3<>/dev/tcp/127.0.0.1/{ZOOKEEPER_PORT} && echo srvr >&3 && sed -n 's/^Mode: //p' <&3)"
)
CURRENT: Final = f"sed -n 's/^dynamicConfigFile=//p' {KEPT}"
KEEPS: Final = f"""\
id=$(cat /data/myid)
known=$({CURRENT} 2> /dev/null) || known=
[ -s "$known" ] || {{
  known={KEPT}.dynamic
  head -n "$(cat {FOLDER}/{FOUNDERS})" {FOLDER}/{SERVERS} | sed 's/$/:participant/' > $known
}}
grep -q "^server[.]$id=" "$known" ||
  {{ echo; sed -n "s/^server[.]$id=.*/&:observer/p" {FOLDER}/{SERVERS}; }} >> "$known"
sed -i "/^server[.]$id=/s/;.*//" "$known"
sed '/^server[.]/d; s/^reconfigEnabled=.*/reconfigEnabled=true/' {FOLDER}/zoo.cfg > {KEPT}
echo "dynamicConfigFile=$known" >> {KEPT}"""
SUPERUSER: Final = r"""
key=$(head -c 18 /dev/urandom | base64)
hash=$(printf "$(printf 'super:%s' "$key" | sha1sum | head -c 40 | sed 's/../\\x&/g')" | base64)
super=-Dzookeeper.DigestAuthenticationProvider.superDigest=super:$hash
export JVMFLAGS="$super ${JVMFLAGS:-}"
""".strip()
CHANGE: Final = f"""\
order() {{
  printf '%s\\n' "addauth digest super:$key" "reconfig $*" quit |
    timeout 40 zkCli.sh -server 127.0.0.1:{ZOOKEEPER_PORT} > /tmp/reconfig 2>&1
}}
change() {{
  [ "$( {MODE} 2> /dev/null)" = leader ] || return
  now=$({CURRENT})
  last=$(sed -n 's/^server[.]\\([0-9]*\\)=.*:participant.*/\\1/p' "$now" | sort -n | tail -n 1)
  many=$(cat {FOLDER}/{MEMBERS})
  ((last <= many)) || {{ order -remove "$last"; return; }}
  for next in $(seq "$many"); do
    plain=$(grep "^server[.]$next=" {FOLDER}/{SERVERS}):participant
    grep -qxF -e "$plain" -e "$plain;$open" "$now" || {{ order -add "$plain;$open"; return; }}
  done
}}"""
SERVES: Final = (
    f'{MODE} | grep -q . && grep -q "^server[.]$(cat /data/myid)=.*:participant" "$({CURRENT})"'
)
"""A server without a quorum answers, but has no mode; one that is no member does not count."""


def server_line(name: str, domain: str, number: int) -> str:
    """Return where the others find a server; `number` from 0."""
    return f"server.{number + 1}={name}-{number}.{domain}:2888:3888"
