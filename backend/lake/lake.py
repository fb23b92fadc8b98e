"""The one door to the lake for pages, CLI, diff and health.

Rule: thread-safe, never writes, raises only `LakehouseError`s; what is fixed by a version is read once.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from backend.access import Actor
from backend.caches import DiskCache, Lru
from backend.errors import DiffError, LakehouseError, StorageError, TableNotFoundError, UnsupportedFeatureError
from backend.lake import catalog
from backend.lake.cards import Cards, Table
from backend.lake.log.actions import Checksum
from backend.lake.log.listing import LOG, LogListing
from backend.lake.log.log import TableLog
from backend.lake.model import CardColumn, Commit, Hidden, Metadata, Snapshot, TableCard, TableRef, Timeline
from backend.lake.storage.folder import is_remote, normal_uri
from backend.lake.storage.storage import Storage
from backend.lake.table.properties import ownership
from backend.lake.table.restricted import hidden_columns, hidden_values, masked, refused
from backend.lake.table.schema import SchemaColumn, columns
from backend.settings import Settings

# Readers of files and rows are imported by the methods that use them: pyarrow, numpy and deltalake take 0.4 s to load,
# and most commands ask for commits alone.
if TYPE_CHECKING:
    import pyarrow as pa

    from backend.lake.files.file_difference import FileDifference
    from backend.lake.files.file_sizes import TargetSize
    from backend.lake.files.footer import FileFooter
    from backend.lake.history.change_feed import Arrival, ChangeFeedSupport
    from backend.lake.history.timeline import TableTimeline
    from backend.lake.retention.file_check import FolderFiles, LogSeen
    from backend.lake.retention.runs import FilesSeen, LogFacts
    from backend.lake.rows.filters import RowFilter
    from backend.lake.rows.log_subset import LocalFiles
    from backend.lake.rows.rows import RowPage, RowQuery

MOST_LOGS = 256
MOST_FACTS = 32
MOST_ARRIVING_FILES = 400_000
MOST_VIEWS, HIDDEN_FOR_S = 64, 2


class Lake:
    """Every read of the lake. One instance serves all viewers. `named`: the versions of a table that people named."""

    def __init__(self, settings: Settings, named: Callable[[TableRef], Mapping[str, int]] = lambda _: {}) -> None:
        self._settings, self._named = settings, named
        self._storage = Storage(settings)
        self._logs: Lru[TableRef, TableLog] = Lru(MOST_LOGS)
        self._timelines: Lru[TableRef, TableTimeline] = Lru(MOST_LOGS)
        self._cards = Cards(self._storage, self, self._make_card, settings)
        self._facts: Lru[str, tuple[tuple[int, LogListing], LogFacts]] = Lru(MOST_FACTS)
        self._arrivals: Lru[tuple[str, int, bool, int], Arrival] = Lru(MOST_ARRIVING_FILES, lambda each: 1 + each.files)
        self._listings: list[tuple[float, catalog.Listing]] = []  # the last one, with the time of the look
        self._hidden_at: Lru[tuple[str, frozenset[str], int], Hidden | None] = Lru(MOST_LOGS)
        self._views: Lru[frozenset[str], Lake] = Lru(MOST_VIEWS)
        self.opened: frozenset[str] | None = None  # tables whose restricted values are shown; None: every table's

    def seen_by(self, *people: Actor) -> Lake:
        """The lake with the values alone that each of these may see, the same one for all who may see the same."""
        views = [frozenset(table for grant in each.own_grants for table in grant.on) for each in people if each.grants]
        if all(each.grants is None for each in people):
            return self
        lake = copy.copy(self)  # what it reads and keeps is everybody's
        lake.opened = names = frozenset.intersection(*views) if views else frozenset()
        return self._views.get_or_make(names, lambda: lake)

    def hidden(self, ref: TableRef, *states: Metadata) -> Hidden | None:
        """What whoever sees this lake may not see of a table as it is now, and as it was in other states."""
        if self.opened is None or ref.name in self.opened:
            return None
        auth = self._settings.auth
        holders = dict.fromkeys(grant.holder for grant in auth.grants if grant.names(ref.name))
        who = f"{', '.join(holders) or 'nobody'} may see them by name"
        try:
            latest = self._log(ref).snapshot(None).metadata
        except LakehouseError:  # whether it is restricted is not known
            return Hidden(ref.name, is_all=True, who=f"its latest version cannot be read; {who}")
        return hidden_values(ref.name, (latest, *states), auth.restricted, who)

    def hidden_at(self, uri: str) -> Hidden | None:
        """As `hidden`, of the table at an address, as it was seconds ago; all of one that is not there any more."""
        if self.opened is None:
            return None
        refs, moment = self._list(self._settings.lake.refresh_s).by_uri, int(time.monotonic() / HIDDEN_FOR_S)
        if uri not in refs:
            return Hidden(uri, is_all=True, who="it is not there")
        return self._hidden_at.get_or_make((uri, self.opened, moment), lambda: self.hidden(refs[uri]))

    @property
    def judged_rows(self) -> int:
        """Of a commit, at most, that are read to judge it."""
        return self._settings.lake.judged_rows

    def found(self) -> catalog.Listing:
        """Every table below the roots, sorted by name, and what could not be looked into."""
        return self._list(self._settings.lake.refresh_s)

    def tables(self) -> list[TableRef]:
        """Every table below the roots, sorted by name; raises `StorageError` when no root can be listed."""
        listing = self.found()
        if not listing.refs and listing.problems:
            raise StorageError(listing.problems[0].reason, hint=listing.problems[0].hint)
        return list(listing.refs)

    def find(self, name_or_uri: str) -> TableRef:
        """The table of a name (or of its end, where only one has it) or of a URI below a root."""
        if is_uri(name_or_uri):
            return self._find_uri(normal_uri(name_or_uri))
        for max_age_s in (self._settings.lake.refresh_s, 0.0):
            refs = self._list(max_age_s).refs
            named = [ref for ref in refs if ref.name == name_or_uri]
            end = f"/{name_or_uri}"
            short = named or [ref for ref in refs if ref.name.endswith(end)]
            if len(short) == 1:
                return short[0]
            if short:
                both = " or ".join(ref.name for ref in short[:3])
                raise TableNotFoundError(f"{name_or_uri!r} names several tables", hint=f"say which: {both}")
        names = {ref.name: ref.name for ref in refs} | {ref.name.rpartition("/")[2]: ref.name for ref in refs}
        near = dict.fromkeys(names[match] for match in get_close_matches(name_or_uri, list(names), n=3, cutoff=0.5))
        hint = f"did you mean {' or '.join(near)}?" if near else "the page Tables and `weir tables` list every table"
        raise TableNotFoundError(f"there is no table {name_or_uri!r}", hint=hint)

    def card(self, ref: TableRef) -> TableCard:
        """What a list shows of a table at its latest version; raises `LakehouseError`."""
        return self._cards.card(ref)

    def read_cards(self, refs: Sequence[TableRef]) -> Iterator[Table]:
        """A card for each table as it arrives; one that cannot be read yields its reason and hides no other."""
        return self._cards.read_all(refs)

    def cards(self) -> list[Table]:
        """A card or a reason for every table, in the order of their names; what could not be listed comes last."""
        listing = self.found()
        by_uri = {table.ref.uri: table for table in self.read_cards(listing.refs)}
        return [*(by_uri[ref.uri] for ref in listing.refs), *listing.problems]

    def at_one_moment(self, ref: TableRef) -> AbstractContextManager[None]:
        """What is read of a table meanwhile knows of no later commit: each question alone looks for one."""
        return self._log(ref).held()

    def latest_version(self, ref: TableRef) -> int:
        return self._log(ref).latest()

    def named_versions(self, ref: TableRef) -> Mapping[str, int]:
        """By name; raises what asking whoever knows them raises."""
        return self._named(ref)

    def versions(self, ref: TableRef) -> list[tuple[int, int]]:
        """Runs of versions that can be reconstructed, first and last, oldest first."""
        return self._log(ref).listing().spans()

    def last_checkpoint(self, ref: TableRef) -> int | None:
        """The version of the newest complete checkpoint; None when there is none."""
        return self._log(ref).last_checkpoint()

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot:
        """A table at a version, None for the latest.

        Raises `VersionNotFoundError`, `TableCorruptError`, `UnsupportedFeatureError`, `PathRefusedError` or a
        `StorageError`.
        """
        snapshot = self._log(ref).snapshot(version)
        hidden = self.hidden(ref, snapshot.metadata)
        return snapshot if hidden is None else replace(snapshot, hidden=hidden)

    def history(
        self,
        ref: TableRef,
        *,
        limit: int | None = None,
        starting_version: int | None = None,
        ending_version: int | None = None,
    ) -> list[Commit]:
        """Commits newest first, both ends included; those cleaned away are not there."""
        low = 0 if starting_version is None else max(0, starting_version)
        return self._log(ref).history(limit=limit, low=low, high=ending_version)

    def staged_versions(self, ref: TableRef) -> tuple[int, ...]:
        """Versions that lie beyond the latest in `_staged_commits`; whether they count, the table's catalog knows."""
        return self._log(ref).staged_versions()

    def version_at(self, ref: TableRef, when: datetime) -> int | None:
        """The version that held at a time, by Delta's rule (`commit_info`); None before the first one."""
        return self._log(ref).version_at(when)

    def timeline(self, ref: TableRef) -> Timeline:
        """Totals after every version of the newest unbroken run; `truncated` when it does not begin at 0."""
        from backend.lake.history.timeline import MOST_FILES, TableTimeline

        store = DiskCache(self._settings.home / "cache" / "timelines", MOST_FILES)
        make = partial(TableTimeline, self._log(ref), self._settings.health, store)
        return self._timelines.get_or_make(ref, make).read()

    def checksum(self, ref: TableRef, version: int) -> Checksum | None:
        """What the writer said of a version in its `.crc`: totals and sizes at once, not yet compared with the log."""
        return self._log(ref).checksum(version)

    def find_rows(self, snapshot: Snapshot, query: RowQuery) -> RowPage:
        """The first rows of a version that a filter lets through, with nulls for what is hidden; raises a `TableError`,
        such as `RowsRefusedError` and `DataFileMissingError`."""
        from backend.lake.rows.rows import find_rows

        names = self._nulls(snapshot, query.where)
        page = find_rows(self._storage, replace(snapshot, hidden=None), query)
        return replace(page, rows=masked(page.rows.to_reader(), names).read_all()) if names else page

    def read_files(
        self,
        snapshot: Snapshot,
        files: pa.Table | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: RowFilter | None = None,
        as_of: Snapshot | None = None,
        numbered: str | None = None,
    ) -> pa.RecordBatchReader:
        """Every row of some files (`model.FILE_COLUMNS`; None for all) of a snapshot that a filter lets through, read
        with the schema of `as_of` where given. The column `numbered`, which the table must not have, gives each row its
        file's number in `files`. Restricted columns are nulls.

        Raises `RowsRefusedError`, `DataFileMissingError` or a `TableError`, at once or while it is read.
        """
        from backend.lake.rows.rows import read_files

        names, snapshot = self._nulls(snapshot, where, as_of), replace(snapshot, hidden=None)
        rows = read_files(self._storage, snapshot, files, columns=columns, where=where, as_of=as_of, numbered=numbered)
        return masked(rows, names)

    def local_files(self, snapshot: Snapshot, files: pa.Table) -> AbstractContextManager[LocalFiles | None]:
        """Files (`DIFFERENCE_COLUMNS`) for a reader of parquet, held open, with what the log says of them; None where
        any lies on an object store, or a column is hidden. Raises what `read_files` raises, and `PathRefusedError`."""
        from backend.lake.rows.log_subset import local_files

        return nullcontext() if self._nulls(snapshot) else local_files(self._storage, snapshot, files)

    def file_difference(self, ref: TableRef, first: int, second: int) -> FileDifference:
        """The files that only one of two versions has; costs what the commits in between changed."""
        from backend.lake.files.file_difference import file_difference

        return file_difference(self._log(ref), first, second)

    def require_files(self, snapshot: Snapshot, files: pa.Table) -> None:
        """Raise `DataFileMissingError` when one of these files is gone (local tables; elsewhere reading tells)."""
        from backend.lake.history.change_feed import require_files

        require_files(self._storage, snapshot, files["path"].to_pylist())

    def has_files(self, ref: TableRef, paths: Sequence[str]) -> list[bool]:
        """Whether each file that the log names is there; raises `PathRefusedError` or `StorageError`."""
        from backend.lake.retention.file_check import FileFinder

        return FileFinder(self._storage, ref.uri).present(paths)

    def footer(self, snapshot: Snapshot, path: str) -> FileFooter:
        """What a file of the version says of itself; raises `DataFileMissingError` where it has no such file."""
        from backend.lake.files.footer import read_footer

        footer = read_footer(self._storage, snapshot, path)
        if self.hidden(snapshot.ref, snapshot.metadata) is None:  # else no bound is told
            return footer
        columns = tuple(replace(column, minimum=None, maximum=None) for column in footer.columns)
        return replace(footer, logged=replace(footer.logged, stats=None), columns=columns)

    def retention_facts(self, ref: TableRef) -> LogFacts:
        """What the log says of its versions, for `runs.judge`; read again when its files changed."""
        from backend.lake.retention.runs import read_facts

        log = self._log(ref)
        listing = log.listing()
        cached = self._facts.get(ref.uri)
        if cached is None or cached[0] != (log.generation(), listing):
            cached = (log.generation(), listing), read_facts(log)
            self._facts.put(ref.uri, cached)
        return cached[1]

    def see_files(self, ref: TableRef, version: int, *, sample: int | None) -> Iterator[FilesSeen]:
        """Look for the files of a version (at most `sample`, None for all), telling how far it is."""
        from backend.lake.retention.file_check import FileFinder, see_files

        snapshot, latest = self.snapshot(ref, version), None
        with suppress(LakehouseError):  # a broken newest commit: then every file counts as possibly removed
            latest = self.snapshot(ref)
        return see_files(FileFinder(self._storage, ref.uri), snapshot, latest, sample=sample)

    def see_log(self, ref: TableRef) -> Iterator[LogSeen]:
        """Look for every file of every version that can be reconstructed, each once, telling how far it is."""
        from backend.lake.retention.file_check import FileFinder, see_log

        return see_log(FileFinder(self._storage, ref.uri), self._log(ref), self.retention_facts(ref).spans)

    def folder_files(self, ref: TableRef, *, clone: TableRef | None = None) -> FolderFiles:
        """The files of a table's folder by what its log says of them, or that of a table which began as its clone."""
        from backend.lake.retention.file_check import FolderFiles

        return FolderFiles(self._log(clone or ref), self._storage.folder(ref.uri), self._storage.roots)

    def clones(self) -> list[TableRef]:
        """Tables that began as a shallow clone, as far as their first commit is there; looks at the head of each."""
        from backend.lake.retention.file_check import is_clone

        looks = catalog.as_they_arrive(lambda ref: (ref, is_clone(self._storage, ref.uri)), self.found().refs)
        return sorted((ref for ref, is_one in looks if is_one), key=lambda ref: ref.name)

    def target_bytes(self, snapshot: Snapshot) -> TargetSize:
        from backend.lake.files.file_sizes import target_for

        return target_for(snapshot.metadata.configuration, snapshot.size_bytes, self._settings.health)

    def cdf_support(self, ref: TableRef, from_version: int, to_version: int) -> ChangeFeedSupport:
        """Whether the change feed covers commits `from_version + 1 … to_version`, and if not from where it does."""
        from backend.lake.history.change_feed import change_feed_support

        return change_feed_support(self._log(ref), from_version, to_version)

    def changes(
        self, ref: TableRef, from_version: int, to_version: int, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Changed rows of commits `from_version + 1 … to_version`, with `_change_type`, `_commit_version` and
        `_commit_timestamp`, restricted columns as nulls; raises `RowsRefusedError`, `DiffError` where the feed does not
        cover them, `UnsupportedFeatureError` where its reader would misread a time or a name."""
        from backend.lake.rows.rows import read_changes

        support = self.cdf_support(ref, from_version, to_version)
        if not support.covered:
            raise DiffError(support.reason, hint=support.hint)
        snapshot = self.snapshot(ref, to_version)
        names = self._nulls(snapshot)
        log, versions = self._log(ref), range(from_version + 1, to_version + 1)
        times = log.committed_times(versions)
        rows = read_changes(self._storage, snapshot, log.commits(versions), times, columns=columns)
        return masked(rows, names)

    def change_counts(self, ref: TableRef, version: int) -> Mapping[str, int]:
        """Rows per change type of one commit, no row read; raises as `changes` does, and `DiffError` where only reading
        can tell."""
        from backend.lake.history.change_feed import count_changes

        return count_changes(self._storage, self._log(ref), version)

    def arrivals(self, ref: TableRef, first: int, last: int, *, feed: bool) -> list[Arrival]:
        """What each commit of a range, both ends included, brings to a stream, or to a reader of the change feed; those
        cleaned away are not there. Commits that nobody looked at before are read."""
        from backend.lake.history.change_feed import read_arrivals

        log = self._log(ref)
        of_table = ref.uri, log.generation(), feed
        cached = self._arrivals.find((*of_table, version) for version in range(first, last + 1))
        missing = [version for version in range(first, last + 1) if (*of_table, version) not in cached]
        fresh = {arrival.version: arrival for arrival in read_arrivals(log, missing, feed=feed)} if missing else {}
        self._arrivals.put_all({(*of_table, version): arrival for version, arrival in fresh.items()})
        fresh |= {key[-1]: arrival for key, arrival in cached.items()}
        return [fresh[version] for version in sorted(fresh)]

    def rest_of_commit(self, ref: TableRef, version: int, read: int, *, feed: bool) -> Arrival:
        """What is left of a commit when the first `read` of its files were read."""
        from backend.lake.history.change_feed import rest_of

        return rest_of(self._log(ref), version, read, feed=feed)

    def _nulls(self, snapshot: Snapshot, where: RowFilter | None = None, as_of: Snapshot | None = None) -> list[str]:
        """The columns that are read as nulls; raises `RowsRefusedError` where no row may be read, or the filter asks of
        a hidden column."""
        from backend.lake.rows.filters import name_sql

        read_as = (as_of or snapshot).metadata
        hidden = self.hidden(snapshot.ref, snapshot.metadata, read_as)
        closed, asked = hidden_columns(hidden, read_as), where.predicate() or "" if where else ""
        named = where.check.columns if where and where.check else ()
        if hidden and (hidden.is_all or (names := [n for n in closed if n in named or name_sql(n) in asked])):
            raise refused(hidden, () if hidden.is_all else names)
        return closed

    def _find_uri(self, uri: str) -> TableRef:
        if ref := self._list(self._settings.lake.refresh_s).by_uri.get(uri):
            return ref
        root = self._storage.root_of(uri)
        if not any(entry.name == LOG for entry in self._storage.folder(uri).list("")):
            raise TableNotFoundError(f"{uri} is not a Delta table", hint="it has no _delta_log folder")
        if ref := self._list(0.0).by_uri.get(uri):
            return ref
        name = uri.removeprefix(root).strip("/") or uri.rpartition("/")[2]
        return TableRef(uri, name, root, catalog.layer_of(name))

    def _list(self, max_age_s: float) -> catalog.Listing:
        listed = self._listings[-1] if self._listings else None
        if listed is None or time.monotonic() - listed[0] > max_age_s:
            lost = self._cards.take_lost()
            listed_before = {ref.uri for ref in listed[1].refs} - lost if listed else set()
            listed = (time.monotonic(), catalog.list_tables(self._storage, listed_before))
            self._listings[:] = [listed]
            self._cards.forget({ref.uri for ref in listed[1].refs})
        return listed[1]

    def _log(self, ref: TableRef) -> TableLog:
        def opened() -> TableLog:
            return TableLog(ref, self._storage.folder(ref.uri), self._storage.roots, self._settings.lake)

        return self._logs.get_or_make(ref, opened)

    def _make_card(self, ref: TableRef) -> TableCard:
        from backend.lake.files.file_sizes import summarize_files

        with self.at_one_moment(ref):
            snapshot = self.snapshot(ref)
            files, num_rows = summarize_files(snapshot, self._settings.health), None
            with suppress(UnsupportedFeatureError):  # statistics that are too much to read: the rows are not known
                num_rows = snapshot.num_rows
            newest = self.history(ref, starting_version=snapshot.version, ending_version=snapshot.version)
        owner = ownership(snapshot.metadata)
        fields: tuple[SchemaColumn, ...] = ()
        with suppress(LakehouseError):  # a schema that cannot be read makes no card unreadable: its page says it
            fields = columns(snapshot.metadata)
        return TableCard(
            ref=ref,
            version=snapshot.version,
            num_files=files.num_files,
            size_bytes=files.size_bytes,
            num_rows=num_rows,
            small_files=files.small_files,
            last_commit_at=snapshot.committed_at,
            last_operation=newest[0].operation if newest else None,
            owner=owner.team or owner.email or owner.slack,
            classification=owner.classification,
            files_after_merge=files.files_after_merge,
            small_partitions=files.small_partitions,
            large_files=files.large_files,
            description=snapshot.metadata.description,
            columns=tuple(CardColumn(field.path, field.type, field.comment) for field in fields),
            properties=dict(snapshot.metadata.configuration),
        )


def is_uri(text: str) -> bool:
    """Whether a person wrote an address rather than a table's name."""
    return is_remote(text) or text.lower().startswith("file:") or text.startswith(("/", "./", "../", "~"))
