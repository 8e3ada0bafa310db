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
the admin interface, or in the file followed by SIGHUP; all others need a restart.

Topics to be made at the start, where they are missing, are tables of their own:

```toml
[topics.orders]
queues = 8                         # partitions of MetaQ, queues of RocketMQ, on this shard
acknowledgement = "leader-fsync"   # in place of acknowledgement.level
dialects = "rocketmq"              # not for MetaQ clients; default "metaq,rocketmq"
retention_ms = 3600000             # may only shorten store.retention_ms
retention_bytes = 1073741824
metaq_publish = true               # false: MetaQ producers do not find the topic
metaq_subscribe = true             # false: MetaQ consumers do not find it
metaq_stat = false                 # in place of metaq.stat
```

MetaQ's `server.ini` is translated by `imago config convert`.
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for section, keys in groupby(describe(), key=lambda key: key.key.partition(".")[0]):
        parts += [
            f"\n## [{section}]\n\n",
            "| key | default | dynamic | meaning |\n|---|---|---|---|\n",
        ]
        parts += (_row(key) for key in keys)
    return "".join(parts)


def _row(key: KeyDescription) -> str:
    name = key.key.partition(".")[2]
    dynamic = "yes" if key.dynamic else ""
    meaning = key.doc.replace("|", "\\|")
    return f"| `{name}` | {_default(key.default)} | {dynamic} | {meaning} |\n"


def _default(value: Value) -> str:
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if value in ("", ()):
        return "empty"
    return f"`{value}`"
