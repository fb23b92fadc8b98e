"""Settings: precedence, strictness, that no secret leaves them, and that docs/settings.md says what the source says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.docs import DocumentedSetting, documented_settings, written_pages
from backend.errors import SettingsError
from backend.settings import load_settings

NO_SETTINGS = ("HOEM", "LAKE_ROOTS", "SPARK_MASTER", "HOME_DIR", "PORT_X", "PORT__X", "CONFIG_FILE", "UI_SERVICE_HOST")


@pytest.fixture(autouse=True)
def _no_outside_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [each for each in os.environ if each.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_what_is_given_beats_environment_beats_file_beats_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().port == 8501
    Path("weir.toml").write_text("port = 9001\n[lake]\npreview_rows = 7\n")
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
    monkeypatch.setenv("WEIR_LAKE", '{"roots": ["/data"]}')
    monkeypatch.setenv("WEIR_TEST_SEED", "7")
    assert load_settings().roots == ("/data",), "a whole section may be one variable"
    monkeypatch.setenv("WEIR_HOME", "")
    assert load_settings().home == Path(".weir").absolute(), "an empty variable counts as unset"


def test_no_secret_in_the_text_of_settings_and_a_wrong_value_is_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__URL", "postgresql+psycopg://weir:s3cret@db/weir")
    monkeypatch.setenv("WEIR_LAKE__STORAGE_OPTIONS", '{"s3://b": {"secret_access_key": "s3cret"}}')
    settings = load_settings()
    assert "s3cret" not in repr(settings)
    assert settings.store_url.endswith("s3cret@db/weir")
    monkeypatch.setenv("WEIR_PORT", "hunter2")
    with pytest.raises(SettingsError, match="port") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_the_folder_of_a_start_is_shown_in_every_text(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PWD": str(folder), "OLDPWD": str(folder)}
    code = "from backend.settings import load_settings; from backend.redaction import without_secrets; import os"
    code += """; load_settings(); print(without_secrets(f'no table in {os.getcwd()}/lake, {os.environ["OLDPWD"]}'))"""
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert run.stdout == f"no table in {folder}/lake, {folder}\n"


def test_a_file_that_is_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for named, why in {
        tmp_path / "no.toml": "No such file",
        tmp_path: "Is a directory",
        "~nobody-knows/weir.toml": "home directory",
    }.items():
        monkeypatch.setenv("WEIR_CONFIG", str(named))
        with pytest.raises(SettingsError, match=f"{named} cannot be read: .*{why}"):
            load_settings()
    for none in (os.devnull, ""):
        monkeypatch.setenv("WEIR_CONFIG", none)
        assert load_settings().port == 8501
    (tmp_path / "other.toml").write_text("port = 9001")
    monkeypatch.setenv("WEIR_CONFIG", "other.toml")
    assert load_settings().port == 9001


@pytest.mark.parametrize(
    ("text", "named"),
    [(b"port = = 1", r"weir\.toml"), ('home = "/dätä"'.encode("latin-1"), r"weir\.toml is not TOML: .*utf-8")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: bytes, named: str) -> None:
    (tmp_path / "weir.toml").write_bytes(text)
    with pytest.raises(SettingsError, match=named):
        load_settings()


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("WEIR_LAKE__ROOT", '["/data"]', r"lake\.root\b"),
        ("WEIR_LAKE__ROOTS", "/data", "lake.*JSON"),
        ("WEIR_HOME", "~nobody-knows/x", "home: .*a user who is not known"),
        *((f"WEIR_{name}", "/data", f"WEIR_{name} is not a setting") for name in NO_SETTINGS),
        ("WEIR_UI__ALLOWED_HOSTS", '["https://weir.example.com"]', "allowed_hosts holds"),
        ("WEIR_UI__ALLOWED_HOSTS", '["weir.example.com/path"]', "allowed_hosts holds"),
        ("WEIR_UI__ALLOWED_HOSTS", '["*"]', "allowed_hosts holds"),
        ("WEIR_UI__FRAME_ANCESTORS", '["portal.example.com"]', "frame_ancestors holds"),
        ("WEIR_UI__FRAME_ANCESTORS", '["https://a.example; script-src *"]', "frame_ancestors holds"),
        ("WEIR_UI__TRUSTED_PROXIES", '["proxy.example.com"]', "ui.trusted_proxies"),
        ("WEIR_UI__TRUSTED_PROXIES", '["10.0.0.1/8"]', "ui.trusted_proxies"),
        ("WEIR_UI__USER_HEADER", "X-User: me", "ui.user_header"),
        ("WEIR_HOST__TAGS", '["eu", "eu gpu"]', "one word"),
    ],
)
def test_a_variable_that_cannot_be_taken_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=named):
        load_settings()


def test_a_host_takes_as_many_streams_as_its_heap_has_room_for(tmp_path: Path) -> None:
    for heap, conf, asked, streams in (
        ("2g", {}, 0, 64),
        ("512m", {}, 0, 16),
        ("1024", {}, 0, 32),  # MiB, as Spark reads it
        ("16m", {}, 0, 1),
        ("2g", {"spark.driver.memory": "8GB"}, 0, 256),
        ("2g", {}, 3, 3),
        ("much", {}, 0, 64),
    ):
        spark = {"driver_memory": heap, "conf": conf}
        assert load_settings(home=tmp_path, spark=spark, host={"max_streams": asked}).max_streams == streams


@pytest.mark.parametrize("name", ["settings.md", "streams.md", "run.md"])
def test_pages_of_docs_say_what_the_source_says(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / name
    assert page.read_text() == written_pages()[name], f"docs/{name} is old: run `make docs`"


def test_every_setting_has_a_meaning_and_a_variable_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = list(documented_settings())
    assert len(settings) > 25
    assert [setting.key for setting in settings if len(setting.description) < 10] == []
    monkeypatch.setenv(DocumentedSetting("host.max_restarts", "", "", "").variable, "9")
    assert load_settings().host.max_restarts == 9
