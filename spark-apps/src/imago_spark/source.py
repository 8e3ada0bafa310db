"""`format("imago")`: `spark.read`, `spark.readStream`, `frame.write` and `frame.writeStream`.

Spark asks in processes of their own for names, schemas, readers and writers: each loads only what
it needs, which is most of what such a process costs us.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from imago_spark.errors import OptionError, plainly
from imago_spark.options import parse_options
from imago_spark.schema import columns_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from imago_spark.options import SourceOptions
    from imago_spark.reader import BatchReader, RefusedStream, StreamReader
    from imago_spark.sink_options import SinkOptions
    from imago_spark.writer import BatchWriter, StreamWriter

_SIMPLE_NAMES = {"long": "bigint"}


class ImagoDataSource(DataSource):
    """Topics as tables. PySpark registers it by itself, see `pyspark_imago`."""

    @classmethod
    def name(cls) -> str:
        return "imago"

    @plainly
    def schema(self) -> str:
        options = self._checked()
        return spark_schema(options.columns, options.shape)

    @plainly
    def reader(self, schema: StructType) -> BatchReader:
        from imago_spark.reader import BatchReader, FilteringReader

        options = self._fitting(schema)
        return FilteringReader(options) if options.push_filters else BatchReader(options)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> StreamReader | RefusedStream:
        from imago_spark.reader import RefusedStream, StreamReader

        try:
            return StreamReader(self._fitting(schema))
        except Exception as error:
            return RefusedStream(error)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from imago_spark.writer import BatchWriter

        options = self._sink(schema, overwrite=overwrite)
        return BatchWriter(options, options.sink_id or uuid.uuid4().hex)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        from imago_spark.writer import StreamWriter

        return StreamWriter(self._sink(schema, overwrite=overwrite))

    def _sink(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        from imago_spark.sink_options import check_columns, parse_sink_options

        if overwrite:
            raise OptionError('a topic is only appended to: write with .mode("append")')
        options = parse_sink_options(self.options)
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        check_columns(options, columns)
        return options

    def _checked(self) -> SourceOptions:
        return parse_options(self.options)

    def _fitting(self, schema: StructType) -> SourceOptions:
        """Refuse a schema that the caller set to something else than ours."""
        options = self._checked()
        columns = columns_of(options.columns, options.shape)
        ours = [(name, _SIMPLE_NAMES.get(kind, kind)) for name, kind in columns]
        given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if given != ours:
            raise OptionError(
                "the schema of this source is fixed: leave .schema(…) out and select what you need"
            )
        return options
