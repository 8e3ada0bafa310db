"""How many connections fit among the files that the process may have open."""

from __future__ import annotations

import logging
import resource

from imago_broker.server.connection_places import NO_LIMIT
from imago_log.config import FILES_OPEN_MAX

logger = logging.getLogger(__name__)

ADMIN_PLACES = 128
"""Kept for the admin port, whatever the clients' ports have."""
DESCRIPTORS_RESERVED = 896
"""For the admin port, places kept for known callers, the other members (256), the registry, probes,
files in use for a moment."""
CONNECTIONS_PART_MIN = 4
"""A quarter of the files is for connections, however few there are."""


def raise_limit() -> None:
    """Let this process open as many files as it may let itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def files_allowed() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def connections_that_fit(allowed: int, log_files: int) -> int:
    """Return the connections that leave the store, with so many log files, what it needs."""
    beside = DESCRIPTORS_RESERVED + FILES_OPEN_MAX + log_files
    return max(allowed - beside, allowed // CONNECTIONS_PART_MIN)


def warn_if_few(connections_max: int, fit: int) -> None:
    """Say it where the settings promise more connections than there are files for."""
    if fit < connections_max:
        logger.warning(
            "open_files_few connections=%d limits.connections_max=%d: raise the limit of open"
            " files (ulimit -n, LimitNOFILE), or lower the setting",
            fit,
            connections_max,
        )
