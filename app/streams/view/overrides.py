"""Overridden settings as lines, and what was typed as overrides.

Rule: pure; a setting that is as declared is no override.
"""

from collections.abc import Iterable, Mapping

from app.ui.view.words import markdown_safe
from backend.stream_model.overrides import Setting, shown


def difference_lines(settings: Iterable[Setting]) -> list[str]:
    """What changes, in Markdown, a line a setting; and what keeps a change from taking effect."""
    return [_line(each) for each in settings]


def _line(setting: Setting) -> str:
    now, after = markdown_safe(shown(setting.now)), markdown_safe(shown(setting.after))
    change = f"{now} → **{after}**" if setting.changes else f"{after}, as it is"
    declared = "" if setting.declared == setting.now else f" (declared: {markdown_safe(shown(setting.declared))})"
    note = f" :material/warning: {markdown_safe(setting.note)}" if setting.note else ""
    return f"{markdown_safe(setting.key)}: {change}{declared}{note}"


def chosen(declared: Mapping[str, str], typed: Mapping[str, str], spark: Mapping[str, str]) -> dict[str, str]:
    """The overrides among what was typed."""
    found = {key: value.strip() for key, value in typed.items()} | dict(spark)
    return {key: value for key, value in found.items() if value and value != declared.get(key)}


def spark_lines(conf: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in conf.items())
