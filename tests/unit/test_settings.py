"""Settings: precedence, strictness, and that no secret leaves them."""

from pathlib import Path

import pytest

from backend.errors import SettingsError
from backend.settings import load_settings


@pytest.fixture(autouse=True)
def _no_outside_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "weir.toml"))
    monkeypatch.delenv("WEIR_PORT", raising=False)
    monkeypatch.delenv("WEIR_LAKE__ROOTS", raising=False)


def test_flag_beats_environment_beats_file_beats_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_settings().port == 8501
    (tmp_path / "weir.toml").write_text("port = 9001\n[lake]\npreview_rows = 7\n")
    assert load_settings().port == 9001
    monkeypatch.setenv("WEIR_PORT", "9002")
    assert load_settings().port == 9002
    assert load_settings(port=9003).port == 9003
    assert load_settings().lake.preview_rows == 7


def test_home_alone_places_lake_and_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path / "here"))
    settings = load_settings()
    assert settings.roots == (str(tmp_path / "here" / "lake"),)
    assert settings.store_url == f"sqlite:///{tmp_path / 'here' / 'store' / 'weir.db'}"


def test_a_misspelled_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__ROOT", '["/data"]')
    with pytest.raises(SettingsError, match=r"lake\.root\b"):
        load_settings()


def test_a_wrong_value_is_named_without_being_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_PORT", "hunter2")
    with pytest.raises(SettingsError, match="port") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_broken_toml_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "weir.toml").write_text("port = = 1")
    with pytest.raises(SettingsError, match=r"weir\.toml"):
        load_settings()


def test_roots_that_are_not_json_are_a_settings_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__ROOTS", "/data")
    with pytest.raises(SettingsError, match=r"lake.*JSON"):
        load_settings()


def test_no_secret_in_the_text_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__URL", "postgresql+psycopg://weir:s3cret@db/weir")
    monkeypatch.setenv("WEIR_LAKE__STORAGE_OPTIONS", '{"s3://b": {"secret_access_key": "s3cret"}}')
    settings = load_settings()
    assert "s3cret" not in repr(settings)
    assert settings.store_url.endswith("s3cret@db/weir")


def test_a_misspelled_section_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HOEM", "/data")
    with pytest.raises(SettingsError, match="WEIR_HOEM"):
        load_settings()


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HOME", "")
    assert load_settings().home == Path(".weir").absolute()


def test_a_tag_of_a_host_is_one_word() -> None:
    assert load_settings(host={"tags": ["eu", "gpu-2"]}).host.tags == ["eu", "gpu-2"]
    with pytest.raises(SettingsError, match="one word"):
        load_settings(host={"tags": ["eu gpu"]})
