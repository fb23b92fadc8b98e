"""States and verdicts of streams in the cells of a list: a glyph and a word, so that they are never colour alone.

Rule: pure; `app.ui.lists` colours such cells by their word.
"""

from app.ui.view.theme import state_word
from backend.format import UNKNOWN
from backend.stream_model.stream import Desired, DesiredState, StreamState
from backend.streams.verdict import StreamStatus, Verdict

GLYPHS = {
    StreamState.STOPPED: "■",
    StreamState.STARTING: "◔",
    StreamState.RUNNING: "▶",
    StreamState.STOPPING: "◑",
    StreamState.BACKOFF: "↻",
    StreamState.FAILED: "✕",
    StreamState.COMPLETED: "✓",
    StreamState.UNKNOWN: "?",
}
VERDICT_GLYPHS = {
    Verdict.FAILED: "✕",
    Verdict.UNKNOWN: "?",
    Verdict.STALLED: "▲",
    Verdict.SLOW: "▲",
    Verdict.CATCHING_UP: "»",
    Verdict.OK: "✓",
    Verdict.IDLE: "✓",
    Verdict.STOPPED: "■",
}


def state_text(state: StreamState) -> str:
    """Icon and word, so that the state is never colour alone."""
    return f"{GLYPHS[state]} {state_word(state)}"


def verdict_text(verdict: Verdict) -> str:
    """The same of a verdict."""
    return f"{VERDICT_GLYPHS[verdict]} {state_word(verdict)}"


def wanted_text(desired: Desired | None) -> str:
    """What a person wants, or that nobody has said."""
    if desired and desired.state is DesiredState.DRAINED:
        return f"{GLYPHS[StreamState.STOPPING]} {state_word(desired.state)}"
    return state_text(StreamState(desired.state.value)) if desired else UNKNOWN


def why_text(status: StreamStatus) -> str:
    """The sentence behind the verdict without the stream's name, for a row that names it already."""
    return own_words(status.because, status.declaration.name)


def own_words(because: str, name: str) -> str:
    """The same of a sentence that may begin with the stream's name."""
    text = because.removeprefix(name).strip()
    return text[:1].upper() + text[1:]
