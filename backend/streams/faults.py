"""The faults that end a stream or keep it from going on: how each is recognised, its cause and its remedy, in words.

Rule: said here and nowhere else: preflight, pages, commands and docs/streams.md take their words from this table.
A check of a preflight that finds one is made of it, so that its remedy is this one.
Error classes are Spark 4.2's and Delta 4.4's; where Spark raises a plain Java error, its message is what tells.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from backend.stream_model.stream import StreamFailure


class Outcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """`detail` is the evidence; `remedy` what helps, empty where nothing is to be done."""

    name: str
    outcome: Outcome
    detail: str
    remedy: str = ""

    @property
    def ok(self) -> bool | None:
        """None: not known."""
        return None if self.outcome is Outcome.UNKNOWN else self.outcome is not Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Preflight:
    name: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        return self.of(Outcome.FAILED)

    def of(self, outcome: Outcome) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is outcome)


@dataclass(frozen=True, slots=True)
class Fault:
    """`check`: the preflight check that sees it before the start, "" where none can. `classes`: how Spark's error
    class begins; `words`: what its message holds. `shown`: what to look for, where that is no error of Spark.
    `is_hosts_own`: another host may run the stream as it is. `recurs`: every start meets it anew, so none is tried."""

    name: str
    cause: str
    remedy: str
    check: str = ""
    classes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    shown: str = ""
    is_hosts_own: bool = False
    recurs: bool = False

    def explains(self, failure: StreamFailure) -> bool:
        return failure.error_class.startswith(self.classes or ("\0",)) or any(
            word in failure.message for word in self.words
        )

    def found(self, detail: str, *, of: str = "", outcome: Outcome = Outcome.FAILED) -> Check:
        """The check that sees it; `of`: the source that it is of."""
        return Check(f"{self.check} of {of}" if of else self.check, outcome, detail, self.remedy)


# What a preflight looks at.
CHECKPOINT = "checkpoint"
REPLAY = "last batch"
DEFINITION = "definition"
OWNER = "owner"
OTHERS = "other streams"
SINK = "sink"
TABLES = "tables as declared"
ROOM = "room for state"
# The same for each source; followed by "of" and its name.
TABLE_ID = "table id"
START_VERSION = "start version"
UNREAD_FILES = "unread files"
SCHEMA = "schema"
APPENDS = "changed rows"
RECORDS = "records"
READABLE = "access"

# How Delta names a commit that lost to another one, from Scala and from Python.
CONFLICTS = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "Concurrent",
    "MetadataChanged",
    "ProtocolChanged",
)

RESET = "Reset it: `weir reset NAME --level full`"
ELSE_RESET = "Else reset it: `weir reset NAME --level full`"
RESTORE = "Restore the checkpoint from its backup"

SECOND_START = Fault(
    "A second start on the same checkpoint",
    "Another query of the same Spark application already runs with this checkpoint.",
    "Stop the other stream. Give each stream a checkpoint of its own.",
    OTHERS,
    ("CONCURRENT_QUERY",),
    ("as another query with same id is already active",),
)
OTHER_DRIVER = Fault(
    "Another driver on the same checkpoint",
    "Another Spark application wrote the next batch into this checkpoint.",
    "Stop it there, then restart the stream. One checkpoint belongs to one stream.",
    OWNER,
    ("CONCURRENT_STREAM_LOG_UPDATE",),
)
OFFSETS_DAMAGED = Fault(
    "The last files of the checkpoint are empty or cut off",
    "The driver or its disk failed while it wrote the offsets of a batch, or its commit.",
    "Offsets of a batch that has no commit and is not in the sink: delete this one file, and Spark plans the batch "
    "anew. Else restore the checkpoint from its backup.",
    CHECKPOINT,
    ("MALFORMED_LOG_FILE", "JsonEOFException"),
    ("Incomplete log file", " doesn't exist"),
)
METADATA_GARBAGE = Fault(
    "The checkpoint's metadata is garbage",
    "The file that holds the query's id is no JSON any more.",
    f'{RESTORE}, or write {{"id":"…"}} with the query id that the stream had.',
    CHECKPOINT,
    ("JsonParseException", "JsonEOFException", "MismatchedInputException", "MappingException"),
)
METADATA_MISSING = Fault(
    "The checkpoint's metadata is missing",
    "The file that holds the query's id is gone. With a new id, the sink would take every batch for a new one.",
    f'{RESTORE}, or write {{"id":"…"}} with the query id that the stream had.',
    CHECKPOINT,
    ("STREAMING_CHECKPOINT_MISSING_METADATA_FILE",),
)
COMMITS_GONE = Fault(
    "The commits folder is gone",
    "Spark no longer knows that the last batch ended.",
    "Nothing, if the sink skips replayed batches, as Weir's do. Else restore the folder first.",
    REPLAY,
    shown="Spark starts without a word, and runs the last batch again",
)
OFFSETS_MISSING = Fault(
    "The last offsets file is missing, its commit is there",
    "Spark plans a batch anew that ended already, and then finds its commit.",
    f"Restore the missing file from the backup. {ELSE_RESET}.",
    CHECKPOINT,
    ("CONCURRENT_STREAM_LOG_UPDATE",),
)
LOG_CLEANED = Fault(
    "The source's log was cleaned beyond the position",
    "Log retention deleted commits that the stream had not read. Their rows are still in the table.",
    f"{RESET}. For the next time, raise delta.logRetentionDuration on the source.",
    START_VERSION,
    ("DELTA_MISSING_FILES_UNEXPECTED_VERSION", "DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_LOG_FILE_NOT_FOUND"),
    ("but the earliest available version",),
)
FILE_VACUUMED = Fault(
    "An unread data file was vacuumed",
    "VACUUM deleted files that later commits had replaced, before the stream read them.",
    f"Restore the files from a backup. {ELSE_RESET}. For the next time, raise "
    "delta.deletedFileRetentionDuration on the source.",
    UNREAD_FILES,
    ("DELTA_FILE_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST", "FileNotFoundException"),
)
SCHEMA_CHANGED = Fault(
    "The source's schema changed",
    "A commit that the stream has yet to read changes the columns of its source.",
    "Columns were added: restart the stream. Columns were renamed, dropped or got another type: change its function. "
    f"{RESET}.",
    SCHEMA,
    ("DELTA_SCHEMA_CHANGED", "DELTA_STREAMING_INCOMPATIBLE_SCHEMA", "DELTA_STREAMING_CANNOT_CONTINUE"),
)
SOURCE_RECREATED = Fault(
    "The source table was re-created",
    "A table with another id lies where the stream's source was. Its versions count from 0 again.",
    f"{RESET}. To go on instead, put the old table back.",
    TABLE_ID,
    ("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",),
)
SINK_LEASED = Fault(
    "The sink is another host's",
    "Another host holds the lease of a stream that writes the same table.",
    "Stop that stream there first, or leave the table to it.",
    OTHERS,
    shown="`stream_refused` in logs/host.log, with the owner",
)
TWELVE = (
    *(SECOND_START, OTHER_DRIVER, OFFSETS_DAMAGED, METADATA_GARBAGE, METADATA_MISSING, COMMITS_GONE),
    *(OFFSETS_MISSING, LOG_CLEANED, FILE_VACUUMED, SCHEMA_CHANGED, SOURCE_RECREATED, SINK_LEASED),
)

ROWS_CHANGED = Fault(
    "The source changed rows",
    "The stream reads only appended rows, and the next commits rewrite files: they update, merge, overwrite or "
    "delete some of their rows.",
    "Read the change feed to take such commits in, or set skipChangeCommits on the source to pass over them. With "
    "ignoreChanges the rewritten files are read whole: rows come twice, unless the sink is an upsert. Then start the "
    "stream.",
    APPENDS,
    ("DELTA_SOURCE_TABLE_IGNORE_CHANGES",),
)
ROWS_DELETED = Fault(
    "The source deleted whole files of rows",
    "The stream reads only appended rows, and one of the next commits only removes files. It deletes partitions, or "
    "every row of a file.",
    "Read the change feed to delete the rows downstream as well. Or set ignoreDeletes on the source to skip such "
    "commits: the stream's table then keeps the rows. Then start the stream.",
    APPENDS,
    ("DELTA_SOURCE_IGNORE_DELETE",),
)
STATE_LOST = Fault(
    "The state is gone or damaged",
    "Files of the stream's state are missing: keys that it has seen, aggregates, rows that wait for a join. A backup "
    "left them out, or somebody deleted them.",
    f"Restore the whole checkpoint, state and all, from one backup. {ELSE_RESET}.",
    CHECKPOINT,
    (
        *("STREAMING_STATEFUL_OPERATOR_MISSING_STATE", "CANNOT_LOAD_STATE_STORE", "STATE_STORE_ROW_CHECKSUM"),
        *("STATE_STORE_BASE_CHECKPOINT", "STATE_STORE_CHECKPOINT_LOCATION"),
    ),
)
STATE_CHANGED = Fault(
    "The state has another shape",
    "The stream's function was changed: it groups, joins or remembers other columns, or another number of times, than "
    "its checkpoint does. Or a setting of the state was changed.",
    f"Undo the change. {ELSE_RESET}.",
    classes=("STATE_STORE_", "STREAMING_STATEFUL_OPERATOR_NOT_MATCH"),
)
CONFLICT = Fault(
    "Another writer changed the same files",
    "A DELETE, UPDATE, MERGE or OPTIMIZE by another writer committed while the batch ran. It touched files that the "
    "batch had read, so nothing was written.",
    "Restart the stream: the batch runs again. Keep such statements to hours in which the stream is stopped, or to "
    "partitions that it does not change.",
    classes=CONFLICTS,
)
RECORDS_LOST = Fault(
    "Unread records of a topic are gone",
    "The topic's retention deleted records that the stream had not read, or the topic was re-created.",
    f"{RESET}. Or set failOnDataLoss=false to go on without them. For the next time, raise retention.ms.",
    RECORDS,
    ("KAFKA_DATA_LOSS",),
)
OLD_CHECKPOINT = Fault(
    "The checkpoint is older than the sink",
    "An older copy of the checkpoint was put back. The sink skips the batches that it has, whatever is in them now.",
    "Put back the newest checkpoint, or restore the sink to that time.",
    SINK,
    shown="Spark goes on, and rows are missing from the sink",
)
SOURCES_CHANGED = Fault(
    "The stream's sources are others than the checkpoint's",
    "A source was added to the stream's definition, or taken from it. Spark takes no such checkpoint.",
    f"Declare the sources that it had. {ELSE_RESET}.",
    DEFINITION,
    words=("sources in the checkpoint offsets and now there are",),
)
KEYS_CHANGED = Fault(
    "The table's rows were written with other keys",
    "The sink's keys were changed. It would not find the rows that are there, and write each of them a second time.",
    f"Declare the keys that it had. To go on with the new ones, start over. {RESET}.",
    SINK,
    words=("is keyed by",),
)
FILE_UNREADABLE = Fault(
    "A file cannot be read to its end",
    "It was cut off while it was uploaded, or damaged. The batch that names it fails at each start.",
    "Put the whole file in its place, under the same name, or move it out of the folder: its batch then goes on "
    "without it. Then restart the stream. ignoreCorruptFiles=True on the source passes over what cannot be read.",
    UNREAD_FILES,
    ("FAILED_READ_FILE.NO_HINT", "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER"),
)
MISFIT = Fault(
    "A record is not what the source declares",
    'It cannot be parsed, or one of its values is none of its column\'s type, and misfit is "fail".',
    'Mend the schema, or say misfit="dead letter" to keep such records beside the table. Then restart the stream.',
    words=(" cannot be parsed: ", " cannot be taken: "),
    recurs=True,
)
CHANGE_REFUSED = Fault(
    "A change that its table cannot take",
    "Nothing tells which of two changes of a key is newer, or a change has no position or no key. It is in the planned "
    "batch, so every start meets it again.",
    "Do what the message says. For two changes at one position, let the connector number them: "
    "provide.transaction.metadata=true. For those already read, add what orders them to the sink's sequence, such as "
    "the record's offset. Or drop one by an expectation. Then restart the stream.",
    words=("nothing orders", "cannot be ordered", "Delta keeps as null", "the source truncated the table"),
    recurs=True,
)
USER_CODE = Fault(
    "The stream's function raised an error",
    "A row came that the code did not expect.",
    "Mend the code, or quarantine such rows with an expectation. Then restart the stream.",
    classes=("USER_RAISED_EXCEPTION", "PythonException"),
)
OUT_OF_MEMORY = Fault(
    "The heap is full",
    "The state or one batch outgrew the driver's or an executor's memory.",
    "Raise WEIR_SPARK__DRIVER_MEMORY, read fewer files in a batch, or shorten the watermark. Then restart the stream.",
    classes=("OutOfMemoryError",),
    words=("Java heap space", "GC overhead limit"),
)
FOLDER_ELSEWHERE = Fault(
    "The folder of files has another path",
    "The checkpoint names each file by its whole path, and this host has the folder elsewhere. The batch that was "
    "planned fails; without one, Spark takes every file for a new one, and rows come twice.",
    "Give the folder one path on all hosts, by a mount or in an object store. Or keep the stream where it began, by a "
    f"tag of that host. Then restart the stream. {ELSE_RESET}.",
    UNREAD_FILES,
    words=("Wrong basePath",),
    is_hosts_own=True,
)
DISK_FULL = Fault(
    "The host's disk is full",
    "Spark keeps shuffles, copies of the state and files on their way to an object store there.",
    "Make room, or name another folder by spark.local.dir in WEIR_SPARK__CONF. Then restart the stream.",
    ROOM,
    words=("No space left on device",),
    is_hosts_own=True,
)
OTHERS_SEEN = (
    *(ROWS_CHANGED, ROWS_DELETED, STATE_LOST, STATE_CHANGED, CONFLICT, RECORDS_LOST, OLD_CHECKPOINT, SOURCES_CHANGED),
    *(KEYS_CHANGED, FILE_UNREADABLE, MISFIT, CHANGE_REFUSED, USER_CODE, OUT_OF_MEMORY, FOLDER_ELSEWHERE, DISK_FULL),
)


def recognise(failure: StreamFailure) -> tuple[Fault, ...]:
    """What can have caused it, likeliest first; empty where nothing is known of such an error."""
    return tuple(fault for fault in chain(TWELVE, OTHERS_SEEN) if fault.explains(failure))
