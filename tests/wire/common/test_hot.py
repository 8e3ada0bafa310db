"""Which twin serves: the compiled one where it is whole, the reference otherwise or on demand."""

from __future__ import annotations

import os
import subprocess
import sys

SHOW = "from imago_wire import hot; print(hot.COMPILED, hot.scan_text.__module__)"
STALE = "import sys, types; sys.modules['imago_wire.text._text_c'] = types.ModuleType('old');"


def shown(code: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "IMAGO_PURE": "0", **environ},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_compiled_twins_serve_where_they_are_built() -> None:
    assert shown(SHOW) == "True imago_wire.text._text_c"


def test_reference_serves_on_demand() -> None:
    assert shown(SHOW, IMAGO_PURE="1") == "False imago_wire.text._text_py"


def test_reference_serves_where_a_compiled_module_lacks_a_name() -> None:
    assert shown(STALE + SHOW) == "False imago_wire.text._text_py"
