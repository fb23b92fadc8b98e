"""A version of a table copied by Spark in one commit: the copy is there whole, or not at all.

Rule: proven from both logs; the rows of a deep copy are read again and compared.
"""

from pyspark.sql import SparkSession

from backend.errors import TableNotFoundError
from backend.format import things
from backend.lake.lake import Lake
from backend.lake.model import Commit, TableRef
from backend.maintenance.alter import OF_ENGINES
from backend.maintenance.model import ActResult, Clone, Proof
from pipelines.jobs.alter import literal
from pipelines.jobs.repair import table_rows
from pipelines.jobs.same_rows import rows_proof
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted


def clone_commits(lake: Lake, asked: Clone, job_id: str) -> list[Commit]:
    """That of this job in the copy's log."""
    try:
        commits = lake.history(lake.find(asked.target))
    except TableNotFoundError:
        return []
    return [commit for commit in commits if job_id in (commit.user_metadata or "")]


def clone_statement(lake: Lake, ref: TableRef, asked: Clone) -> str:
    """Spark refuses it where a table is by now."""
    source, target = (f"delta.{quoted(spark_uri(uri))}" for uri in (ref.uri, asked.target))
    version = f"VERSION AS OF {asked.version}"
    if asked.shallow:
        return f"CREATE TABLE {target} SHALLOW CLONE {source} {version}"
    metadata = lake.snapshot(ref, asked.version).metadata
    kept = {key: value for key, value in metadata.configuration.items() if not key.startswith(OF_ENGINES)}
    parts = [f"CREATE TABLE {target} USING delta"]
    if metadata.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(map(quoted, metadata.partition_columns))})")
    if metadata.description:
        parts.append(f"COMMENT {literal(metadata.description)}")
    if kept:
        parts.append(f"TBLPROPERTIES ({', '.join(f'{literal(key)} = {literal(kept[key])}' for key in kept)})")
    return " ".join([*parts, f"AS SELECT * FROM {source} {version}"])


def cloned(session: SparkSession, lake: Lake, ref: TableRef, asked: Clone) -> ActResult:
    """`version`: of the table that was copied."""
    then, copy = lake.snapshot(ref, asked.version), lake.snapshot(lake.find(asked.target), 0)
    if asked.shallow:
        theirs, ours = ((s.num_files, s.size_bytes, s.num_rows) for s in (then, copy))
        told = "{:,} files, {:,} bytes, {} rows".format(*ours)
        proof = Proof("it reads the files of the version", theirs == ours, told)
    else:
        rows = table_rows(session, asked.target, 0)
        proof = rows_proof("the rows are those of the version", rows, table_rows(session, ref.uri, asked.version))
    effect = f"v{asked.version} was copied to {asked.target}, {things(copy.num_rows, 'row')}"
    figures = {"rows": copy.num_rows, "files": copy.num_files, "bytes_written": 0 if asked.shallow else copy.size_bytes}
    return ActResult(effect, lake.latest_version(ref), figures, (proof,))
