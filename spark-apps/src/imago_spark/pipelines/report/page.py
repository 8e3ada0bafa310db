"""One page of HTML with plots, from values alone: no script, nothing from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH: Final = 760
HEIGHT: Final = 240
LEFT: Final = 64
BOTTOM: Final = 28
TOP: Final = 12
TICKS: Final = 4
SECONDS_SHOWN: Final = 600
"""A plot of less time has seconds on its axis."""
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which the colour-blind tell apart."""
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse } th, td { text-align: left; padding: .2rem 1rem .2rem 0;
  border-bottom: 1px solid #ddd } td.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: currentColor }
.grid { stroke: currentColor; stroke-opacity: .15 } p.key span { margin-right: 1.2rem }
p.key i { display: inline-block; width: .9rem; height: .2rem; margin-right: .4rem;
  vertical-align: middle }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #16181c }
  th, td { border-color: #444 } }
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over time: for each name, values by seconds since 1970."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its title, the names of its columns, and rows of texts and whole numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int]]
    empty: str = "none"


def number(value: float) -> str:
    """Return a number as people read it."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if sign == 'k' else size):.4g} {sign}"
    return f"{value:.4g}"


def top_of(values: Iterable[float]) -> float:
    """Return where an axis ends: the next 1, 2 or 5 of some power of ten."""
    most = max(values, default=0.0)
    if most <= 0:
        return 1.0
    power = 10.0 ** (len(f"{int(most)}") - 1) if most >= 1 else 0.001
    while power * 10 < most:
        power *= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= most)


def svg(plot: Plot) -> str:
    """Return a plot: a point for each value, and lines between them."""
    points = [point for line in plot.lines.values() for point in line]
    if not points:
        return "<p>nothing to show</p>"
    first, last = min(at for at, _ in points), max(at for at, _ in points)
    top = top_of(value for _, value in points)
    made = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(plot.title)}">']
    for tick in range(TICKS + 1):
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - tick / TICKS)
        made.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = number(top * tick / TICKS)
        made.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        at = first + (last - first) * tick / TICKS
        x = LEFT + (WIDTH - LEFT) * tick / TICKS
        anchor = "start" if tick == 0 else "end" if tick == TICKS else "middle"
        text = clock(at, last - first)
        place = f'x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}"'
        made.append(f"<text {place}>{text}</text>")
    for colour, line in zip(_colours(len(plot.lines)), plot.lines.values(), strict=True):
        places = [
            (
                LEFT + (WIDTH - LEFT) * ((at - first) / (last - first) if last > first else 0.5),
                TOP + (HEIGHT - TOP - BOTTOM) * (1 - max(0.0, value) / top),
            )
            for at, value in line
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        made.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{path}"/>')
        made += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{colour}"/>' for x, y in places]
    return "".join([*made, "</svg>"])


def clock(at: float, whole: int) -> str:
    """Return a time as an axis of so many seconds has it, in UTC."""
    form = "%H:%M:%S" if whole < SECONDS_SHOWN else "%d %b %H:%M"
    return datetime.fromtimestamp(int(at), UTC).strftime(form)


def page(title: str, facts: Mapping[str, str], parts: Sequence[Plot | Grid]) -> str:
    """Return the page."""
    made = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><table>",
        *(
            f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>"
            for name, said in facts.items()
        ),
        "</table>",
    ]
    for part in parts:
        made += _plot(part) if isinstance(part, Plot) else _grid(part)
    return "".join([*made, "</body></html>\n"])


def _plot(plot: Plot) -> list[str]:
    key = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for colour, name in zip(_colours(len(plot.lines)), plot.lines, strict=True)
    )
    title = f"<h2>{escape(plot.title)} <small>({escape(plot.unit)})</small></h2>"
    return [title, svg(plot), f'<p class="key">{key}</p>']


def _grid(grid: Grid) -> list[str]:
    title = f"<h2>{escape(grid.title)}</h2>"
    if not grid.rows:
        return [title, f"<p>{escape(grid.empty)}</p>"]
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.columns)
    return [title, f"<table><tr>{head}</tr>", *map(_row, grid.rows), "</table>"]


def _row(row: Sequence[str | int]) -> str:
    cells = (
        f"<td>{escape(cell)}</td>" if isinstance(cell, str) else f'<td class="n">{cell:,}</td>'
        for cell in row
    )
    return f"<tr>{''.join(cells)}</tr>"


def _colours(count: int) -> list[str]:
    return [COLOURS[at % len(COLOURS)] for at in range(count)]
