"""`make docs`: draw the figures of bench/results into docs/plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import orjson

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.harness import RESULTS

PLOTS = Path(__file__).parents[1] / "docs/plots"
OURS, MIDDLE, FLOOR, ORIGINAL = "#2f6fed", "#7d8aa0", "#b8c1cf", "#e08a3c"


def results(name: str) -> list[dict[str, Any]]:
    """Rows of one measurement, or nothing when it was not made."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = orjson.loads(path.read_bytes())["rows"]
    return rows


def bars(
    rows: list[dict[str, Any]],
    series: list[tuple[str, str, list[float]]],
    path: Path,
    *,
    told: str = "µs of broker CPU a message (less is better)",
    form: str = ".2f",
) -> None:
    """Horizontal bars, one group a workload, one bar a server; the value stands beside it."""
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(rows) * len(series) + 1.2))
    height = 0.8 / len(series)
    for index, (label, color, values) in enumerate(series):
        places = [row + index * height for row in range(len(rows))]
        drawn = axes.barh(places, values, height * 0.9, label=label, color=color)
        texts = [f"{value:{form}}" if value else "" for value in values]
        axes.bar_label(drawn, labels=texts, padding=3, fontsize=8)
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(rows))], [r["name"] for r in rows])
    axes.invert_yaxis()
    axes.set_xlabel(told)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_broker() -> Path | None:
    rows = results("broker")
    if not rows:
        return None
    ours = [float(row["server_cpu_us"]) for row in rows]
    bare, storing = (
        [float(row[name]["server_cpu_us"]) if name in row else 0.0 for row in rows]
        for name in ("floor", "storing_floor")
    )
    path = PLOTS / "broker.png"
    bars(
        rows,
        [
            ("Imago", OURS, ours),
            ("C, appends to a file", MIDDLE, storing),
            ("C, stores nothing", FLOOR, bare),
        ],
        path,
    )
    return path


def draw_peers() -> Path | None:
    rows = results("peers")
    if not rows:
        return None
    path = PLOTS / "peers.png"
    series = [
        ("Imago", OURS, [float(row["imago"]["server_cpu_us"]) for row in rows]),
        (
            "the original broker",
            ORIGINAL,
            [float(row["original"]["server_cpu_us"]) for row in rows],
        ),
    ]
    bars(rows, series, path)
    return path


def draw_spark() -> Path | None:
    rows = results("spark")
    if not rows:
        return None
    path = PLOTS / "spark.png"
    series = [
        (label, color, [row[side]["rows_per_cpu_second"] / 1000 for row in rows])
        for label, color, side in [
            ("Imago", OURS, "imago"),
            ("Spark's source and sink for Kafka", ORIGINAL, "kafka"),
        ]
    ]
    told = "1,000 rows per second of CPU of JVM and Python (more is better)"
    bars(rows, series, path, told=told, form=",.0f")
    return path


def draw_failover() -> Path | None:
    """Each gap as a point, one row a kind of event and client."""
    rows = results("failover")
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(9, 0.7 * len(rows) + 1.4))
    for place, row in enumerate(rows):
        for shift, (client, color) in enumerate([("imago", OURS), ("metaq", ORIGINAL)]):
            gaps = [each / 1000 for each in row[client]["gaps_ms"]]
            label = {"imago": "Imago's client", "metaq": "MetaQ's client"}[client]
            axes.plot(
                gaps,
                [place + 0.3 * shift] * len(gaps),
                "o",
                color=color,
                alpha=0.5,
                label=None if place else label,
            )
    names = [f"{row['name']} ({row['events']})" for row in rows]
    axes.set_yticks([place + 0.15 for place in range(len(rows))], names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds without an acknowledgement")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    path = PLOTS / "failover.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def draw_replicated() -> Path | None:
    """Rates of one, two and three members, one group a load and level."""
    rows = results("replicated")
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(9, 0.32 * len(rows) + 1.2))
    colors = {1: FLOOR, 2: MIDDLE, 3: OURS}
    ordered = sorted(rows, key=lambda row: (row["load"], row["level"], row["members"]))
    for place, row in enumerate(ordered):
        drawn = axes.barh(place, row["rate"] / 1000, 0.8, color=colors[row["members"]])
        axes.bar_label(drawn, labels=[f"{row['share']:.0%}"], padding=3, fontsize=8)
    axes.set_yticks(range(len(ordered)), [row["name"] for row in ordered])
    axes.invert_yaxis()
    axes.set_xlabel("1,000 puts a second, all members on one machine; beside it the share of one's")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = PLOTS / "replicated.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def main() -> int:
    draws = [draw_broker, draw_peers, draw_failover, draw_replicated, draw_spark]
    drawn = [path for path in (draw() for draw in draws) if path]
    for path in drawn:
        print(f"drawn: {path.relative_to(PLOTS.parents[1])}")
    if not drawn:
        print("nothing to draw: run `make bench` first", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
