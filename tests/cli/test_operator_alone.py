"""The operator's image has neither brokers nor clients: the command starts without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = """
import sys
for name in ("imago_broker", "imago_client", "imago_log", "imago_spark", "imago_wire"):
    sys.modules[name] = None
sys.argv = ["imago", "operator", "--kubeconfig", "/nonexistent", "--log-format", sys.argv[1]]
from imago_cli.main import main
main()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_it_looks_for_its_api_server(form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, form], capture_output=True, text=True, check=False
    )
    assert "name a kubeconfig file" in done.stderr
