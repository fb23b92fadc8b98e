"""An act written down in a file, to be reviewed and carried out later: what is asked, why, and what it was going to do.

Rule: it is done only while it would do what the file says it does. A file is YAML: comments for people, then one JSON
document.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256

from backend.errors import SettingsError
from backend.format import utc_text
from backend.maintenance.model import ActPreview, TableAct

_HINT = "write it with --intent FILE of a command that acts on tables, such as `weir optimize`"


@dataclass(frozen=True, slots=True)
class Intent:
    """`figures` and `risks`: of the preview that was reviewed."""

    act: TableAct
    reason: str
    figures: Mapping[str, int | None]
    risks: tuple[str, ...]

    @classmethod
    def of(cls, planned: ActPreview, reason: str) -> "Intent":
        return cls(planned.act, reason, planned.figures, planned.risks)

    def file(self, lines: tuple[str, ...], *, now: datetime) -> str:
        """With the preview's lines as comments."""
        title = f"{self.act.kind} of {self.act.name} at v{self.act.version}, previewed {utc_text(now)}"
        comments = "".join(f"# {' '.join(line.split())}\n" for line in (title, *lines))
        body = {**asdict(self), "act": json.loads(self.act.text())}
        return f"{comments}{json.dumps(body, indent=2, ensure_ascii=False)}\n"

    @classmethod
    def parse(cls, text: str) -> "Intent":
        """Raises `SettingsError` for what is no such file."""
        try:
            body = json.loads("\n".join(line for line in text.splitlines() if not line.startswith("#")))
            act = TableAct.parse(json.dumps(body["act"]))
            return cls(act, str(body["reason"]), dict(body["figures"]), tuple(body["risks"]))
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise SettingsError(f"this is no intent: {exc}", hint=_HINT) from exc

    def moved(self, planned: ActPreview) -> list[str]:
        """What the act would do otherwise than it was reviewed; empty where nothing."""
        figures = [
            f"{name} was {self.figures.get(name)}, is {planned.figures.get(name)}"
            for name in (*self.figures, *(set(planned.figures) - set(self.figures)))
            if self.figures.get(name) != planned.figures.get(name)
        ]
        return figures + [f"a new risk: {risk}" for risk in planned.risks if risk not in self.risks]


def digest(text: str) -> str:
    """By which the audit trail names a file."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"
