"""Files that appear in a folder, on a disk or an object store: oldest first, each once.

Rule: the file's name, size and modification time stay beside its rows, and what does not fit the columns is kept in
`_rescued_data` or among the dead letters, or ends the stream. Columns that were found are noted beside the checkpoint.
Spark leaves out a Parquet file's further columns without a word: so the footers of a batch's files are read before the
batch is written.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from glob import glob
from operator import or_
from typing import Any, Literal, get_args

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import DataType, StringType, StructType

from backend.errors import LakehouseError
from backend.lake.storage.folder import is_within, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.overrides import limits_of
from backend.streams.unread import files_of_batch, has_pattern
from pipelines.jvm.failures import SpecError, passes_unless
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.sources.records import FITS, TEXT, columns_of, documents, judged, reason
from pipelines.specs.dead_letters import without_dead_letters
from pipelines.specs.ends import Inputs, Misfit, option_texts, unknown_options
from pipelines.specs.tables import parse_schema, quoted

PATTERN = re.compile(r"[*?\[\]{}\\]")
Format = Literal["json", "csv", "parquet", "text", "binary"]
NewColumns = Literal["rescue", "fail", "evolve", "ignore"]
RESCUED = "_rescued_data"
_CORRUPT = "_corrupt_record"
_METADATA = {
    "file_name": "_metadata.file_name",
    "file_size_bytes": "_metadata.file_size",
    "file_modified_at": "_metadata.file_modification_time",
}
_OPTIONS = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "fileNameOnly", "cleanSource"),
    *("sourceArchiveDir", "maxCachedFiles", "discardCachedInputRatio", "pathGlobFilter", "recursiveFileLookup"),
    *("basePath", "ignoreMissingFiles", "ignoreCorruptFiles", "ignoreInvalidPartitionPaths"),
)
_LINES = ("wholetext", "encoding", "lineSep")
_OF_FORMAT: Mapping[str, tuple[str, ...]] = {
    "text": _LINES,
    "json": (  # whose lines are read as text, and parsed here
        *(*_LINES, "multiLine", "dateFormat", "timestampFormat", "timestampNTZFormat", "timeFormat", "timeZone"),
        *("locale", "enableDateTimeParsingFallback", "allowSingleQuotes", "allowNonNumericNumbers"),
        *("primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "samplingRatio"),
    ),
    "parquet": ("mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
    "csv": (
        *("sep", "delimiter", "encoding", "charset", "quote", "escape", "charToEscapeQuoteEscaping", "comment"),
        *("header", "enforceSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue", "nanValue"),
        *("positiveInf", "negativeInf", "dateFormat", "timestampFormat", "timestampNTZFormat", "timeFormat"),
        *("enableDateTimeParsingFallback", "maxColumns", "maxCharsPerColumn", "unescapedQuoteHandling", "mode"),
        *("multiLine", "emptyValue", "locale", "lineSep", "timeZone", "inputBufferSize", "columnPruning"),
        *("preferDate", "inferSchema", "samplingRatio", "columnNameOfCorruptRecord"),
    ),
}
_LETTER = (
    *("value BINARY", "reason STRING", "file_name STRING", "file_size_bytes BIGINT"),
    "file_modified_at TIMESTAMP",
)
_EVER = "365000d"  # Spark passes over files this much older than the newest; its 7 days leave some unread for ever
_FIXED = {"text": "value STRING", "binary": "content BINARY"}
_KEYS = "_weir_keys"  # of the record
_MAP = "MAP<STRING, STRING>"
_ODD, _ODD_IN_ADDRESS = r"*[\[\]\{\}\*\?\\]*", r"\*|%(3F|5B|5C|5D|7B|7D)"
_TWICE = (
    ": beside a name with any of [ ] {{ }} * ? \\ Spark reads other files twice. A start reads each once where {} has "
    "no sub-folders: move those elsewhere"
)
_AT_NEXT_START = "; the stream takes them in when it starts again"
_BINARY = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"  # all that Spark takes for it


class NewColumnsError(LakehouseError):
    """Files of a batch have columns that the stream does not read."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`known`: of the rows. `others`: of the files beside them, for `_rescued_data`."""

    known: StructType
    others: StructType = field(default_factory=StructType)

    @property
    def all(self) -> StructType:
        return StructType([*self.known, *self.others])


class NotedColumns:
    """`<stream>.schema.json` beside the checkpoint: the columns of each folder that the stream reads."""

    def __init__(self, inputs: Inputs, folder: str) -> None:
        self._files, self._folder = CheckpointFiles(inputs.session), folder
        self._uri = f"{inputs.settings.checkpoints_uri}/{inputs.stream}.schema.json"

    def read(self) -> Columns | None:
        """None before the first start."""
        mine = self._all().get(self._folder)
        return Columns(*(StructType.fromJson(mine[part]) for part in ("known", "others"))) if mine else None

    def write(self, columns: Columns) -> None:
        mine = {"known": columns.known.jsonValue(), "others": columns.others.jsonValue()}
        self._files.write(self._uri, json.dumps({**self._all(), self._folder: mine}))

    def _all(self) -> dict[str, Any]:
        return dict(json.loads(self._files.read(self._uri))) if self._files.exists(self._uri) else {}


def new_in(columns: StructType, known: StructType) -> StructType:
    """Columns that `known` lacks; Spark's names know no case."""
    names = {column.name.lower() for column in known}
    return StructType([column for column in columns if column.name.lower() not in names])


def extended(known: StructType, columns: StructType) -> StructType:
    """The known columns first, as they are, then those that are new."""
    return StructType([*known, *new_in(columns, known)])


def _new_within(known: DataType, other: DataType, name: str = "") -> Iterator[str]:
    """Fields within columns of both that `known` lacks, at any depth of structs, arrays and maps."""
    if isinstance(known, StructType) and isinstance(other, StructType):
        present = {column.name.lower(): column.dataType for column in known}
        for column in other:
            path = f"{name}.{column.name}" if name else column.name
            old = present.get(column.name.lower())
            if old is not None:
                yield from _new_within(old, column.dataType, path)
            elif name:
                yield path
    for part in ("elementType", "keyType", "valueType"):
        if hasattr(known, part) and hasattr(other, part):
            yield from _new_within(getattr(known, part), getattr(other, part), name)


@dataclass(frozen=True, slots=True)
class FileSource:
    """Rows of files, with `file_name`, `file_size_bytes` and `file_modified_at` beside them.

    The modification time is taken for the time of landing. Spark skips names that start with `.` or `_`.
    """

    folder: str
    format: Format = "text"
    schema: str | None = None
    new_columns: NewColumns = "fail"
    options: Mapping[str, str] = field(default_factory=dict)
    misfit: Misfit = "null"
    kind = "files"
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"files in {self.folder}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if self.format not in get_args(Format):
            yield f"files: format {self.format!r} is not known", f"use {', '.join(get_args(Format))}"
        if self.new_columns not in get_args(NewColumns):
            yield f"files: new_columns={self.new_columns!r} is not known", f"use {', '.join(get_args(NewColumns))}"
        elif self.new_columns != "fail" and self.format not in ("json", "parquet"):
            message = f"files: {self.format} cannot {self.new_columns} new columns"
            yield message, "leave new_columns out" + "; such a file ends the stream" * (self.format == "csv")
        if self.misfit not in get_args(Misfit):
            yield f"files: misfit={self.misfit!r} is not known", f"use {', '.join(get_args(Misfit))}"
        if self.misfit == "dead letter" and self.format not in ("json", "csv"):
            yield f"files: {self.format} has no dead letters", "leave misfit out: a file of other types ends the stream"
        if self.schema and (only := _FIXED.get(self.format)):
            yield f"files: {self.format} has one column, {only}", "leave schema out"
        known = (*_OPTIONS, *_OF_FORMAT.get(self.format, ()))
        yield from unknown_options(f"files of {self.format}", self.options, known)

    @property
    def letters(self) -> tuple[str, ...]:
        return _LETTER if self.misfit == "dead letter" else ()

    def prepare(self, settings: Settings) -> None:
        folder = settings.home / self.folder
        if "://" not in self.folder and not glob(str(folder)):  # noqa: PTH207 (any part may be a pattern)
            folder.mkdir(parents=True, exist_ok=True)

    def read(self, inputs: Inputs) -> DataFrame:
        columns = self._columns(inputs)
        if taken := [name for name in columns.all.names if name.lower() in (*_METADATA, RESCUED)]:
            hint = "it is added to the rows: declare a schema without it"
            raise SpecError(f"files: {', '.join(taken)} in files of {self.folder}", hint=hint)
        if self.format == "json":
            rows = self._parsed(self._load(inputs, "text", None), columns.known)
        elif self.format == "csv":
            rows = self._load(inputs, "csv", StructType([*columns.known]).add(RESCUED, StringType()))
            nulls = (F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name in columns.known.names)
            why = F.concat(F.lit("does not fit the columns; without value: "), F.concat_ws(", ", *nulls))
            rows = self._sorted_out(rows, F.col(RESCUED).isNull(), F.col(RESCUED), why)
        else:
            rows = self._load(inputs, {"binary": "binaryFile"}.get(self.format, self.format), columns.all)
            rescued = list[Column]()
            if self.format == "parquet" and self.new_columns != "ignore":
                inputs.checks.append(partial(self._refuse_new, inputs, columns))
                if self.new_columns == "rescue":
                    others = [F.col(quoted(name)) for name in columns.others.names]
                    has_others = reduce(or_, (value.isNotNull() for value in others), F.lit(False))
                    texts = F.to_json(F.struct(*others)) if others else F.lit(None).cast("string")
                    rescued = [F.when(has_others, texts).alias(RESCUED)]
            rows = rows.select(*map(quoted, columns.known.names), *rescued, "_metadata")
        return rows.withColumns({name: _of_file(name) for name in _METADATA}).drop("_metadata")

    def _refuse_new(self, inputs: Inputs, columns: Columns, batch_id: int) -> None:
        """Raises `NewColumnsError` where Parquet files of this batch have columns that are not read, and notes those
        down that may be taken in: a field within a column may not."""
        settings, folder = inputs.settings, inputs.folder(self.folder)
        checkpoint = declared_folder(settings, f"{settings.checkpoints_uri}/{inputs.stream}")
        plain = normal_uri(PATTERN.split(folder)[0] if has_pattern(folder) else folder)
        below = str.startswith if has_pattern(folder) else is_within
        new, paths = StructType(), [path for path in files_of_batch(checkpoint, batch_id) if below(path, plain)]
        for schema in self._schemas(inputs.session, paths):
            if within := list(_new_within(columns.all, schema)):
                raise NewColumnsError(
                    f"new fields {', '.join(within)} in files of {self.folder}: declare them, for a field within a "
                    "column can be taken in no other way"
                )
            new = extended(new, new_in(schema, columns.all))
        if not new.names:
            return
        hint, notes = "", NotedColumns(inputs, self.folder)
        if self.new_columns == "evolve":
            notes.write(Columns(extended(columns.known, new), columns.others))
            hint = _AT_NEXT_START
        if self.new_columns == "rescue":
            notes.write(Columns(columns.known, extended(columns.others, new)))
            hint = f"; the stream keeps them in {RESCUED} when it starts again"
        raise NewColumnsError(f"new columns {', '.join(new.names)} in files of {self.folder}{hint}")

    def _schemas(self, session: SparkSession, paths: Sequence[str]) -> list[StructType]:
        """Columns of all files together; of as few parts as may be where a column's types differ between files."""
        if not paths:
            return []
        files = [PATTERN.sub(r"\\\g<0>", spark_uri(path)) for path in paths]  # Spark takes them for patterns
        try:
            return [session.read.options(**{**self.options, "mergeSchema": "true"}).parquet(*files).schema]
        except Py4JJavaError:  # for differing types alone if there are several files
            if len(paths) == 1:
                raise
            half = len(paths) // 2
            return [*self._schemas(session, paths[:half]), *self._schemas(session, paths[half:])]

    def _load(self, inputs: Inputs, spark_format: str, columns: StructType | None) -> DataFrame:
        csv = {"header": "true", "enforceSchema": "false", "columnNameOfCorruptRecord": RESCUED}
        csv |= {"columnPruning": "false"}  # else the header is checked for the columns alone that somebody reads
        own = {"csv": csv, "json": {"wholetext": self.options.get("multiLine", "false")}}.get(self.format, {})
        limits = inputs.limits(self)
        displaced = limits_of(self.kind, self.options) if limits else {}  # Spark takes one
        declared = {key: value for key, value in self.options.items() if key not in displaced}
        options = {**own, "maxFileAge": _EVER, **declared, **limits}
        reader = inputs.session.readStream.format(spark_format).options(**options)
        if columns is not None:
            reader = reader.schema(_BINARY if self.format == "binary" else columns)
        return self._each_once(inputs, reader)

    def _each_once(self, inputs: Inputs, reader: DataStreamReader) -> DataFrame:
        """Beside a name with signs of a pattern Spark 4.2 reads the other files of a batch twice (SPARK-58518), unless
        sub-folders are read too: that is asked for where there are none."""
        place, system = self._place(inputs), inputs.session._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        odd, below = system.Path(f"{place}/{_ODD}"), system.Path(f"{place}/[^_.]*/*")
        files = odd.getFileSystem(inputs.session._jsparkSession.sessionState().newHadoopConf())
        asks = not {"recursiveFileLookup", "basePath"} & self.options.keys()
        asks = asks and bool(files.globStatus(odd)) and not files.globStatus(below)
        reader = reader.option("recursiveFileLookup", "true") if asks else reader
        rows = reader.load(place).select("*", "_metadata")
        if self.options.get("recursiveFileLookup") == "true":
            return rows
        path = F.parse_url("_metadata.file_path", F.lit("PATH"))
        is_below = F.size(F.split(path, "/")) > odd.depth() + 1
        refused = is_below if asks else F.col("_metadata.file_name").rlike(_ODD_IN_ADDRESS) & ~is_below
        why = F.concat(F.url_decode(path), F.lit(_TWICE.format(self.folder)))
        return rows.where(passes_unless(refused, why))

    def _place(self, inputs: Inputs) -> str:
        """The folder as Spark is told it, which takes `[` for the beginning of a pattern."""
        folder = inputs.folder(self.folder)
        return folder if has_pattern(folder) else PATTERN.sub(r"\\\g<0>", folder)

    def _sorted_out(self, rows: DataFrame, fits: Column, text: Column, why: Column) -> DataFrame:
        """The rows without those that are dead letters, or end the stream."""
        if self.misfit == "dead letter":
            own = (_of_file(name).alias(name) for name in _METADATA)
            letter = F.struct(text.cast("binary").alias("value"), why.alias("reason"), *own)
            return without_dead_letters(rows, F.when(~fits, letter), spread_by=quoted(rows.columns[0]))
        if self.misfit == "fail":
            record = F.concat(F.lit("a record of "), _of_file("file_name"))
            why = F.concat(record, F.lit(" cannot be parsed: "), why, F.lit(": "), F.left(text, F.lit(200)))
            return rows.where(passes_unless(~fits, why))
        return rows

    def _parsed(self, lines: DataFrame, columns: StructType) -> DataFrame:
        """Objects in lines of JSON, or in whole files of it, as columns; what does not fit is in `_rescued_data`."""
        options = dict(self.options)
        encoding = options.pop("encoding", "")
        text = F.decode(F.col("value").cast("binary"), encoding) if encoding else F.col("value")
        text = F.ltrim(text, F.lit("\ufeff"))  # a mark of its encoding
        alone = lines.select(F.explode(documents(text)).alias(TEXT), "_metadata").where(F.col(TEXT).rlike(r"\S"))
        texts = self._sorted_out(judged(alone, columns, options), F.col(FITS), F.col(TEXT), reason(columns))
        objects = list(_objects(columns))
        texts = texts.withColumn(_KEYS, F.json_object_keys(TEXT))
        texts = texts.withColumn("new", F.concat(*(new for new, _ in objects)))
        has_new = F.col(FITS) & (F.size("new") > 0)
        is_told = F.col(FITS) & F.col(_KEYS).isNotNull()  # not those of NaN, which is no JSON
        rescued = F.when(~is_told, F.to_json(F.create_map(F.lit(_CORRUPT), F.make_valid_utf8(TEXT))))
        if self.new_columns == "rescue":
            rescued = rescued.when(has_new, F.to_json(F.map_concat(*(others for _, others in objects))))
        elif self.new_columns != "ignore":  # a filter, since Spark prunes a column that nobody reads
            hint = _AT_NEXT_START if self.new_columns == "evolve" else ""
            if hint and len(objects) > 1:
                hint += ", but for fields within a column: declare those"
            names, hint = F.array_join("new", ", "), f" in files of {self.folder}{hint}"
            texts = texts.where(passes_unless(has_new, F.concat(F.lit("new columns "), names, F.lit(hint))))
        return texts.select(*columns_of(columns), rescued.alias(RESCUED), "_metadata")

    def _columns(self, inputs: Inputs) -> Columns:
        """Columns as declared, or as inferred from the files once and noted beside the checkpoint."""
        if only := _FIXED.get(self.format):
            return Columns(parse_schema(inputs.session, only))
        declared = parse_schema(inputs.session, self.schema) if self.schema else None
        rescues_columns = self.format == "parquet" and self.new_columns == "rescue"  # by name, beyond those known
        if declared is not None and self.new_columns != "evolve" and not rescues_columns:
            return Columns(declared)
        notes = NotedColumns(inputs, self.folder)
        seen = was = notes.read()
        if seen is None or (self.new_columns == "evolve" and self.format == "json"):  # batches of Parquet tell
            inferred = self._infer(inputs, may_be_empty=bool(seen or declared))
            seen = Columns(extended(seen.all if seen else StructType(), inferred))
        known = seen.known if declared is None else declared
        if self.new_columns == "evolve":
            columns = Columns(extended(known, seen.all))
        else:
            columns = Columns(known, new_in(seen.all, known) if rescues_columns else StructType())
        if inputs.schemas is None and columns != was:
            notes.write(columns)
        return columns

    def _infer(self, inputs: Inputs, *, may_be_empty: bool) -> StructType:
        options = {"csv": {"header": "true", "inferSchema": "true"}, "parquet": {"mergeSchema": "true"}}
        try:
            reader = inputs.session.read.format(self.format).options(**{**options.get(self.format, {}), **self.options})
            columns = reader.load(self._place(inputs)).schema
        except AnalysisException:  # what Spark says of a folder without files
            columns = StructType()
        if not columns.names and not may_be_empty:
            raise SpecError(
                f"there is no file in {self.folder} to find columns in", hint="give schema=…, or land a first file"
            )
        return StructType([column for column in columns if column.name != _CORRUPT])


def files(
    folder: str,
    *,
    format: Format = "text",
    schema: str | None = None,
    new_columns: NewColumns | None = None,
    max_files_per_trigger: int = 1_000,
    done: Literal["keep", "delete"] | str = "keep",
    misfit: Misfit = "null",
    **options: object,
) -> FileSource:
    """Rows of files that appear in a folder; a relative one lies below `$WEIR_HOME`. `schema` is DDL text.

    Without `schema`, columns are found in the first files once. `new_columns`: what becomes of columns that no column
    takes. "rescue" (for JSON and Parquet, default for JSON) keeps them in `_rescued_data`, "fail" (default for
    the others) ends the stream, "evolve" ends it and takes them in at its next start, "ignore" leaves them out.
    `done`: read files are kept, deleted, or moved to a folder of this name. `misfit`: what becomes of a record of JSON
    or CSV that does not fit the columns. "null" keeps it whole in `_rescued_data`, "dead letter" in
    `<name>_dead_letters`, "fail" ends the stream. Other options are Spark's.
    """
    clean = {"keep": {}, "delete": {"cleanSource": "delete"}}.get(
        done, {"cleanSource": "archive", "sourceArchiveDir": done}
    )
    limits = {"maxFilesPerTrigger": str(max_files_per_trigger)}
    new: NewColumns = new_columns or ("rescue" if format == "json" else "fail")
    return FileSource(folder, format, schema, new, {**limits, **clean, **option_texts(options)}, misfit)


def _of_file(name: str) -> Column:
    """The name itself, which Spark gives as an address has it: `a%20b`."""
    value = F.col(_METADATA[name])
    return F.url_decode(F.replace(value, F.lit("+"), F.lit("%2B"))) if name == "file_name" else value


def _objects(columns: StructType, path: str = "$", prefix: str = "") -> Iterator[tuple[Column, Column]]:
    """Of the record, and of each object in it that is a column (not of those in lists): the names of its fields that
    `columns` lack, and those fields with their values, as a map of text. `prefix` is what they are below."""
    text = F.get_json_object(TEXT, path) if prefix else F.col(TEXT)
    names = F.coalesce(F.json_object_keys(text) if prefix else F.col(_KEYS), F.array().cast("array<string>"))
    new = F.array_except(names, F.array(*map(F.lit, columns.names)).cast("array<string>"))
    others = F.map_filter(F.from_json(text, _MAP), lambda name, _: ~name.isin(*columns.names))
    if prefix:
        new = F.transform(new, lambda name: F.concat(F.lit(prefix), name))
        others = F.transform_keys(others, lambda name, _: F.concat(F.lit(prefix), name))
    yield new, F.coalesce(others, F.create_map().cast(_MAP))
    for column in columns:
        if isinstance(column.dataType, StructType) and "'" not in column.name:
            yield from _objects(column.dataType, f"{path}['{column.name}']", f"{prefix}{column.name}.")
