"""How Spark reaches S3: Hadoop's S3A, at the addresses and with the credentials that Weir's own reader has.

Rule: credentials go into the running session's Hadoop configuration. What is set before it starts stands in the JVM's
command line, for everybody on the machine to read.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from backend.lake.storage.paths import normal_uri
from backend.settings import Settings
from pipelines.jars import S3, S3_LIB, jar_paths, missing_files

_SCHEME = "s3://"
_BRINGS_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
S3_CONF = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}  # s3:// is what people write
_PLACE = {
    **dict.fromkeys(("endpoint", "endpoint_url", "endpoint_url_s3"), "endpoint"),
    **dict.fromkeys(("region", "default_region"), "endpoint.region"),
}
_CREDENTIALS = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    **dict.fromkeys(("session_token", "token"), "session.token"),
}
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
# The role of a Kubernetes account, as EKS gives it: S3A by itself does not look there.
_OF_ACCOUNT = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
_PROVIDER = "fs.s3a.aws.credentials.provider"


def uses_s3(settings: Settings) -> bool:
    """Whether any address that settings name is one of S3."""
    return bool(_buckets(*settings.roots, *settings.lake.storage_options, *_written(settings)))


def writes_s3(settings: Settings) -> bool:
    """Whether tables, checkpoints or results lie there."""
    return bool(_buckets(*_written(settings)))


def s3_jars(settings: Settings, lib: Path = S3_LIB) -> tuple[Path, ...]:
    """The JARs that streams need for S3. Raises `JarError` where they write there and the JARs were not fetched."""
    brings_own = any(setting in settings.spark.conf for setting in _BRINGS_JARS)
    may_lack = brings_own or not writes_s3(settings)
    if not uses_s3(settings) or (may_lack and missing_files(lib, S3)):
        return ()
    return jar_paths(lib, S3)


def let_in(session: SparkSession, settings: Settings) -> None:
    """Give the session what it needs to read and write S3."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for key, value in hadoop_options(settings, os.environ).items():
        if f"spark.hadoop.{key}" not in settings.spark.conf:
            hadoop.set(key, value)


def hadoop_options(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """S3A's settings for each bucket that settings name; with credentials, so never to be shown."""
    by_bucket = {bucket: dict[str, str]() for bucket in _buckets(*settings.roots, *_written(settings))}
    for root, options in settings.lake.storage_options.items():
        for bucket in _buckets(root):
            secrets = {_short(key): secret.get_secret_value() for key, secret in options.items()}
            by_bucket.setdefault(bucket, {}).update(secrets)
    around = {_short(key): value for key, value in environment.items() if key.startswith("AWS_") and value}
    if f"spark.hadoop.{_PROVIDER}" in settings.spark.conf:
        around.pop("web_identity_token_file", None)
    return {
        f"fs.s3a.bucket.{bucket}.{key}": value
        for bucket, options in by_bucket.items()
        for key, value in _of_bucket(options, around).items()
    }


def _of_bucket(options: Mapping[str, str], around: Mapping[str, str]) -> dict[str, str]:
    """What options leave out comes from the environment, credentials only together."""
    own = options if _CREDENTIALS.keys() & options.keys() else {**around, **options}
    credentials = {_CREDENTIALS[key]: value for key, value in own.items() if key in _CREDENTIALS}
    whole = {**around, **options}
    place = {_PLACE[key]: value for key, value in whole.items() if key in _PLACE}
    if "endpoint" in place:
        by_host = whole.get("virtual_hosted_style_request", "").lower() == "true"
        place = {"endpoint.region": "us-east-1", "path.style.access": str(not by_host).lower(), **place}
    if whole.get("skip_signature", "").lower() == "true":
        return {**place, "aws.credentials.provider": _ANONYMOUS}
    if not credentials and "web_identity_token_file" in whole:
        return {**place, "aws.credentials.provider": _OF_ACCOUNT}
    return {**place, **credentials}


def _written(settings: Settings) -> tuple[str, ...]:
    return (settings.tables_uri, settings.results_uri, settings.checkpoints_uri)


def _buckets(*addresses: str) -> set[str]:
    remote = (normal_uri(address) for address in addresses)
    return {address.removeprefix(_SCHEME).partition("/")[0] for address in remote if address.startswith(_SCHEME)}


def _short(key: str) -> str:
    return key.lower().removeprefix("aws_")
