"""Start a stream again that ended only because a Python worker came too late for Spark.

Spark gives a Python that it starts on the driver ten seconds to connect back. The number is written
into its `PythonWorkerFactory.createSimpleWorker`, so no setting changes it; most of the time before
the connection goes into PySpark's own imports, and a busy machine needs longer now and then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)
T = TypeVar("T")

WORKER_LATE: Final = "Python worker failed to connect back"
"""What Spark says then."""
STARTS_MAX: Final = 5
"""How often in a row a stream starts and does nothing, before it fails."""


def run_stream(
    attempt: Callable[[], T],
    done: Callable[[], object] = lambda: None,
    *,
    may_again: Callable[[], bool] = lambda: True,
) -> T:
    """Run a stream to its end; start it again, from its checkpoint, where a worker was late.

    `done`: what differs once the stream has done something. Any other failure is the caller's.
    """
    late = 0
    while True:
        before = done()
        try:
            return attempt()
        except PySparkException as error:
            late = late + 1 if done() == before else 1
            if late == STARTS_MAX or not may_again() or WORKER_LATE not in str(error):
                raise
            log.warning("%s: starting the stream again from its checkpoint", WORKER_LATE)
