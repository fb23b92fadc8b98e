"""What sending quarantined rows again would do, in words and rows.

Rule: pure; a value that the repair changes shows both, before and after.
"""

import json

from backend.format import cut, things
from backend.stream_model.stream import StreamDeclaration
from backend.streams.requeue.request import RequeueAnswer, RequeueRequest, Sample, breaking, quarantine_of

MOST_COLUMNS = 12


def lines(found: RequeueAnswer, request: RequeueRequest, declared: StreamDeclaration) -> list[str]:
    """What was chosen, what goes, what stays and why."""
    source = f"{quarantine_of(declared)}, version {request.version}"
    if not found.chosen:
        return [f"No row of {source} is chosen"]
    said = [f"Chosen: {things(found.chosen, 'row')} of {source}"]
    said.append(f"Go to {declared.sink_table}: {things(found.met, 'row')}")
    if found.warned:
        said.append(f"Of these, {breaking(found.warned)}, which only warns")
    if found.left:
        said.append(f"Stay as they are: {things(found.left, 'row')}; even repaired, {breaking(found.broken)}")
    return said


def label(found: RequeueAnswer) -> str:
    return f"Send {things(found.met, 'row')} again"


def build_samples(found: RequeueAnswer) -> list[dict[str, str]]:
    """A few rows, those that go first; the columns that the repair changes come first."""
    changed = {name for sample in found.samples for name in sample.after if _differs(sample, name)}
    names = [name for sample in found.samples[:1] for name in sample.after]
    names.sort(key=lambda name: name not in changed)
    return [
        {"Goes": _verdict(each), **{name: _cell(each, name) for name in names[:MOST_COLUMNS]}} for each in found.samples
    ]


def _verdict(sample: Sample) -> str:
    return f"stays: breaks {', '.join(sample.broken)}" if not sample.goes else "yes"


def _cell(sample: Sample, name: str) -> str:
    after = _text(sample.after[name])
    return f"{_text(sample.before.get(name))} → {after}" if _differs(sample, name) else after


def _differs(sample: Sample, name: str) -> bool:
    return sample.before.get(name) != sample.after[name]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(text)
