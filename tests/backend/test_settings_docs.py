"""Every setting is documented: key, variable, type, default and meaning stand in docs/settings.md as in the source."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, SecretStr

from backend.settings import load_settings
from backend.settings_docs import DocumentedSetting, documented_settings, render

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_says_what_the_source_says() -> None:
    assert PAGE.read_text() == render(), "docs/settings.md is old: run `make docs`"


def test_every_setting_has_a_meaning() -> None:
    settings = list(documented_settings())
    assert len(settings) > 25
    assert [setting.key for setting in settings if len(setting.description) < 10] == []


def test_a_variable_of_the_page_is_one_that_settings_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DocumentedSetting("host.max_restarts", "", "", "").variable, "9")
    assert load_settings().host.max_restarts == 9


class Sample(BaseModel):
    size: Annotated[int | None, Field(gt=0, description="d")] = None
    port: Annotated[int, Field(ge=1, le=9, description="d")] = 8
    names: Annotated[list[str], Field(description="d")] = ["a"]
    words: Annotated[dict[str, dict[str, SecretStr]], Field(description="d")] = {}
    url: Annotated[SecretStr, Field(description="d")] = SecretStr("")


def test_types_limits_and_defaults_are_told_in_words() -> None:
    assert [(setting.key, setting.type, setting.default) for setting in documented_settings(Sample)] == [
        ("size", "whole number or unset, above 0", "unset"),
        ("port", "whole number, 1 to 9", "`8`"),
        ("names", "list of text", '`["a"]`'),
        ("words", "map of text to map of text to secret", "`{}`"),
        ("url", "secret", "empty"),
    ]
