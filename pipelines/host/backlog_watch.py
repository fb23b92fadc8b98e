"""What waits for each stream of this host, looked at here and kept in the store, so that no page has to look.

Rule: a thread of its own that works a quarter of the time at most; a stream that another host owns is that host's.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from itertools import islice
from time import monotonic

from backend.lake.lake import Lake
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.overrides import with_overrides
from backend.stream_model.stream import StreamDeclaration
from backend.streams.backlog import BacklogReader
from backend.streams.status import RECENT
from pipelines.host.rounds import Rounds

EVERY_S = 5.0
AT_ONCE = 20  # streams, in one statement each way
REST = 3  # times what a piece took


class BacklogWatch:
    """`owned`: the names of the streams that this host owns now."""

    def __init__(
        self,
        settings: Settings,
        lake: Lake,
        store: ControlStore,
        declared: Sequence[StreamDeclaration],
        owned: Callable[[], Collection[str]],
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._owned, self._clock = store, owned, clock
        self._declared = {declaration.name: declaration for declaration in declared}
        self._backlogs = BacklogReader(settings, lake, keep_s=0)
        self.rounds = Rounds("backlog-watch", self.look, every_s=EVERY_S, failed="backlogs_not_kept")

    def look(self) -> None:
        """One round over the streams of this host; raises `StoreError`."""
        names = iter(sorted(self._owned()))
        while piece := list(islice(names, AT_ONCE)):
            began = monotonic()
            self._look(piece)
            if self.rounds.pause(REST * (monotonic() - began)):
                return

    def _look(self, names: Collection[str]) -> None:
        desired, topics = self._store.desired(), self._store.topic_ends()
        recent = self._store.recent(names, limit=RECENT, raw=True)
        backlogs = {}
        for name in names:
            overrides = desired[name].overrides if name in desired else {}
            declared = with_overrides(self._declared[name], overrides)
            backlogs[name] = self._backlogs.read(
                declared, recent.get(name, ()), topics.get(name, ()), now=self._clock()
            )
        self._store.note_backlogs(backlogs)
