"""What a log line holds; and that no text holds what looks like a secret or is known to be one."""

import json
import logging
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import structlog

from backend import logs
from backend.errors import LakehouseError
from backend.redaction import holds_secret, is_secret, remember, remember_options, without_secrets
from backend.settings import load_settings


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    before = logging.getLogger().handlers[:]
    logging.getLogger().handlers = []
    logs.configure("host", load_settings())
    yield tmp_path / "logs" / "host.log"
    for handler in logging.getLogger().handlers:
        handler.close()
    logging.getLogger().handlers = before
    structlog.reset_defaults()


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_service(log_file: Path) -> None:
    fields = {"monkey": "banana", "url": "http://127.0.0.1:4040", "keyed": 1, "name": "sink: bronze"}
    structlog.get_logger().info("stream_started", **fields)
    (line,) = lines(log_file)
    assert line.pop("timestamp").endswith("Z")
    assert {"event": "stream_started", "level": "info", "service": "host", **fields}.items() <= line.items()


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "postgresql://weir:hunter2@db/weir"},
        {"password": "hunter2"},
        {"conf": {"fs.s3a.secret.key": "hunter2"}},
        {"options": [{"aws_secret_access_key": "hunter2"}]},
        {"text": "connect failed: host=db password=hunter2 user=weir"},
    ],
)
def test_secrets_are_masked_in_every_field(log_file: Path, fields: dict) -> None:
    structlog.get_logger().info("event", **fields)
    assert "hunter2" not in log_file.read_text()
    assert logs.MASK in log_file.read_text()


def test_libraries_and_tracebacks_are_redacted_too(log_file: Path) -> None:
    logging.getLogger("some.library").warning("cannot reach %s", "postgresql://weir:hunter2@db/weir")
    try:
        raise RuntimeError("postgresql://weir:hunter2@db/weir")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    text = log_file.read_text()
    assert "hunter2" not in text
    assert "RuntimeError" in text
    assert len(lines(log_file)) == 2


WRITE = """
import sys, structlog
from backend import logs
from backend.settings import load_settings
logs.MAX_BYTES = 20_000
logs.configure("host", load_settings())
for number in range(400):
    structlog.get_logger().info("line", number=number, filler="x" * 100)
print("last words", file=sys.stderr)
"""


def test_the_log_rotates_and_a_redirected_stderr_follows(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with (folder / "host.log").open("ab") as log:
        subprocess.run([sys.executable, "-c", WRITE], stderr=log, check=True, env={"WEIR_HOME": str(tmp_path)})
    text = (folder / "host.log").read_text()
    assert text.endswith("last words\n")
    assert text.count('"number": 399') == 1
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000 * 4 + 1_000


SECRET = "hunter2-S3cr/et"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

TEXTS = [
    f"postgresql://weir:{SECRET}@db/weir",
    f"postgresql+psycopg://weir:p@{SECRET}?x@db/weir",
    f"redis://:{SECRET}@cache",
    f"postgresql://db/weir?sslmode=require&password={SECRET}&x=1",
    f"postgresql://db/weir?sslpassword={SECRET}",
    f"postgresql://db/weir?sslkey={SECRET}",
    f"connect failed: host=db password='{SECRET} of words' user=weir",
    f"connect failed: host=db password={SECRET} user=weir",
    f'{LOGIN} username="weir" password="{SECRET} and \\" more";',
    f"{{'kafka.sasl.jaas.config': '{LOGIN} username=\"weir\" password=\"{SECRET}\";'}}",
    f'{{"event": "{{\\"password\\": \\"{SECRET}\\"}}"}}',
    f"kafka.sasl.password={SECRET}",
    f"ssl.key.password: {SECRET}",
    f"fs.s3a.secret.key={SECRET}",
    f"fs.s3a.session.token={SECRET}",
    f"aws_secret_access_key: {SECRET}",
    f"fs.azure.account.key.shop.dfs.core.windows.net={SECRET}",
    f"fs.azure.sas.c.shop.blob.core.windows.net={SECRET}",
    f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={SECRET}==;EndpointSuffix=x",
    f"BlobEndpoint=https://shop;SharedAccessSignature=sv=2024&sig={SECRET}%3D&se=2026",
    f"https://shop.blob.core.windows.net/c/x?sv=2024&sig={SECRET}%3D",
    f"https://bucket.s3.amazonaws.com/x?X-Amz-Signature={SECRET}&X-Amz-Date=2026",
    f'{{"private_key": "-----BEGIN PRIVATE KEY-----\\n{SECRET}\\n-----END PRIVATE KEY-----"}}',
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\ncut off",
    f"jdbc:postgresql://db/shop?user=weir&password={SECRET}",
    f"jdbc:sqlserver://db;user=sa;password={SECRET};encrypt=true",
    f"jdbc:oracle:thin:weir/{SECRET}@//db:1521/shop",
    f"https://hooks.slack.com/services/T0/B0/{SECRET}",
    f"https://discord.com/api/webhooks/1/{SECRET}",
    f"https://x.webhook.office.com/webhookb2/{SECRET}/IncomingWebhook",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}\n-----END PGP PRIVATE KEY BLOCK-----",
    f"https://{SECRET.replace('/', '')}@git.example/x",
    f"Authorization: Bearer {SECRET}",
    f"{{'authorization': 'Basic {SECRET}'}}",
    f'the text was cut within password="{SECRET} and',
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_is_hidden_by_its_form(text: str) -> None:
    shown = without_secrets(f"it failed: {text}\nand more")
    assert SECRET not in shown
    assert "et@" not in shown
    assert logs.MASK in shown
    assert holds_secret(text)


ISSUED = """AKIAIOSFODNN7EXAMPLE ASIAIOSFODNN7EXAMPLE ghp_{36} gho_{36} github_pat_{22}_{36} glpat-{22} sk_live_{24}
    xoxb-123456789012-{24} xapp-1-{24} sk-ant-api03-{36} AIza{35} dapi01234567890123456789012345678901 hf_{letters}
    eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.{36} npm_{36} SG.{22}.{43} hvs.{24} ya29.{36}"""
FILLED = {"36": "Ab1" * 12, "24": "Ab1" * 8, "22": "Ab1" * 7 + "z", "35": "Ab1" * 11 + "zz", "43": "Ab1" * 14 + "z"}


@pytest.mark.parametrize(
    "secret", re.sub(r"{(\w+)}", lambda size: FILLED.get(size[1], "Abcdefghijklmnopq" * 2), ISSUED).split()
)
def test_what_an_issuer_wrote_is_hidden_by_its_prefix(secret: str) -> None:
    for text in (secret, f"'{secret}'", f"a={secret},", f"\\n{secret}\\n", f"?x=%3D{secret}&y=1", f"got {secret}."):
        assert without_secrets(text) == text.replace(secret, logs.MASK)


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:4040/jobs",
        "postgresql+psycopg://weir@db:5432/weir",
        "abfss://container@shop.dfs.core.windows.net/lake",
        "s3://bucket/lake/silver_orders",
        "there is no column key: the table has id, monkey and signed_at",
        "sink: bronze, keyed=1, passes: 3, https://wiki/orders",
        "tables ghp_orders, sk_live_orders, xoxb-import-of-orders, AKIA_regions, eyJ.orders.daily, dapi_calls",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 and 0b5c1a52-4d5e-4f4e-9a39-2d7d2c4d7b11",
        "part-00000-0b5c1a52-4d5e-4f4e-9a39-2d7d2c4d7b11-c000.snappy.parquet, eyJhbGciOiJIUzI1NiJ9 without an end",
    ],
)
def test_plain_words_and_addresses_stay(text: str) -> None:
    assert without_secrets(text) == text
    assert not holds_secret(text)


def test_an_option_is_a_secret_by_its_name() -> None:
    secrets = """fs.s3a.secret.key PGPASSWORD kafka.sasl.jaas.config ssl.keystore.key account_key sas_token sslkey
        fs.azure.account.key.shop.dfs.core.windows.net google_service_account_key AWS_SESSION_TOKEN"""
    others = """GOOGLE_APPLICATION_CREDENTIALS CREDENTIALS_DIRECTORY PASSWORD_STORE_DIR
        monkey region key.serializer fs.s3a.aws.credentials.provider kafka.ssl.keystore.location
        kafka.sasl.oauthbearer.token.endpoint.url kafka.sasl.oauthbearer.client.credentials.client.id"""
    assert [name for name in secrets.split() if not is_secret(name)] == []
    assert [name for name in others.split() if is_secret(name)] == []


def test_a_value_that_is_known_is_hidden_wherever_it_stands() -> None:
    remember(["correct horse/battery"])
    remember_options({"s3_secret_key": "staple-1234", "region": "eu-central-1", "password": "weir"})
    text = "got 'correct horse/battery', correct%20horse%2Fbattery and staple-1234 in eu-central-1; run `weir ui`"
    assert without_secrets(text) == f"got '{logs.MASK}', {logs.MASK} and {logs.MASK} in eu-central-1; run `weir ui`"
    assert without_secrets("staple-12345 is another word") == "staple-12345 is another word"


def test_no_error_of_ours_holds_one() -> None:
    error = LakehouseError("postgresql://weir:hunter2@db is down", hint="try password=hunter2")
    assert "hunter2" not in f"{error} {error!r} {error.message} {error.hint}"


@pytest.mark.parametrize(
    "piece",
    ["x", "a.b-", "a://b:", 'password="', "password", "https://a/", "sig_", "bearer ", "\\", "eyJ", "eyJa.", "ghp_"],
)
def test_a_long_text_of_others_takes_no_longer_than_its_length(piece: str) -> None:
    def seconds(size: int) -> float:
        text = f"password{piece * (size // len(piece))}"
        begun = time.process_time()
        without_secrets(text)
        return time.process_time() - begun

    assert seconds(200_000) < 20 * seconds(20_000) + 0.1, "ten times as long a text"
