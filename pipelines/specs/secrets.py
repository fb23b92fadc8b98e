"""Values that nobody may see: a declaration names where one lies, and it is read when a stream starts.

Rule: only `reveal` and `revealed` give values, and only to what is handed to a client. Nothing printed holds one.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.errors import SettingsError
from backend.redaction import holds_secret, is_secret, remember


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """`place` is `env:NAME` or `file:PATH`. `within`: text around the value, which stands for `{}` there."""

    place: str
    within: str = "{}"

    def __repr__(self) -> str:
        return f"secret({self.place!r})" if self.has_place else "secret(…)"

    @property
    def has_place(self) -> bool:
        return self.place.startswith(("env:", "file:"))

    def reveal(self) -> str:
        """The value; raises `SettingsError` where it is not there."""
        kind, _, name = self.place.partition(":")
        value = os.environ.get(name) if kind == "env" else _line(Path(name)) if kind == "file" else None
        if not value:
            where = {"env": f"set {name} where the host starts", "file": f"write it into {name}"}
            place = self.place if self.has_place else "a place that is not named"
            raise SettingsError(
                f"there is no secret at {place}", hint=where.get(kind, "name it as env:NAME or file:PATH")
            )
        remember([value])
        if '"{}"' in self.within:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return self.within.replace("{}", value)


def revealed(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """Options with the values of their secrets: for a client alone."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}


def secret(place: str, *, within: str = "{}") -> Secret:
    r"""A value from the environment (`env:NAME`) or from a file (`file:/run/secrets/name`), never shown.

    `within` is text around it: `'… required username="weir" password="{}";'`. Between quotes, quotes are escaped.
    """
    return Secret(place, within)


def secret_problems(sink_or_source: str, name: str, value: str | Secret) -> Iterator[tuple[str, str]]:
    """A secret in plain text, or without a place."""
    if isinstance(value, Secret):
        if not value.has_place:
            yield f"{sink_or_source}: the secret of {name} has no place", "name it as env:NAME or file:PATH"
    elif holds_secret(value) or (is_secret(name) and not name.endswith("jaas.config")):
        hint = 'write secret("env:NAME") or secret("file:PATH")'
        yield f"{sink_or_source}: {name} holds a secret in plain text", hint


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError:
        return None
