"""How far a comparison of rows is, in words.

Rule: pure, and free of pandas, which the terminal does without.
"""

from app.ui.format import count_text, duration_text, things
from backend.diff.cache import DiffProgress


def progress_text(step: DiffProgress) -> tuple[float, str]:
    """How far a comparison is: share done, and words: "1.2 M of 4.8 M rows read · 12 s"."""
    took = duration_text(step.elapsed_s if step.elapsed_s < 10 else round(step.elapsed_s))
    if step.is_waiting:
        return 0.0, f"Waiting for other comparisons to end · {took}"
    if not step.rows_read:
        return 0.0, f"Opening files · {took}"
    if step.rows_total is None:
        return 0.0, f"{things(step.rows_read, 'row')} read · {took}"
    share = step.rows_read / step.rows_total if step.rows_total else 1.0
    return share, f"{count_text(step.rows_read)} of {count_text(step.rows_total)} rows read · {took}"
