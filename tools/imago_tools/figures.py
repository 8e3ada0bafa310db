"""Tables of what was measured, from the files of bench/results."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parents[2] / "bench" / "results"
PROSE_CHARS_MAX: Final = 118
Row = dict[str, Any]

PARTS_FUZZED: Final = {
    "text": "MetaQ's protocol",
    "record": "records and messages",
    "remoting": "RocketMQ's protocol",
    "replication": "the protocol between members",
    "sql92": "SQL92 filters",
    "access": "credentials, rules, limits, lists of addresses",
    "served": "the ports of a broker with access control",
}
"""What `make fuzz` tries, by the first word of a target."""


def rows(name: str) -> list[Row]:
    """Return the rows of one measurement."""
    found: list[Row] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return found


def of(name: str) -> str:
    """Return the sentence about the machine and the commits of a measurement."""
    about: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())["machine"]
    others: dict[str, list[str]] = {}
    for row in rows(name):
        if "commit" in row:
            others.setdefault(row["commit"], []).append(row["name"])
    earlier = "".join(f" At `{commit}`: {'; '.join(each)}." for commit, each in others.items())
    said = (
        f"Commit `{about['commit']}`, {about['processor']}, {about['cores']} cores, "
        f"Python {about['python']}.{earlier}"
    )
    return textwrap.fill(said, PROSE_CHARS_MAX, break_on_hyphens=False) + "\n"


def table(heads: list[str], lines: list[list[str]]) -> str:
    """Return a Markdown table whose first column is text and whose others are numbers."""
    head = f"| {' | '.join(heads)} |\n|---|{'--:|' * (len(heads) - 1)}\n"
    return head + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def thousands(rate: float) -> str:
    """Return a rate in thousands: `73`, `2,535`, below ten `5.4`."""
    return f"{rate / 1e3:,.1f}" if rate < 10_000 else f"{rate / 1e3:,.0f}"


def milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1e3:.2f}"


def micros(row: Row) -> str:
    return f"{row['server_cpu_us']:.2f}"


def peers() -> str:
    """Return Imago beside the original brokers: rate, slowest answers and processor time."""
    heads = ["workload (1 KiB)", "Imago k msg/s", "the original k msg/s"]
    heads += ["Imago p99 ms", "the original p99 ms"]
    heads += ["CPU, the original ÷ Imago"]
    heads += ["Imago µs of CPU a message", "the original"]
    lines = [
        [
            row["name"],
            thousands(row["imago"]["rate"]),
            thousands(row["original"]["rate"]),
            milliseconds(row["imago"]["p99_us"]),
            milliseconds(row["original"]["p99_us"]),
            f"{row['original']['server_cpu_us'] / row['imago']['server_cpu_us']:.1f} ×",
            micros(row["imago"]),
            micros(row["original"]),
        ]
        for row in rows("peers")
    ]
    return table(heads, lines)


def peers_in_full() -> str:
    """Return the same with latencies."""
    heads = ["workload (1 KiB)", "Imago k msg/s", "p50 / p99 ms", "µs of CPU"]
    heads += ["the original k msg/s", "p50 / p99 ms", "µs of CPU"]
    lines = [[row["name"], *_side(row["imago"]), *_side(row["original"])] for row in rows("peers")]
    return of("peers") + "\n" + table(heads, lines)


def _side(row: Row) -> list[str]:
    return [thousands(row["rate"]), _latency(row), micros(row)]


def _latency(row: Row) -> str:
    return f"{milliseconds(row['p50_us'])} / {milliseconds(row['p99_us'])}"


def broker() -> str:
    """Return every workload beside the C servers that stand for the machine's share."""
    heads = ["workload (1 KiB unless named)", "k msg/s", "MB/s", "µs of CPU a message"]
    heads += ["C server: stores nothing", "C server: appends", "p50 / p99 ms"]
    lines = [
        [
            row["name"],
            thousands(row["rate"]),
            f"{row['bytes_per_second'] / 1e6:,.0f}",
            micros(row),
            micros(row["floor"]) if "floor" in row else "–",
            micros(row["storing_floor"]) if "storing_floor" in row else "–",
            _latency(row),
        ]
        for row in rows("broker")
    ]
    return of("broker") + "\n" + table(heads, lines)


def gate() -> str:
    """Return instructions by case."""
    counts: dict[str, int] = json.loads((RESULTS / "gate.json").read_text())
    return table(
        ["case", "user instructions"], [[name, f"{count:,}"] for name, count in counts.items()]
    )


def java_push() -> str:
    """Return whom RocketMQ's Java push consumer waited for, by its settings and the server."""
    heads = ["consumer", "server", "k msg/s", "of the original's", "others", "client µs"]
    heads += ["server µs", "at most k msg/s", "of the original's"]
    lines = [
        [
            row["name"],
            server,
            thousands(row[server]["rate"]),
            f"{row[server]['rate'] / row['original']['rate']:.2f} ×",
            f"{min(run['others'] for run in row[server]['runs']):.1f}",
            f"{row[server]['client_cpu_us']:.2f}",
            micros(row[server]),
            thousands(row[server]["at_most"]),
            f"{row[server]['at_most'] / row['original']['at_most']:.2f} ×",
        ]
        for row in rows("java_push")
        for server in ("original", "imago", "canned")
    ]
    return of("java_push") + "\n" + table(heads, lines)


def replicated() -> str:
    """Return rates of one, two and three members, by load and level."""
    heads = ["load", "level", "members", "k puts/s", "of one member's rate"]
    heads += ["µs of CPU, leader", "followers", "p50 / p99 ms"]
    ordered = sorted(rows("replicated"), key=lambda row: (row["load"], row["level"]))
    lines = [
        [
            row["load"],
            row["level"],
            str(row["members"]),
            thousands(row["rate"]),
            f"{row['share']:.0%}",
            micros(row),
            ", ".join(f"{each:.2f}" for each in row["follower_cpu_us"]) or "–",
            _latency(row),
        ]
        for row in ordered
    ]
    return of("replicated") + "\n" + table(heads, lines)


def catch_up() -> str:
    """Return what a member that is behind costs its leader."""
    heads = ["event", "behind", "in sync after", "leader's rate before", "meanwhile"]
    lines = [
        [
            row["name"],
            f"{row['behind_bytes'] / 1e9:.1f} GB",
            f"{row['seconds_to_sync']:.1f} s",
            f"{thousands(row['rate_before'])} k/s",
            f"{thousands(row['rate_during'])} k/s ({row['share']:.0%})",
        ]
        for row in rows("catch_up")
    ]
    return of("catch_up") + "\n" + table(heads, lines)


def failover() -> str:
    """Return the gaps that clients see, by event and client."""
    heads = ["event", "client", "events", "median gap", "longest gap", "errors"]
    lines = [
        [
            row["name"],
            title,
            str(row["events"]),
            f"{row[client]['p50_ms']:.0f} ms",
            f"{row[client]['max_ms']:.0f} ms",
            str(row[client]["errors"]),
        ]
        for row in rows("failover")
        for client, title in (("imago", "Imago's client"), ("metaq", "MetaQ's Java client"))
    ]
    return table(heads, lines)


def metaq() -> str:
    """Return what MetaQ's clients do besides put and get: its processor time, beside plain puts."""
    heads = ["what", "k a second", "µs of CPU", "of a", "a plain put in the same run"]
    lines = []
    for row in rows("metaq"):
        beside = f"{micros(row['plain'])} µs, {row['times_plain']:.1f} ×" if "plain" in row else ""
        lines.append([row["name"], thousands(row["rate"]), micros(row), row["of"], beside])
    return f"{of('metaq')}\n{table(heads, lines)}"


def tls() -> str:
    """Return the work with TLS, beside the same work on the same broker without it; and storms."""
    heads = ["work (1 KiB)", "µs of CPU a message with TLS", "without", "TLS ÷ plain"]
    heads += ["k msg/s with TLS", "without"]
    lines = [
        [
            row["name"],
            micros(row),
            micros(row["plain"]),
            f"{row['times_plain']:.2f} ×",
            thousands(row["rate"]),
            thousands(row["plain"]["rate"]),
        ]
        for row in rows("tls")
        if "plain" in row
    ]
    return f"{of('tls')}\n{table(heads, lines)}{_storms()}"


def _storms() -> str:
    """Return what clients that are served see before a storm of handshakes, in it and after."""
    heads = ["handshakes", "begun / ended a second", "clients", "sends/s in it"]
    heads += ["p50 / p99 ms before", "in it", "after"]
    lines = []
    for row in rows("tls"):
        for way in ("plain", "tls") if "during" in row else ():
            seen = [row[side][way] for side in ("before", "during", "after")]
            what = row["name"].partition(": ")[2] if way == "plain" else ""
            rate = f"{row['begun']:,} / {row['ended']:,}" if way == "plain" else ""
            name = "with TLS" if way == "tls" else "without TLS"
            cells = [what, rate, name, f"{row['during'][way]['rate']:,}"]
            lines.append([*cells, *map(_latency, seen)])
    return f"\n{table(heads, lines)}" if lines else ""


def scale() -> str:
    """Return what grows with partitions, topics, connections and the log."""
    of_name = {row["name"]: row for row in rows("scale")}
    lines = [
        [f"puts over {name}", f"{thousands(row['rate'])} k/s, {micros(row)} µs of CPU"]
        for name, row in of_name["partitions"].items()
        if isinstance(row, dict)
    ]
    topics, idle = of_name["topics"], of_name["connections"]
    starts = of_name["starts"]
    lines += [
        [
            f"memory per topic, with {topics['topics']:,} topics",
            f"{topics['bytes_a_topic']:,} bytes",
        ],
        [f"start with {topics['topics']:,} topics", f"{topics['start_seconds']:.2f} s"],
        [
            f"memory per idle connection, with {idle['idle']:,} of them",
            f"{idle['bytes_a_connection']:,} bytes",
        ],
        [
            f"rate of active connections beside {idle['idle']:,} idle ones",
            f"{idle['rate_beside_idle'] / idle['rate_alone']:.0%}",
        ],
        ["new connections per second", f"{idle['connects_per_second']:,}"],
        ["start with an empty log", f"{starts['start_seconds']:.2f} s"],
        [
            f"start with a log of {starts['log_bytes'] / 2**30:.0f} GiB",
            f"{starts['start_seconds_with_log']:.2f} s",
        ],
    ]
    return of("scale") + "\n" + table(["what", "measured"], lines)


def spark() -> str:
    """Return what Spark's JVM and workers do in a second of CPU, beside Kafka's source and sink."""
    heads = ["what, size of a body", "rows", "Imago", "Kafka", "ratio"]
    lines = [
        [
            row["name"],
            f"{row['rows']:,}",
            thousands(row["imago"]["rows_per_cpu_second"]),
            thousands(row["kafka"]["rows_per_cpu_second"]),
            f"{row['ratio']:.2f}",
        ]
        for row in rows("spark")
    ]
    loads = [row["load_average"] for row in rows("spark")]
    busy = f"Load average meanwhile {min(loads):g} to {max(loads):g}."
    return f"{of('spark')}{busy}\n\n{table(heads, lines)}"


def fuzzed() -> str:
    """Return how many inputs were tried without a failure, by what takes them."""
    runs = json.loads((RESULTS / "fuzz.json").read_text())["runs"]
    inputs: dict[str, int] = {}
    for run in runs:
        for target, count in run["inputs"].items():
            part = target.partition(".")[0]
            inputs[part] = inputs.get(part, 0) + count
    lines = [[PARTS_FUZZED[part], f"{count:,}"] for part, count in inputs.items()]
    lines.append(["all", f"{sum(inputs.values()):,}"])
    commits = ", ".join(sorted({f"`{run['commit']}`" for run in runs}))
    seconds = sum(run["seconds"] for run in runs)
    told = f"{len(runs)} runs, commits {commits}, {seconds / 3600:.1f} hours of a busy machine."
    return told + "\n\n" + table(["what takes them", "inputs"], lines)
