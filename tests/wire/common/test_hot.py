"""Which twin serves: each compiled module that is whole, else (or on demand) the reference."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = """
from imago_wire import hot
for name in ("scan_text", "RecordBuilder", "scan_records", "metaq_form", "scan_frames"):
    print(getattr(hot, name).__module__)
print(hot.COMPILED, *hot.MISSING)
"""
COMPILED = [
    "imago_wire.text._text_c",
    "imago_wire.records._record_c",
    "imago_wire.records._scan_c",
    "imago_wire.records._metaq_c",
    "imago_wire.remoting.scanning._remoting_c",
]


def shown(code: str, **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "IMAGO_PURE": "0", **environ},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip().split("\n")


def stale(module: str) -> str:
    """Have a compiled module that was built from sources without any of today's names."""
    return f"import sys, types; sys.modules[{module!r}] = types.ModuleType('old')\n"


def plain(*modules: str) -> list[str]:
    return [one[:-1] + "py" if one in modules else one for one in COMPILED]


def test_compiled_twins_serve_where_they_are_built() -> None:
    assert shown(SHOW) == [*COMPILED, "True"]


def test_reference_serves_on_demand_and_nothing_is_missing() -> None:
    served = shown(SHOW, IMAGO_PURE="1")
    assert served[1] == "imago_wire.records._record_py"
    assert served == [*plain(*COMPILED), "False"]


@pytest.mark.parametrize(
    "module", ["imago_wire.records._scan_c", "imago_wire.remoting.scanning._remoting_c"]
)
def test_a_stale_module_is_left_out_whole_and_named_and_the_others_stay(module: str) -> None:
    *served, compiled = shown(stale(module) + SHOW)
    assert served == plain(module)
    assert compiled.startswith(f"False {module}.")


def test_what_one_name_lacks_is_said() -> None:
    lacking = """
from imago_wire.records import _metaq_c
del _metaq_c.metaq_whole
"""
    *served, compiled = shown(lacking + SHOW)
    assert served == plain("imago_wire.records._metaq_c")
    assert compiled == "False imago_wire.records._metaq_c.metaq_whole"


def test_what_was_built_on_a_stale_module_is_left_out_with_it() -> None:
    text, record = COMPILED[:2]
    *served, compiled = shown(
        f"import {text}\nfrom imago_wire.records import _record_c\ndel _record_c.entries_size_max\n"
        + SHOW
    )
    assert served == plain(text, record)
    assert compiled == f"False {record}.entries_size_max"


def test_a_module_that_cannot_even_be_imported_is_named() -> None:
    *served, compiled = shown(
        "import sys; sys.modules['imago_wire.records._index_c'] = None\n" + SHOW
    )
    assert served == COMPILED
    assert compiled == "False imago_wire.records._index_c"
