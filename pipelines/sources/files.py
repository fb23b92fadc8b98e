"""Files that appear in a folder, on a disk or an object store: oldest first, each once.

Rule: the file's name, size and modification time stay beside its rows, and what does not fit the columns is kept in
`_rescued_data`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from backend.settings import Settings
from pipelines.sources.base import Inputs, option_texts
from pipelines.spark.failures import SpecError
from pipelines.spark.tables import parse_schema

Format = Literal["json", "csv", "parquet", "text", "binary"]
NewColumns = Literal["rescue", "fail", "evolve"]
RESCUED = "_rescued_data"
_CORRUPT = "_corrupt_record"
_METADATA = {
    "file_name": "_metadata.file_name",
    "file_size_bytes": "_metadata.file_size",
    "file_modified_at": "_metadata.file_modification_time",
}
_FIXED = {"text": "value STRING", "binary": "content BINARY"}
_BINARY = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"  # all that Spark takes for it


@dataclass(frozen=True, slots=True)
class FileSource:
    """Rows of files, with `file_name`, `file_size_bytes` and `file_modified_at` beside them.

    The modification time is taken for the time of landing. Spark skips names that start with `.` or `_`.
    """

    folder: str
    format: Format = "text"
    schema: str | None = None
    new_columns: NewColumns = "rescue"
    options: Mapping[str, str] = field(default_factory=dict)
    kind = "files"
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"files in {self.folder}"

    def prepare(self, settings: Settings) -> None:
        if "://" not in self.folder:
            (settings.home / self.folder).mkdir(parents=True, exist_ok=True)

    def read(self, inputs: Inputs) -> DataFrame:
        columns = self._columns(inputs)
        if self.format == "json":
            return self._with_metadata(self._parsed(self._load(inputs, "text", None), columns))
        if self.format == "csv":
            return self._with_metadata(self._load(inputs, "csv", StructType([*columns]).add(RESCUED, StringType())))
        found = self._load(inputs, {"binary": "binaryFile"}.get(self.format, self.format), columns)
        return self._with_metadata(found.select(*columns.names, "_metadata"))

    def _load(self, inputs: Inputs, spark_format: str, columns: StructType | None) -> DataFrame:
        csv = {"header": "true", "enforceSchema": "false", "columnNameOfCorruptRecord": RESCUED}
        own = csv if self.format == "csv" else {}
        reader = inputs.session.readStream.format(spark_format).options(**{**own, **self.options})
        if columns is not None:
            reader = reader.schema(_BINARY if self.format == "binary" else columns)
        found = reader.load(inputs.folder(self.folder))
        return found.select("*", "_metadata")

    def _with_metadata(self, rows: DataFrame) -> DataFrame:
        return rows.withColumns({name: F.col(path) for name, path in _METADATA.items()}).drop("_metadata")

    def _parsed(self, lines: DataFrame, columns: StructType) -> DataFrame:
        """Lines of JSON as columns, with what does not fit them in `_rescued_data`."""
        with_corrupt = StructType([*columns]).add(_CORRUPT, StringType())
        row = F.from_json("value", with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT})
        fields = [F.col(f"row.`{name}`").alias(name) for name in columns.names]
        whole = F.to_json(F.create_map(F.lit(_CORRUPT), F.col("value")))
        others = F.map_filter(F.from_json("value", "MAP<STRING, STRING>"), lambda name, _: ~name.isin(*columns.names))
        rescued = F.when(F.col(f"row.{_CORRUPT}").isNotNull(), whole).when(F.size("new") > 0, self._new(others))
        names = F.coalesce(F.json_object_keys("value"), F.array().cast("array<string>"))
        known = F.array(*(F.lit(name) for name in columns.names))
        parted = lines.where("value <> ''").withColumns({"row": row, "new": F.array_except(names, known)})
        return parted.select(*fields, rescued.alias(RESCUED), "_metadata")

    def _new(self, others: Column) -> Column:
        if self.new_columns == "rescue":
            return F.to_json(others)
        hint = "; the stream takes them in when it starts again" if self.new_columns == "evolve" else ""
        said = F.concat(F.lit("new columns "), F.array_join("new", ", "), F.lit(f" in files of {self.folder}{hint}"))
        return F.raise_error(said).cast("string")

    def _columns(self, inputs: Inputs) -> StructType:
        """Columns as declared, or as found in the files once and kept beside the checkpoint."""
        if said := _FIXED.get(self.format) or self.schema:
            return parse_schema(inputs.session, said)
        kept = inputs.settings.home / "checkpoints" / f"{inputs.stream}.schema.json"
        known = StructType.fromJson(json.loads(kept.read_text())) if kept.exists() else None
        if known is not None and self.new_columns != "evolve":
            return known
        found = _merged(known, self._infer(inputs, known))
        if inputs.schemas is None and found != known:
            kept.parent.mkdir(parents=True, exist_ok=True)
            _write(kept, found.json())
        return found

    def _infer(self, inputs: Inputs, known: StructType | None) -> StructType:
        try:
            header = {"header": "true", "inferSchema": "true"} if self.format == "csv" else {}
            found = inputs.session.read.format(self.format).options(**header).load(inputs.folder(self.folder)).schema
        except AnalysisException:  # what Spark says of a folder without files
            found = StructType()
        if not found.names and known is None:
            raise SpecError(
                f"there is no file in {self.folder} to find columns in", hint="give schema=…, or land a first file"
            )
        return StructType([each for each in found if each.name != _CORRUPT])


def files(
    folder: str,
    *,
    format: Format = "text",
    schema: str | None = None,
    new_columns: NewColumns = "rescue",
    max_files_per_trigger: int = 1_000,
    done: Literal["keep", "delete"] | str = "keep",
    **options: object,
) -> FileSource:
    """Rows of files that appear in a folder; a relative one lies below `$WEIR_HOME`. `schema` is DDL text.

    Without `schema`, columns are found in the first files once. `new_columns` (JSON): "rescue" keeps fields that no
    column takes in `_rescued_data`, "fail" ends the stream, "evolve" ends it and takes them in at its next start.
    `done`: read files are kept, deleted, or moved to a folder of this name. Other options are Spark's.
    """
    clean = {"keep": {}, "delete": {"cleanSource": "delete"}}.get(
        done, {"cleanSource": "archive", "sourceArchiveDir": done}
    )
    limits = {"maxFilesPerTrigger": str(max_files_per_trigger)}
    return FileSource(folder, format, schema, new_columns, {**limits, **clean, **option_texts(options)})


def _merged(known: StructType | None, found: StructType) -> StructType:
    """The known columns first, as they are, then those that are new."""
    if known is None:
        return found
    return StructType([*known, *(each for each in found if each.name not in known.names)])


def _write(path: Path, text: str) -> None:
    """In one step, so that a kill leaves no half of it."""
    half = path.with_suffix(".tmp")
    half.write_text(text)
    half.replace(path)
