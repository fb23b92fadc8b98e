"""How the options of Weir's own reader become those of Hadoop's S3A."""

from pathlib import Path

import pytest

from backend.settings import Settings, load_settings
from pipelines.jars import JarError
from pipelines.spark.s3 import hadoop_options, s3_jars, uses_s3
from pipelines.spark.session import spark_conf

OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "aws_access_key_id": "me", "secret_access_key": "hidden"}


def settings(tmp_path: Path, options: dict[str, str] | None = None, **conf: str) -> Settings:
    lake = {"tables_uri": "s3://shop/lake", "storage_options": {"s3a://shop": options} if options else {}}
    return load_settings(home=tmp_path, lake=lake, spark={"conf": conf})


def test_one_set_of_credentials_serves_both(tmp_path: Path) -> None:
    assert hadoop_options(settings(tmp_path, OPTIONS), {}) == {
        "fs.s3a.bucket.shop.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.shop.endpoint.region": "us-east-1",
        "fs.s3a.bucket.shop.path.style.access": "true",
        "fs.s3a.bucket.shop.access.key": "me",
        "fs.s3a.bucket.shop.secret.key": "hidden",
    }


def test_the_environment_fills_in_and_credentials_are_never_mixed(tmp_path: Path) -> None:
    around = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "t", "AWS_REGION": "eu"}
    alone = hadoop_options(settings(tmp_path), around)
    assert {key.removeprefix("fs.s3a.bucket.shop."): value for key, value in alone.items()} == {
        "endpoint.region": "eu",
        "access.key": "env",
        "secret.key": "e",
        "session.token": "t",
    }
    with_options = hadoop_options(settings(tmp_path, OPTIONS), around)
    assert with_options["fs.s3a.bucket.shop.access.key"] == "me"
    assert with_options["fs.s3a.bucket.shop.endpoint.region"] == "eu"
    assert "fs.s3a.bucket.shop.session.token" not in with_options


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("aws_virtual_hosted_style_request", "path.style.access", "false"),
        ("skip_signature", "aws.credentials.provider", "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"),
    ],
)
def test_switches(tmp_path: Path, option: str, key: str, value: str) -> None:
    found = hadoop_options(settings(tmp_path, {**OPTIONS, option: "true"}), {})
    assert found[f"fs.s3a.bucket.shop.{key}"] == value


def test_the_role_of_a_kubernetes_account_is_taken_where_no_keys_are_given(tmp_path: Path) -> None:
    around = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/weir"}
    key = "fs.s3a.bucket.shop.aws.credentials.provider"
    assert hadoop_options(settings(tmp_path), around)[key].endswith(".WebIdentityTokenFileCredentialsProvider")
    assert key not in hadoop_options(settings(tmp_path, OPTIONS), around)
    own = {"spark.hadoop.fs.s3a.aws.credentials.provider": "my.Provider"}
    assert key not in hadoop_options(settings(tmp_path, **own), around)


def test_no_credential_is_among_sparks_settings(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path, OPTIONS))
    assert not any("hidden" in value for value in conf.values())
    assert "hadoop-aws-" in conf["spark.jars"]
    assert conf["spark.hadoop.fs.s3.impl"].endswith("S3AFileSystem")


def test_a_lake_elsewhere_needs_none_of_it(tmp_path: Path) -> None:
    elsewhere = load_settings(home=tmp_path, lake={"roots": [str(tmp_path), "az://shop"]})
    assert not uses_s3(elsewhere)
    assert hadoop_options(elsewhere, {"AWS_REGION": "eu"}) == {}
    assert "hadoop-aws-" not in spark_conf(elsewhere)["spark.jars"]


def test_jars_that_were_not_fetched_are_missed_only_where_streams_write_to_s3(tmp_path: Path) -> None:
    with pytest.raises(JarError, match="hadoop-aws") as refused:
        s3_jars(settings(tmp_path), tmp_path)
    assert refused.value.hint.endswith("python -m pipelines.jars s3")
    assert s3_jars(settings(tmp_path, **{"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}), tmp_path) == ()
    assert s3_jars(load_settings(home=tmp_path, lake={"roots": ["s3://shop"]}), tmp_path) == ()
