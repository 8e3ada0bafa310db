"""What the data source refuses, and what it finds missing. Each message says what to do."""

from __future__ import annotations


class SourceError(Exception):
    """Base of the source's own errors."""


class OptionError(SourceError, ValueError):
    """An option is unknown or wrong."""


class OffsetError(SourceError, ValueError):
    """Offsets that cannot be read, or belong to something else."""


class SinkError(SourceError):
    """Rows that cannot be written, or that brokers did not take."""


class DataLossError(SourceError):
    """Messages that the query should have read are gone, or were never there."""


class FencedError(SourceError):
    """Another run of the pipeline was allowed: this one writes nothing more."""


class TableError(SourceError):
    """A table is not what its commits say, or rows would be in it twice or never."""
