"""Tables of commands: on narrow screens too, every word of theirs can be found and copied."""

from __future__ import annotations

import pytest

from imago_cli.output import in_bytes, plain_table, print_table

COLUMNS = ["shard", "replica", "role", "in sync", "lag bytes", "lag ms", "RocketMQ", "slot", "uuid"]
UUID = "656ba849-0393-468e-89d4-42b16cc6ea83"
ROWS = [["shard-0", n, "follower", "yes", 123456, 10, "127.0.0.1:31662", n, UUID] for n in range(3)]


@pytest.fixture(autouse=True)
def without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes, which some environments force, take no column of a screen."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def drawn(capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_table("cluster imago", COLUMNS, ROWS)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120])
def test_short_cells_stay_whole_on_every_screen(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = drawn(capsys)
    for row in ROWS:
        words = [str(cell) for cell in row[:-1]]
        assert any(all(word in line for word in words) for line in lines), "\n".join(lines)


def test_a_table_fits_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = drawn(capsys)
    assert max(map(len, lines)) <= 80
    column = lines[2].index("uuid")
    assert "".join(line[column:] for line in lines[3:]) == UUID * len(ROWS)


def test_a_file_gets_whole_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert sum(UUID in line for line in drawn(capsys)) == len(ROWS)


@pytest.mark.parametrize(
    ("title", "columns", "rows"),
    [
        ("cluster imago", COLUMNS, ROWS),
        ("", ("a", "bb"), [(1, "x"), (22, "yyy")]),
        ("", ("a", "bb"), [("1", "x"), (22, "")]),
        ("none", ("group", "lag"), []),
        ("longer than its table", ("a",), [("x",)]),
        ("", ("a",), [("hé",)]),
        ("", ("a",), [("two\nlines",)]),
        ("", ("a", "b"), [(True, 1.5), (False, 2)]),
        ("", ("a", "b"), [("x" * 90, "y" * 90)]),
    ],
)
@pytest.mark.parametrize("width", [None, 40, 120])
def test_a_table_is_drawn_as_rich_draws_it(
    title: str,
    columns: list[str],
    rows: list[list[object]],
    width: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    print_table(title, columns, rows)
    ours = capsys.readouterr().out
    monkeypatch.setattr("imago_cli.output.plain_table", lambda *_: None)
    print_table(title, columns, rows)
    assert ours == capsys.readouterr().out


def test_most_tables_need_no_library() -> None:
    drawn_here = plain_table("cluster imago", COLUMNS, ROWS, 240)
    assert drawn_here is not None
    assert plain_table("cluster imago", COLUMNS, ROWS, 40) is None


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, ""),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 51, "2048.0 TiB"),
    ],
)
def test_a_size_is_for_people(size: int | None, shown: str) -> None:
    assert in_bytes(size) == shown
