"""One SparkSession, from one table of settings, and how it reaches S3.

Rule: every Spark setting that Weir needs stands in `spark_conf`, and `WEIR_SPARK__CONF` wins over it. What the JVM
prints goes to `$WEIR_HOME/logs`. S3 is Hadoop's S3A, at the addresses and with the credentials that Weir's own reader
has. Those go into the running session's Hadoop configuration: what is set before it starts stands in the JVM's command
line, for everybody on the machine to read.

`python -m pipelines.spark.session`: Spark's classes, read and verified once, are kept for every JVM that starts. A JVM
of another version, or with another class path, leaves the file aside by itself; without one everything works, later.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.errors import LakehouseError
from backend.lake.storage.folder import normal_uri
from backend.private_files import open_private, private_folder, write_private
from backend.redaction import holds_secret, is_secret
from backend.settings import Settings, load_settings
from pipelines.jars import JDBC, JDBC_LIB, LIB, S3, S3_LIB, find_java, jar_paths, missing_files
from pipelines.jvm.failures import describe

_LOG4J = """\
# Written by Weir at each start; change the level with WEIR_SPARK__CONF (spark.log.level).
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePermissions = rw-------
appender.file.filePattern = {folder}/spark.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


class SparkStartError(LakehouseError):
    """The JVM did not come up."""


def spark_conf(settings: Settings) -> dict[str, str]:
    """Every Spark setting of the host; the user's own win, but for those that keep secrets out of tables."""
    jars = (*jar_paths(), *s3_jars(settings))
    if not missing_files(JDBC_LIB, JDBC):  # who reads no database needs none
        jars += jar_paths(JDBC_LIB, JDBC)
    java_options = [f"-Dlog4j2.configurationFile=file:{settings.home}/logs/log4j2.properties"]
    java_options += _LOCAL_JVM if _is_local(settings) else ()
    java_options += [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}"] if CLASS_ARCHIVE.exists() else []
    quoted = (f'"{option}"' for option in java_options)  # a folder's name may hold a space
    return {
        **_DELTA,
        **({} if writes_s3(settings) else _FILES),
        **_STREAMING,
        **(_LOCAL if _is_local(settings) else {}),
        **(S3_CONF if uses_s3(settings) else {}),
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.sql.warehouse.dir": str(settings.home / "warehouse"),
        **settings.spark.conf,
        JAVA_OPTIONS: " ".join([*quoted, settings.spark.conf.get(JAVA_OPTIONS, "")]).strip(),
        **KEPT,
    }


CLASS_ARCHIVE = LIB / "classes.jsa"  # which `write_archive` makes
_EXIT_TIMEOUT_S = 120
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Else `${env:PGPASSWORD}` in a comment, a property or a condition is read by Spark and written into the table's log.
KEPT = {"spark.sql.variable.substitute": "false"}
# Micro-batches on a few cores are short-lived code. The optimising compiler and G1's threads take a third of the CPU
# time and do not earn it back: 22 s against 13 s until the session is open with its tables.
# Without that compiler the JVM reserves 48 MB for code. Spark fills them in minutes, and nothing is compiled any more.
_LOCAL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=192m", "-XX:+UseSerialGC")
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A stream may begin at the version that comes next: without this, Delta refuses one that is not there yet.
    "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true",
}
# On every master: one that checks them must not meet what another wrote without them. S3A insists on them for what it
# keeps on disk until it is sent.
_FILES = {
    # Without checksum files beside each file there are half as many; each costs a process of its own (chmod, readlink).
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
_STREAMING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A second start on one checkpoint must fail, not silently stop the first.
    "spark.sql.streaming.stopActiveRunOnRestart": "false",
    "spark.sql.streaming.stopTimeout": "30s",  # the default, 0, waits for ever
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.scheduler.mode": "FAIR",  # a large job, in a pool of its own, must not hold up micro-batches
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A batch of a few hundred rows is one task. A second one is serialised, sent and read for nothing.
    "spark.sql.shuffle.partitions": "1",
    # For a few hundred rows, compiling a plan takes longer than interpreting it. With six demo streams on two cores
    # a MERGE batch took 9.6 s compiled and 5.5 s interpreted. For large local batches set both back.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # planning stage by stage costs more than a small batch
    "spark.default.parallelism": "1",
    # Delta replays a snapshot in 50 tasks by default: 3 s of every micro-batch on two cores.
    "spark.databricks.delta.snapshotPartitions": "1",
}


def open_session(settings: Settings) -> SparkSession:
    """The session, started when there is none. Raises `JavaError`, `JarError` or `SparkStartError`."""
    find_java()
    conf = {"spark.app.name": "weir", "spark.master": settings.spark.master, **spark_conf(settings)}
    folder = private_folder(settings.home / "logs")
    write_private(folder / "log4j2.properties", _LOG4J.format(folder=folder).encode())
    if _is_local(settings):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # which Python runs user functions, where not whatever `python3` is there: pyspark heeds the environment alone
    own_python = sys.executable if _is_local(settings) else None
    if python := settings.spark.conf.get("spark.pyspark.python") or own_python:
        os.environ.setdefault("PYSPARK_PYTHON", python)
    # Every user of the machine can read the arguments of a JVM: they hold no secret. Those are told later.
    builder, arguments = SparkSession.builder, SparkConf()
    for key, value in conf.items():
        builder = builder.config(key, value)
        is_used_at_launch = key.startswith((JAVA_OPTIONS, "spark.jars"))
        if is_used_at_launch or not (is_secret(key) or holds_secret(value)):
            arguments.set(key, value)
    try:
        with _standard_streams_to(folder / "jvm.log"):
            SparkContext._ensure_initialized(conf=arguments)
            session = builder.getOrCreate()
    except (PySparkException, Py4JError) as exc:
        error_class, message = describe(exc)
        hint = f"see {folder / 'jvm.log'} and spark.log: does {settings.spark.master} answer, and keep the application?"
        raise SparkStartError(f"Spark did not start: {error_class}: {message}", hint=hint) from exc
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for key, value in hadoop_options(settings, os.environ).items():  # not before: see the module's head
        if f"spark.hadoop.{key}" not in settings.spark.conf:
            hadoop.set(key, value)
    return session


def _is_local(settings: Settings) -> bool:
    return settings.spark.master.startswith("local")


@contextmanager
def _standard_streams_to(path: Path) -> Iterator[None]:
    """A child that starts meanwhile (the JVM) inherits `path` as its standard output and error.

    pyspark offers no way to set them. What the JVM prints before log4j is up would land in the terminal.
    """
    saved = (os.dup(1), os.dup(2))
    try:
        with open_private(path, "ab") as target:
            os.dup2(target.fileno(), 1)
            os.dup2(target.fileno(), 2)
        yield
    finally:
        for descriptor, before in zip((1, 2), saved, strict=True):
            os.dup2(before, descriptor)
            os.close(before)


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


def write_archive() -> None:
    """Has a session do what streams do, and keeps what it loaded: a host spends a third of its start's processor time
    on classes.

    Raises `JavaError`, `JarError` or `SparkStartError`. Source: "Application Class-Data Sharing" of Java 13 and newer.
    """
    CLASS_ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=CLASS_ARCHIVE.parent) as folder:
        made, lake = Path(folder, CLASS_ARCHIVE.name), Path(folder, "lake")
        option = {JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={made}"'}
        spark = open_session(load_settings(home=Path(folder), spark={"conf": option}))
        spark.range(9).selectExpr("id", "id % 3 AS part").write.format("delta").save(f"{lake}/source")
        changes = spark.readStream.format("delta").load(f"{lake}/source").groupBy("part").count()
        query = changes.writeStream.format("delta").outputMode("complete").option("checkpointLocation", f"{lake}/state")
        query.trigger(availableNow=True).start(f"{lake}/counts").awaitTermination()
        merge = f"MERGE INTO delta.`{lake}/source` t USING (SELECT 1L AS id, 5L AS part) s ON t.id = s.id"
        spark.sql(f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        jvm.stdin.close()
        jvm.wait(_EXIT_TIMEOUT_S)
        if made.exists():  # some JVMs keep none
            made.replace(CLASS_ARCHIVE)


if __name__ == "__main__":
    try:
        write_archive()
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        sys.exit(exc.exit_code)
