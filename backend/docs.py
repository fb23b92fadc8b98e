"""What `make docs` writes of docs/ from the source that it describes, and a test compares: the page of settings, and
the tables of faults and of metrics in pages that people wrote.

Rule: nothing of a setting, a fault or a metric is said anywhere but in its source; this module only lays it out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from backend.metrics import OF_HOST, OF_PAGE
from backend.settings import Settings
from backend.streams.faults import OTHERS_SEEN, TWELVE, Fault

DOCS = Path(__file__).parents[1] / "docs"
INTRO = """\
# Settings

<!-- Written by `make docs` from backend/settings.py; a test fails when the two differ. -->

A setting comes from the first of these that has it: the environment, `weir.toml`, the default.
`weir.toml` may lie in the working folder; a file that `WEIR_CONFIG` names instead must be there.
In the environment lists and maps are JSON:

```sh
WEIR_PORT=8502
WEIR_LAKE__ROOTS='["/data/lake", "s3://bucket/lake"]'
```
```toml
# weir.toml
port = 8502
[lake]
roots = ["/data/lake", "s3://bucket/lake"]
```

A key that does not exist, or a value that cannot work, stops every command. The error names it.
Secrets are never logged or shown. Set them in the environment rather than in a file that others read.
"""


def written_pages() -> dict[str, str]:
    """Texts of the pages, by their names in docs/."""
    return {
        "settings.md": settings_page(),
        "streams.md": _with_table("streams.md", "faults", faults_table()),
        "run.md": _with_table("run.md", "metrics", metrics_table()),
    }


def _with_table(name: str, subject: str, table: str) -> str:
    """A page with the table between the marks of its subject anew."""
    head, mark, rest = (DOCS / name).read_text().partition(f"<!-- {subject}:")
    comment, _, tail = rest.partition(f"<!-- end of {subject} -->")
    return f"{head}{mark}{comment.partition('-->')[0]}-->\n\n{table}\n\n<!-- end of {subject} -->{tail}"


def metrics_table() -> str:
    lines = ["| metric | labels | kind | of | meaning |", "|---|---|---|---|---|"]
    for server, metrics in (("page", OF_PAGE), ("host", OF_HOST)):
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {labels} | {metric.kind} | {server} | {metric.help} |")
    return "\n".join(lines)


def faults_table() -> str:
    lines = ["| fault | recognised by | cause | remedy |", "|---|---|---|---|"]
    for fault in (*TWELVE, *OTHERS_SEEN):
        lines.append(f"| {fault.name} | {_signs(fault)} | {fault.cause} | {fault.remedy} |")
    return "\n".join(lines)


def _signs(fault: Fault) -> str:
    before = [f"preflight: {fault.check}"] if fault.check else []
    raised = [f"`{sign.strip()}`" for sign in (*fault.classes[:1], *fault.words[:1])]
    return "; ".join((*before, *raised, *filter(None, (fault.shown,))))


# settings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DocumentedSetting:
    """One documented key: `lake.roots`, settable as `WEIR_LAKE__ROOTS`."""

    key: str
    type: str
    default: str
    description: str

    @property
    def variable(self) -> str:
        """The environment variable; what is inside a list is set with the whole list."""
        return "WEIR_" + self.key.partition("[]")[0].upper().replace(".", "__")


def documented_settings(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[DocumentedSetting]:
    """Every leaf of the settings, in the order of the source; what is inside a list comes last."""
    inside = list[tuple[str, type[BaseModel]]]()
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from documented_settings(field.annotation, f"{prefix}{name}.")
        else:
            text = type_text(field.annotation) + bounds_text(field)
            default = "required" if field.is_required() else default_text(field.default)
            yield DocumentedSetting(f"{prefix}{name}", text, default, field.description or "")
            of_list = "[]" if get_origin(field.annotation) is list else ""
            held = (
                kind for kind in get_args(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)
            )
            inside += [(f"{prefix}{name}{of_list}.", part) for part in held]
    for place, part in inside:
        yield from documented_settings(part, place)


def type_text(annotation: Any) -> str:
    """A type in words: "list of text", "number or unset"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join("unset" if kind is NoneType else type_text(kind) for kind in arguments)
    if origin in (list, tuple):
        return f"list of {type_text(arguments[0])}"
    if origin is dict:
        return f"map of {type_text(arguments[0])} to {type_text(arguments[1])}"
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if issubclass(annotation, BaseModel):
        return "section"
    if issubclass(annotation, StrEnum):
        return "text"
    words = {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "true or false",
        Path: "path",
        SecretStr: "secret",
    }
    return words[annotation]


def bounds_text(field: FieldInfo) -> str:
    """The limits of a number: ", 1 to 65535", ", above 0"."""
    limits = {
        name: getattr(rule, name) for rule in field.metadata for name in ("gt", "ge", "lt", "le") if hasattr(rule, name)
    }
    if "ge" in limits and "le" in limits:
        return f", {limits['ge']} to {limits['le']}"
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    return "".join(f", {words[name]} {limit}" for name, limit in limits.items())


def default_text(default: Any) -> str:
    if default is None:
        return "unset"
    value = default.get_secret_value() if isinstance(default, SecretStr) else default
    value = list(value) if isinstance(value, tuple) else value
    return f"`{json.dumps(value) if not isinstance(value, str | Path) else value}`" if value != "" else "empty"


def settings_page() -> str:
    blocks, section = [INTRO], None
    for setting in documented_settings():
        name = setting.key.rpartition(".")[0] or "General"
        if name != section:
            section = name
            blocks.append(f"\n## {name}\n\n| key | variable | type | default | meaning |\n|---|---|---|---|---|\n")
        cells = (f"`{setting.key}`", f"`{setting.variable}`", setting.type, setting.default, setting.description)
        blocks.append(f"| {' | '.join(cells)} |\n")
    return "".join(blocks)


if __name__ == "__main__":
    for name, text in written_pages().items():
        (DOCS / name).write_text(text)
