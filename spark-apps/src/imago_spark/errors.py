"""Errors of the data source. Each message names cause and cure."""

from __future__ import annotations


class SourceError(Exception):
    """Base of the source's own errors."""


class OptionError(SourceError, ValueError):
    """An option is unknown or its value is wrong."""


class OffsetError(SourceError, ValueError):
    """Offsets are unreadable, or belong to another source."""


class SinkError(SourceError):
    """The sink cannot write rows, or brokers did not accept them."""


class DataLossError(SourceError):
    """Messages that the query needs are gone, or never existed."""


class FencedError(SourceError):
    """Another run of the pipeline took over: this one writes nothing more."""


class TableError(SourceError):
    """A table contradicts its commits, or rows would be in it twice or never."""


class RejectedError(SourceError):
    """More messages do not fit than the user lets pass."""
