"""Which files a table's log holds now, at the price of one look.

Rule: names are listed from the newest checkpoint on, later only from the newest commit on; a local folder is probed
for the next commit. `_last_checkpoint` is a hint, never the truth. Older names are listed when they are asked for. When
the newest commit is not the one that was seen, the table was made anew (`generation` grows).
"""

import time
from datetime import datetime

import orjson

from backend.errors import ObjectMissingError, TableNotFoundError
from backend.lake.log.commits import commit_name
from backend.lake.log.listing import LOG, LogListing, read_listing, version_of
from backend.lake.storage.folder import Entry, Folder
from backend.lake.storage.paths import is_remote

RELIST_AFTER = 20  # commits found by probing; then the folder is listed again, for its newer checkpoints
HINT = f"{LOG}/_last_checkpoint"


class LogNames:
    """Not thread-safe by itself: `TableLog` holds its lock around each call."""

    def __init__(self, folder: Folder, poll_s: float) -> None:
        self._folder = folder
        self._is_remote = is_remote(folder.uri)
        self._poll_s = poll_s if self._is_remote else 0.0
        self.times: dict[int, datetime] = {}  # when commits were written, where a listing told it
        self.generation = -1
        self.held = 0  # how many want to see no news now
        self._polled_at = 0.0
        self._forget()

    def head(self) -> LogListing:
        """The newest versions now: at least what reconstructs the latest. Raises `TableNotFoundError` when there is no
        log (any more)."""
        if self._listing is None:
            self._list_head()
        elif self.held or time.monotonic() - self._polled_at < self._poll_s:
            return self._listing
        else:
            self._poll(self._listing)
        self._polled_at = time.monotonic()  # of a look alone: else somebody who asks often would never see news
        assert self._listing is not None
        return self._listing

    def whole(self) -> LogListing:
        """Every version that the log still names."""
        if self.head().complete_from or self._probed:
            self._list_whole()
        assert self._listing is not None
        return self._listing

    def for_version(self, version: int) -> LogListing:
        """A listing that reconstructs `version` if any can."""
        head = self.head()
        return head if version <= head.latest and head.segment(version) else self.whole()

    def relist(self) -> LogListing:
        """Look at all names again: something that was listed is gone."""
        self._list_whole()
        assert self._listing is not None
        return self._listing

    def _forget(self) -> None:
        self.generation += 1
        self._listing: LogListing | None = None
        self.times.clear()
        self._tag: str | None = None
        self._probed = 0
        self._polled_at = 0.0

    def _list_head(self) -> None:
        hinted = self._hint()
        if hinted:
            entries = self._folder.list_after(LOG, f"{hinted:020d}", digits_only=True)
            listing = read_listing((entry.name for entry in entries), complete_from=hinted)
            if listing.commits | listing.checkpoints.keys() and listing.segment(listing.latest):
                self._take(listing, entries)
                return
        self._list_whole()

    def _list_whole(self) -> None:
        entries = self._folder.list_after(LOG, "", digits_only=True)
        listing = read_listing(entry.name for entry in entries)
        if not listing.commits and not listing.checkpoints:
            self._forget()
            what = "its log is empty" if self._folder.list(LOG) else "there is no _delta_log"
            uri = self._folder.uri
            raise TableNotFoundError(f"{uri} is not a Delta table: {what}", hint="it may have been deleted")
        if self._listing is not None and self._tag is not None and self._tag_of(self._listing, entries) != self._tag:
            self._forget()
        self._take(listing, entries)

    def _take(self, listing: LogListing, entries: list[Entry]) -> None:
        self._listing, self._probed = listing, 0
        self._take_times(entries)
        self._tag = self._tag_of(listing, entries)

    def _take_times(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.modified_at is not None and (version := version_of(entry.name)) is not None:
                self.times[version] = entry.modified_at

    def _poll(self, listing: LogListing) -> None:
        if self._is_remote:
            self._poll_store(listing)
            return
        newest, following = self._folder.stat_many(
            [f"{LOG}/{_newest_name(listing)}", f"{LOG}/{commit_name(listing.latest + 1)}"]
        )
        if newest is None or newest.tag != self._tag:
            self._forget()
            self._list_head()
        elif following is not None:
            self._probe(listing, following)

    def _poll_store(self, listing: LogListing) -> None:
        entries = self._folder.list_after(LOG, f"{listing.latest:020d}", digits_only=True)
        if self._tag_of(listing, entries) != self._tag:
            self._forget()
            self._list_head()
        elif len(entries) > 1:
            newer = listing.merged(read_listing(entry.name for entry in entries))
            self._listing, self._tag = newer, self._tag_of(newer, entries)
            self._take_times(entries)

    def _probe(self, listing: LogListing, following: Entry) -> None:
        version, entry = listing.latest + 1, following
        while (after := self._folder.stat(f"{LOG}/{commit_name(version + 1)}")) is not None:
            version, entry = version + 1, after
        self._probed += version - listing.latest
        if self._probed > RELIST_AFTER:
            self._list_whole()
        else:
            self._listing = listing.with_commits(range(listing.latest + 1, version + 1))
            self._tag = entry.tag

    def _tag_of(self, listing: LogListing, entries: list[Entry]) -> str | None:
        """What tells the newest file of the log from another one of the same name."""
        name = _newest_name(listing)
        if self._is_remote:
            return next((entry.tag for entry in entries if entry.name == name), None)
        entry = self._folder.stat(f"{LOG}/{name}")
        return entry.tag if entry else None

    def _hint(self) -> int | None:
        try:
            hint = orjson.loads(self._folder.read(HINT))
        except (ObjectMissingError, orjson.JSONDecodeError):
            return None
        version = hint.get("version") if isinstance(hint, dict) else None
        return version if isinstance(version, int) and version > 0 else None


def _newest_name(listing: LogListing) -> str:
    """The newest file of the log: the latest commit, or a checkpoint of it where that is gone."""
    if listing.latest in listing.commits:
        return commit_name(listing.latest)
    return listing.checkpoints[listing.latest][0].files[0]
