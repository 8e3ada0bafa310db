"""The configuration file of a stream into a table: TOML, with the names of an ImagoPipeline.

```toml
bootstrap = "demo-bootstrap:9876"     # name service
topics = ["orders", "refunds"]
path = "/lake/orders"                 # a mounted volume
checkpoint = "/checkpoint"            # any place that Spark can write to
pipeline = "lake.orders"              # name of the fence; only with --epoch
groupName = "lake"                    # group to which progress is written, so that lag can be seen
startFrom = "Earliest"                # or Latest: where topics begin that the table does not have
maxRowsPerTrigger = 100000

[config]
trigger = "continuous"                # or available-now: ends at what was there when it began
triggerSeconds = 10                   # least time from one batch to the next
onDataLoss = "fail"                   # or skip: go on where retention has removed messages
splitBytes = 134217728                # about what one task reads
progressSeconds = 5                   # how often progress is reported
landing = "stream"                    # of ingest: or ranges, whose tasks write the files themselves
format = "parquet"                    # of ingest: or delta, with a Delta log beside; needs ranges
s3Endpoint = "https://minio:9000"     # of a path like s3://bucket/orders, which needs delta
s3Region = "us-east-1"
s3CredentialsFile = "/secrets/s3"     # as Amazon's tools have it; else where these look
```

An application may have further names in `[config]`. `path` may stand there, too: an ImagoPipeline
whose `code` an application is has no other place for it.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_spark.errors import OptionError
from imago_spark.pipelines.tables.bucket import REGION, SCHEME, LakeBucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECONDS_MAX: Final = 86_400
_TOP: Final = (
    "bootstrap",
    "topics",
    "path",
    "checkpoint",
    "pipeline",
    "groupName",
    "startFrom",
    "maxRowsPerTrigger",
    "config",
)
_CONFIG: Final = (
    "landing",
    "format",
    "trigger",
    "triggerSeconds",
    "onDataLoss",
    "splitBytes",
    "progressSeconds",
    "path",
    "s3Endpoint",
    "s3Region",
    "s3CredentialsFile",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """The settings of one run of the application."""

    bootstrap: str
    topics: tuple[str, ...]
    path: Path
    checkpoint: str
    pipeline: str | None = None
    epoch: int = 0
    group: str | None = None
    from_latest: bool = False
    rows_max: int | None = None
    available_now: bool = False
    trigger_s: int = 10
    skips_lost: bool = False
    split_bytes: int | None = None
    progress_s: int = 5
    by_ranges: bool = False
    """Whether Spark gets ranges of queues in place of rows; there is no checkpoint then."""
    delta: bool = False
    bucket: LakeBucket | None = None
    """Where the path is, if it is none of a mounted volume: it begins with a bucket's name then."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """What the file says for this application alone."""

    def source_options(self) -> dict[str, str]:
        """Return the options of the source, without its beginning."""
        options = {"bootstrap": self.bootstrap, "subscribe": ",".join(self.topics)}
        options["columns"] = "core"
        if self.pipeline is not None:
            options |= {"pipeline": self.pipeline, "epoch": str(self.epoch)}
        if self.rows_max is not None:
            options["maxOffsetsPerTrigger"] = str(self.rows_max)
        if self.split_bytes is not None:
            options["splitBytes"] = str(self.split_bytes)
        if self.skips_lost:
            options["onDataLoss"] = "skip"
        return options


def load(
    path: Path, epoch: int | None, own: tuple[str, ...] = (), *, unneeded: tuple[str, ...] = ()
) -> IngestSettings:
    """Read a configuration file, with an application's `own` names. OptionError: its mistake.

    `unneeded`: of `checkpoint`, where an application has no use for it.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise OptionError(f"{path}: {error}") from error
    try:
        return _settings(dict.fromkeys(unneeded, "unused") | given, epoch, own)
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def _settings(given: Mapping[str, Any], epoch: int | None, own: tuple[str, ...]) -> IngestSettings:
    _refuse_unknown(given, _TOP, "")
    config = given.get("config", {})
    if not isinstance(config, dict):
        raise OptionError("config: must be a table")
    _refuse_unknown(config, (*_CONFIG, *own), "config.")
    by_ranges = choice_in(config, "landing", ("stream", "ranges")) == "ranges"
    delta = choice_in(config, "format", ("parquet", "delta")) == "delta"
    if delta and not by_ranges:
        raise OptionError('config.format: "delta" needs landing = "ranges"')
    path, bucket = _place(given if "path" in given else config, config, delta=delta)
    if (given.get("pipeline") is None) != (epoch is None):
        raise OptionError("pipeline and --epoch: give both, or none")
    return IngestSettings(
        bootstrap=text_in(given, "bootstrap"),
        topics=texts_in(given, "topics"),
        path=path,
        checkpoint="" if by_ranges else text_in(given, "checkpoint"),
        pipeline=text_in(given, "pipeline") if "pipeline" in given else None,
        epoch=epoch or 0,
        group=text_in(given, "groupName") if "groupName" in given else None,
        from_latest=choice_in(given, "startFrom", ("Earliest", "Latest")) == "Latest",
        rows_max=count_in(given, "maxRowsPerTrigger", None),
        available_now=choice_in(config, "trigger", ("continuous", "available-now")) != "continuous",
        trigger_s=count_in(config, "triggerSeconds", 10, SECONDS_MAX) or 0,
        skips_lost=choice_in(config, "onDataLoss", ("fail", "skip")) == "skip",
        split_bytes=count_in(config, "splitBytes", None),
        progress_s=count_in(config, "progressSeconds", 5, SECONDS_MAX) or 0,
        by_ranges=by_ranges,
        delta=delta,
        bucket=bucket,
        own={name: config[name] for name in own if name in config},
    )


def _refuse_unknown(given: Iterable[str], names: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
            raise OptionError(f"{where}{name} is unknown; {hint}")


def text_in(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise OptionError(f"{name}: must be a text that is not empty")


def texts_in(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = given.get(name)
    if isinstance(value, list) and value and all(isinstance(one, str) and one for one in value):
        return tuple(dict.fromkeys(value))
    raise OptionError(f"{name}: must be a list of names that is not empty")


def _place(
    given: Mapping[str, Any], config: Mapping[str, Any], *, delta: bool
) -> tuple[Path, LakeBucket | None]:
    path = text_in(given, "path")
    if path.startswith(SCHEME) and delta:
        return Path(path.removeprefix(SCHEME)), _bucket(config)
    if not path.startswith("/"):
        raise OptionError(
            f"path: {path!r}, must be a folder of a mounted volume, like /lake, or, with"
            f' landing = "ranges" and format = "delta", of a bucket, like {SCHEME}lake/orders'
        )
    for name in config:
        if name.startswith("s3"):
            raise OptionError(f"config.{name}: the path is no {SCHEME}…")
    return Path(path), None


def _bucket(config: Mapping[str, Any]) -> LakeBucket:
    endpoint = text_in(config, "s3Endpoint") if "s3Endpoint" in config else None
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise OptionError(f"config.s3Endpoint: {endpoint!r}, must begin with https:// or http://")
    file = text_in(config, "s3CredentialsFile") if "s3CredentialsFile" in config else None
    return LakeBucket(
        endpoint=endpoint,
        region=text_in({"s3Region": REGION} | dict(config), "s3Region"),
        credentials_file=None if file is None else Path(file),
    )


def choice_in(given: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = given.get(name, known[0])
    if value not in known:
        raise OptionError(f"{name}: {value!r}, must be {' or '.join(known)}")
    return str(value)


def count_in(
    given: Mapping[str, Any], name: str, default: int | None, most: int = 1 << 40
) -> int | None:
    value = given.get(name, default)
    text = str(value)  # an ImagoPipeline may have written the number as a text
    if value is None or (
        not isinstance(value, bool) and text.isdecimal() and 0 < int(text) <= most
    ):
        return None if value is None else int(text)
    raise OptionError(f"{name}: {value!r}, must be a whole number from 1 to {most}")
