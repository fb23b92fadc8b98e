"""Files that appear in a folder, oldest first, each once.

Rule: the file's name, size and modification time stay beside its rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backend.settings import Settings
from pipelines.sources.base import Inputs


@dataclass(frozen=True, slots=True)
class FileSource:
    """Rows of files, with `file_name`, `file_size_bytes` and `file_modified_at` beside them.

    The modification time is taken for the time of landing. Spark skips names that start with `.` or `_`.
    """

    folder: str
    format: str = "text"
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    kind = "files"
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"files in {self.folder}"

    def prepare(self, settings: Settings) -> None:
        if "://" not in self.folder:
            (settings.home / self.folder).mkdir(parents=True, exist_ok=True)

    def read(self, inputs: Inputs) -> DataFrame:
        reader = inputs.session.readStream.format(self.format).options(**self.options)
        if self.schema:
            reader = reader.schema(self.schema)
        return reader.load(inputs.folder(self.folder)).select(
            "*",
            F.col("_metadata.file_name").alias("file_name"),
            F.col("_metadata.file_size").alias("file_size_bytes"),
            F.col("_metadata.file_modification_time").alias("file_modified_at"),
        )


def files(
    folder: str, *, format: str = "text", schema: str | None = None, max_files_per_trigger: int = 1_000
) -> FileSource:
    """Rows of files that appear in a folder; a relative one lies below `$WEIR_HOME`. `schema` is DDL text."""
    return FileSource(folder, format, schema, {"maxFilesPerTrigger": str(max_files_per_trigger)})
