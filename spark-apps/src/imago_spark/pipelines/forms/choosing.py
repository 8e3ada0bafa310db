"""Which form bodies have, by configuration, and the step that makes JSON of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import OptionError
from imago_spark.pipelines.settings import choice_in, count_in, text_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

OWN: Final = ("bodyFormat", "schemaFile", "message", "headerBytes")
JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"


@dataclass(frozen=True, slots=True)
class BodyForm:
    """How bodies become JSON; it goes to every worker."""

    kind: str = JSON
    schema: bytes = b""
    message: str = ""
    header: int = 0
    """Bytes in front of the body proper, such as the five with a registry's number."""

    def decoder(self) -> Callable[[bytes], Any]:
        """Return what decodes bodies. ValueError: the schema is none."""
        if self.kind == AVRO:
            from imago_spark.pipelines.forms import avro

            return avro.decoder(self.schema.decode())
        from imago_spark.pipelines.forms import protobuf

        return protobuf.decoder(self.schema, self.message)

    def as_json(self, body: bytes | None) -> tuple[str | None, str | None]:
        """Return a body as JSON, or why it is none."""
        from imago_spark.pipelines.forms import avro

        if body is None:
            return None, None
        try:
            return avro.as_json(self.decoder()(bytes(body[self.header :]))), None
        except ValueError as error:
            return None, f"the body is no {self.kind} of the schema: {error}"


def form_of(own: Mapping[str, Any]) -> BodyForm:
    """Return what a configuration says. OptionError: its mistake."""
    kind = choice_in(own, "bodyFormat", (JSON, AVRO, PROTOBUF))
    given = [name for name in OWN[1:] if name in own]
    if kind == JSON:
        if given:
            raise OptionError(f"config.{given[0]}: is of bodyFormat avro or protobuf")
        return BodyForm()
    path = Path(text_in(own, "schemaFile"))
    try:
        schema = path.read_bytes()
    except OSError as error:
        raise OptionError(f"config.schemaFile: {path}: {error.strerror}") from None
    message = text_in(own, "message") if kind == PROTOBUF else ""
    header = count_in(own, "headerBytes", None, 64) or 0
    found = BodyForm(kind, schema, message, header)
    try:
        found.decoder()
    except ValueError as error:
        raise OptionError(f"config.schemaFile: {path}: {error}") from None
    return found


def with_json(messages: DataFrame, form: BodyForm) -> DataFrame:
    """Add `_text`, the body as JSON, and `_why` it is none."""
    if form.kind == JSON:
        text = F.col("value").cast("string")
        return messages.withColumn("_text", text).withColumn("_why", F.lit(None).cast("string"))
    decode = F.udf(form.as_json, "text string, why string", useArrow=False)
    made = messages.withColumn("_json", decode("value"))
    return made.withColumn("_text", F.col("_json.text")).withColumn("_why", F.col("_json.why"))
