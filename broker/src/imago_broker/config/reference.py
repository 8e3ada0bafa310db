"""The reference of all settings as a page, made from the settings themselves."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from imago_broker.config.loading import describe

if TYPE_CHECKING:
    from imago_broker.config.loading import KeyDescription
    from imago_broker.config.settings import Value

HEAD = """\
# Settings of a broker

One TOML file (`imago broker --config FILE`), then the environment: `IMAGO__SECTION__KEY` sets
`key` of `[section]` (`IMAGO__METAQ__PORT=8123`; lists are written `a,b`). A key that does not
exist is an error that names the nearest one. In the environment and behind `--set`, what counts
milliseconds, seconds or bytes may have a unit: `store.retention_ms=7d`,
`store.segment_bytes_max=64MiB`. *Dynamic* keys may change while the broker runs: over
the admin interface, by `imago config set --live`, or in the file followed by SIGHUP. All others
need a restart, since a broker makes these things once: its listeners and what it tells of them
(`bind`, `host`, ports, `enabled`, `tls.*`), its identity in the registry and on the disk
(`cluster`, `shard`, `replica`, `data_dir`, `zk_root`, `segment_bytes_max`), its session and its
users' rules (`zookeeper.*`, `acl.*`, `token_review.*`), the lease that members have agreed on
(`replication.*`), and the room of connections and buffers (`limits.*`, `frame_bytes_max`,
`idle_seconds`).

`imago up` takes settings from `--config FILE` and `--set` alone, not from the environment.

Topics to be made at the start, where they are missing, are tables of their own:

```toml
[topics.orders]
queues = 8                         # partitions of MetaQ, queues of RocketMQ, on this shard
acknowledgement = "leader-fsync"   # in place of acknowledgement.level
dialects = "rocketmq"              # not for MetaQ clients; default "metaq,rocketmq"
retention_ms = 3600000             # of MetaQ's own files; the log keeps its own time
retention_bytes = 1073741824       # of MetaQ's own files of a partition; not of the log
metaq_publish = true               # false: MetaQ producers do not find the topic
metaq_subscribe = true             # false: MetaQ consumers do not find it
metaq_stat = false                 # in place of metaq.stat
metaq_archive = "zip"              # expired MetaQ files are kept, packed; "arc": as they were
delete_when = "0 0 6,18 * * ?"     # in place of store.delete_when, for MetaQ's own files
"group.g1" = "tags: red || blue"   # what this group of MetaQ's consumers gets; or "sql: …"
```

A table whose name has a `*` (`[topics."logs-*"]`) is a pattern of `metaq.topic_patterns`: topics
that puts make by it have these settings.

MetaQ's `server.ini` is translated by `imago config convert`.

## Attributes of topics

These keys are attributes of a topic everywhere else, with dots: `retention.ms`, `delete.when`,
`metaq.publish`, `metaq.filter.GROUP` (here `group.GROUP`). `message.type` is one more, for
RocketMQ's own proxies and tools: `UNSPECIFIED`, `NORMAL`, `FIFO`, `DELAY`, `TRANSACTION`, `MIXED`,
`PRIORITY` or `LITE`; brokers themselves take any message. `lite.topic.expiration` is of
[lite topics](sdk.md#priorities-and-lite-topics). Where people write them (the admin interface,
`imago topic`, the Python client, an ImagoTopic) other names are refused. RocketMQ's tools may set
any, like `queue.type` or `cleanup.policy`, which mean nothing here and are kept.
All attributes of a topic, or of a group, have 32 KiB together at most.
"""

NOTES = {
    "limits": """
**Connections from one address.** A broker cannot tell one machine that opens many connections from
many users behind one address: a Kubernetes Service with `externalTrafficPolicy: Cluster`, a NAT
gateway and a TCP proxy all show their own. By default no number is therefore set to
`connections_per_address_max`; an address that has 64 connections or more only takes none of the
last eighth of a listener's `connections_max`, nor of the places of all listeners together
(`imago_connections_max`). That part stays for callers with few connections. Where clients come
from addresses of their own, set it to what one machine needs, say 1000.

All listeners count together: MetaQ, both of RocketMQ, the name service and administration
(replication has places of its own). Members of the cluster, that is, addresses at which brokers
are registered in ZooKeeper, are held to neither rule, since after a handover they pass their
clients' connections on; loopback may take the last eighth too, but never more than a listener's
`connections_max`. 128 further places are for loopback and for members, 128 for whoever calls
the admin port (probes, tools), half of each at most for one address: they get in when clients have
taken the places of all listeners.
""",
}
"""Text below the table of a section."""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for section, keys in groupby(describe(), key=lambda key: key.key.partition(".")[0]):
        parts += [
            f"\n## [{section}]\n\n",
            "| key | default | range | dynamic | meaning |\n|---|---|---|---|---|\n",
        ]
        parts += (_row(key) for key in keys)
        parts.append(NOTES.get(section, ""))
    return "".join(parts)


def _row(key: KeyDescription) -> str:
    name = key.key.partition(".")[2]
    dynamic = "yes" if key.dynamic else ""
    meaning = key.doc.replace("|", "\\|")
    return f"| `{name}` | {_default(key.default)} | {_range(key)} | {dynamic} | {meaning} |\n"


def _range(key: KeyDescription) -> str:
    low, high = key.rule.low, key.rule.high
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"{low} or more" if low is not None else ""


def _default(value: Value) -> str:
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if value in ("", ()):
        return "empty"
    return f"`{value}`"
