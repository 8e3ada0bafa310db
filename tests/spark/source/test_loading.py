"""What Spark's processes load of ours: each is started anew, and most start for one question."""

from __future__ import annotations

import subprocess
import sys

SCHEMA = """
import sys
from pyspark_imago import DefaultSource
source = DefaultSource({"bootstrap": "127.0.0.1:9", "subscribe": "orders"})
assert "value" in source.schema()
print([name for name in sys.modules if name.startswith(("imago_client.blocking", "imago_spark."))])
"""


def test_a_schema_is_told_without_client_reader_and_writer() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCHEMA], capture_output=True, text=True, check=True
    )
    assert "imago_spark.schema" in told.stdout
    for heavy in ("imago_client.blocking", "imago_spark.reader", "imago_spark.writer"):
        assert heavy not in told.stdout
