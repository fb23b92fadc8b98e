"""Words that every page uses: text made safe for Markdown, key figures, places of tables, jobs.

Rule: pure; the clock is a parameter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from urllib.parse import quote

from backend.format import ago, count_text, duration_text
from backend.jobs.model import Job, JobState
from backend.lake.model import TableRef

# Only what is an address from its first to its last sign, and shows where it leads: no user before the host.
_MAIL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z0-9-]{2,63}")
_WEB = re.compile(
    r"https?://[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?(?:[/?#][!-~]{0,1000})?"
    r"|slack://(?:channel|user|open)\?[A-Za-z0-9&=_-]{1,200}"
)

# In Streamlit a colon also begins a colour or an icon, and a dollar a formula. An underscore within a word is only one,
# and many names have some: labels are read out as they are written.
# Without its backslash some text is still a link, an icon or an emoji to Streamlit. There the sign stands in a span of
# its own, `:color[…]` without a colour, which is shown and copied as it is.
_SIGN = re.compile(
    r"(?P<apart>@|(?<=www)\.|(?<=http):(?=//)|(?<=https):(?=//)|:(?=\d*[a-z_+-]|100|1234))"
    r"|[\\`*{}\[\]()#+\-.!|~<>$:&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])",
    re.IGNORECASE | re.ASCII,
)


def markdown_safe(text: str) -> str:
    """Text of a user or a log, shown literally where Markdown is read; `code` between backticks stays code."""
    line = " ".join(text.splitlines()).strip()
    parts = line.split("`")
    # No code: a backtick without its pair, or a row of them, which pairs otherwise. Nor a bracket in it, which would
    # end the badge or the colour around it.
    if len(parts) % 2 == 0 or "``" in line or any("]" in code for code in parts[1::2]):
        return _escaped(line)
    return "".join(f"`{part}`" if index % 2 else _escaped(part) for index, part in enumerate(parts))


def _escaped(text: str) -> str:
    return _SIGN.sub(lambda sign: f":color[\\{sign[0]}]" if sign["apart"] else f"\\{sign[0]}", text)


def figure_safe(text: str) -> str:
    """Text of a user or a log, shown literally where Plotly reads tags, links among them."""
    return escape(text, quote=False)


def linked(text: str) -> str:
    """Markdown of an owner's address: a link that shows itself whole; what is none is literal text."""
    start = "mailto:" if _MAIL.fullmatch(text) else "" if _WEB.fullmatch(text) else None
    if start is None:
        return markdown_safe(text)
    return f"[{_escaped(text)}]({start}{quote(text, safe='@:/?#&=+,;%~.-_!')})"


def sentence(text: str) -> str:
    """Text with a capital first letter (a name keeps its own) and a full stop."""
    text = text.strip()
    first = text.split(" ", 1)[0]
    if first.isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if not text or text[-1] in ".!?…`" else f"{text}."


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure with its meaning: `help` says what it is, or why it is "–"; `note` stands under the value."""

    label: str
    value: str
    help: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Where a line leads: a page with its parameters (keys of `app.state`)."""

    page: str
    label: str
    params: Mapping[str, str | None] = field(default_factory=dict)
    icon: str | None = None


# long lists ------------------------------------------------------------------------------------------------------

PAGE_ROWS = 100


def page_sentence(page: int, num_found: int) -> str:
    """Which part of a long list is shown; empty when it is whole."""
    if num_found <= PAGE_ROWS:
        return ""
    first = (page - 1) * PAGE_ROWS + 1
    last = min(num_found, page * PAGE_ROWS)
    return f"Rows {first:,} to {last:,} of {num_found:,}."


def num_pages(num_found: int) -> int:
    return max(1, -(-num_found // PAGE_ROWS))


# tables and jobs ---------------------------------------------------------------------------------------------------


def folders_and_name(ref: TableRef) -> tuple[tuple[str, ...], str]:
    """The root and folders a table stands in, and its own name: (("lake", "bronze"), "bronze_events")."""
    root = ref.root.rstrip("/").rsplit("/", 1)[-1] or ref.root
    if ref.name.startswith(f"{ref.root.rstrip('/')}/"):  # the catalog put the root in front to tell two tables apart
        *folders, own = ref.name.removeprefix(ref.root.rstrip("/")).strip("/").split("/")
    else:
        *folders, own = ref.name.split("/")
    return (root, *folders), own


def job_share(job: Job) -> float:
    """From 0 to 1, of the tasks of the phase that runs."""
    progress = job.progress
    return min(1.0, progress.done / progress.total) if progress.total else 0.0


def job_words(job: Job, *, now: datetime, is_orphan: bool = False) -> str:
    """What is going on, as one line."""
    if job.state is JobState.QUEUED:
        return f"Waiting for a stream host · asked for by {job.actor} {ago(job.requested_at, now)}"
    if is_orphan:
        return f"{job.host_id} no longer answers: another host takes over, or the job fails"
    if job.cancel_requested:
        return "Being cancelled"
    progress = job.progress
    words = [f"Spark on {job.host_id}: {progress.phase or 'starting'}"]
    if progress.total:
        words.append(f"{count_text(progress.done)} of {count_text(progress.total)} tasks")
    if job.started_at is not None:
        words.append(duration_text(max(0, round((now - job.started_at).total_seconds()))))
    return " · ".join(words)
