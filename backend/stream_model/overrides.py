"""Settings that a person gives a stream in place of the declared ones: its trigger, how much a batch reads, Spark's.

Rule: overrides hold for every later start, on whichever host, until somebody asks for others or for none.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from backend.errors import OverrideError
from backend.format import interval_s
from backend.stream_model.stream import InputKind, StreamDeclaration

TRIGGER = "trigger"
TABLE_CHANGES = "table_changes"  # an operator's word for declared changes that wait for one, by name
AVAILABLE_NOW = "available now"
LONGEST = 200
_TABLE_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
_LIMITS: Mapping[str, tuple[str, ...]] = {
    InputKind.TABLE: _TABLE_LIMITS,
    InputKind.CHANGE_FEED: _TABLE_LIMITS,
    InputKind.FILES: _TABLE_LIMITS,
    InputKind.KAFKA: ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions"),
}
LIMITS = frozenset(key for keys in _LIMITS.values() for key in keys)
# What Spark does sooner, later or in larger pieces. Whatever decides what is read, written or loaded is for those who
# deploy: another checkpoint, files passed over and a class by its name are all settings too.
SPARK = (
    *("spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold", "spark.sql.broadcastTimeout"),
    *("spark.sql.files.maxPartitionBytes", "spark.sql.files.minPartitionNum", "spark.sql.files.maxPartitionNum"),
    *("spark.sql.files.openCostInBytes", "spark.sql.files.maxRecordsPerFile"),
    *("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode", "spark.sql.adaptive.enabled"),
    *("spark.sql.adaptive.advisoryPartitionSizeInBytes", "spark.sql.adaptive.coalescePartitions.enabled"),
    *("spark.sql.adaptive.skewJoin.enabled", "spark.sql.execution.arrow.maxRecordsPerBatch"),
    *("spark.sql.streaming.stateStore.maintenanceInterval", "spark.sql.streaming.stateStore.minDeltasForSnapshot"),
    *("spark.sql.streaming.noDataMicroBatches.enabled", "spark.sql.streaming.pollingDelay"),
    *("spark.databricks.delta.snapshotPartitions", "spark.databricks.delta.autoCompact.enabled"),
    *("spark.databricks.delta.autoCompact.minNumFiles", "spark.databricks.delta.autoCompact.maxFileSize"),
    *("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.optimizeWrite.binSize"),
    *("spark.databricks.delta.optimize.maxFileSize", "spark.databricks.delta.optimize.minFileSize"),
    *("spark.databricks.delta.merge.repartitionBeforeWrite.enabled",),
)
_GUARDED = (  # what exactly once, the checkpoint and secrets stand on
    *("spark.sql.streaming.stopActiveRunOnRestart", "spark.sql.streaming.checkpoint", "spark.sql.extensions"),
    *("spark.sql.catalog", "spark.sql.warehouse", "spark.databricks.delta.write", "spark.databricks.delta.commitInfo"),
    *("spark.databricks.delta.retentionDurationCheck", "spark.databricks.delta.merge.materializeSource"),
    "spark.sql.variable.substitute",
)
_DELAY = re.compile(r"[1-9]\d*\s*(ms|s|m|min|h|d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is declared, as it is now, and as it will be; None: not set, so the host's or Spark's."""

    key: str
    declared: str | None
    now: str | None
    after: str | None
    note: str = ""

    @property
    def changes(self) -> bool:
        return self.now != self.after


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` texts; raises `OverrideError`."""
    overrides = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise OverrideError(f"{text!r} is no setting", hint='write KEY=VALUE, like "trigger=30 seconds"')
        overrides[key] = value
    return overrides


def known_keys(declared: StreamDeclaration) -> tuple[str, ...]:
    """What may be set beside Spark's own settings: the trigger, the limits of its sources, changes of its tables."""
    limits = (key for source in declared.inputs for key in _LIMITS.get(source.kind, ()))
    of_tables = (TABLE_CHANGES,) if declared.tables else ()
    return tuple(dict.fromkeys((TRIGGER, *(limits if not declared.is_view else ()), *of_tables)))


def check_overrides(declared: StreamDeclaration, overrides: Mapping[str, str]) -> None:
    """Raises `OverrideError` where one cannot be set on this stream, or has no such value."""
    allowed = known_keys(declared)
    if any(source.kind == InputKind.FILES for source in declared.inputs) and overrides.keys() >= set(_TABLE_LIMITS):
        raise OverrideError(f"{' and '.join(_TABLE_LIMITS)}: files take one of them", hint="leave one out")
    require_settable(declared.name, overrides, allowed)
    for key, value in overrides.items():
        is_right, example = _VALUES.get(key, (lambda text: 0 < len(text) <= LONGEST and text.isprintable(), "a text"))
        if not is_right(value):
            raise OverrideError(f"{key}={value!r} is not understood", hint=f"write {example}")


def require_settable(
    name: str, keys: Iterable[str], allowed: Collection[str] = (TRIGGER, TABLE_CHANGES, *LIMITS)
) -> None:
    """Raises `OverrideError` for a key that is neither `allowed` nor one of Spark's that may be set on any stream."""
    for key in keys:
        if any(key == guarded or key.startswith(f"{guarded}.") for guarded in _GUARDED):
            raise OverrideError(
                f"{key} is Weir's own: writing exactly once and keeping secrets stand on it", hint="leave it out"
            )
        if key not in allowed and key not in SPARK:
            raise OverrideError(f"{key} cannot be set on {name}", hint=_instead(key, allowed))


def _instead(key: str, allowed: Iterable[str]) -> str:
    """Where such a setting is made, or what else can be set here."""
    if key.startswith(("spark.sql.", "spark.databricks.delta.")):
        return "declare it with the stream: spark_conf={…}, and deploy; here one sets pace and sizes (docs/streams.md)"
    if key.startswith("spark."):
        return "it is of the whole Spark: the host is started with it in WEIR_SPARK__CONF"
    return f"one can set {', '.join(allowed)}, and Spark's pace and sizes, such as {SPARK[0]}"


def limits_of(kind: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Options for the reader of such a source."""
    return {key: overrides[key] for key in _LIMITS.get(kind, ()) if key in overrides}


def spark_conf_of(overrides: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in overrides.items() if key in SPARK}


def with_overrides(declared: StreamDeclaration, overrides: Mapping[str, str]) -> StreamDeclaration:
    """The declaration as the stream runs: pace and limits are judged by these."""
    if not overrides:
        return declared
    inputs = tuple(
        replace(source, options={**source.options, **limits_of(source.kind, overrides)}) for source in declared.inputs
    )
    interval_ms = declared.trigger_interval_ms
    if TRIGGER in overrides:
        interval_ms = round(1_000 * (interval_s(overrides[TRIGGER]) or 0))
    conf = {**declared.spark_conf, **spark_conf_of(overrides)}
    return replace(declared, inputs=inputs, trigger_interval_ms=interval_ms, spark_conf=conf)


def compare(
    declared: StreamDeclaration,
    now: Mapping[str, str],
    after: Mapping[str, str],
    pinned: Mapping[str, str] | None = None,
) -> tuple[Setting, ...]:
    """Each setting that is or will be overridden. `pinned`: Spark's settings that the checkpoint goes on with."""
    values, settings = declared_values(declared), []
    for key in dict.fromkeys((*now, *after)):
        was = (pinned or {}).get(key)
        is_pinned = was is not None and key in after and was != after[key]
        note = f"its checkpoint goes on with {was}, until it is reset" if is_pinned else ""
        value = values.get(key)
        settings.append(Setting(key, value, now.get(key, value), after.get(key, value), note))
    return tuple(settings)


def declared_values(declared: StreamDeclaration) -> dict[str, str]:
    """The values of all that is declared and may be overridden."""
    limits = (limits_of(source.kind, source.options).items() for source in declared.inputs)
    return {
        TRIGGER: trigger_text(declared.trigger_interval_ms),
        **dict(pair for pairs in limits for pair in pairs),
        **declared.spark_conf,
    }


def trigger_text(interval_ms: int) -> str:
    """ "10 seconds", as a declaration has it."""
    if not interval_ms:
        return AVAILABLE_NOW
    seconds = interval_ms / 1_000
    return f"{seconds:g} second{'s' if seconds != 1 else ''}"


def changes(settings: Iterable[Setting]) -> dict[str, str]:
    """ "5 seconds → 30 seconds" by its key, of each that changes."""
    return {setting.key: f"{shown(setting.now)} → {shown(setting.after)}" for setting in settings if setting.changes}


def overridden_text(settings: Iterable[Setting]) -> str:
    """ "trigger 30 seconds (declared: 5 seconds), …"; empty without any."""
    return ", ".join(
        f"{setting.key} {shown(setting.now)} (declared: {shown(setting.declared)})" for setting in settings
    )


def shown(value: str | None) -> str:
    return "not set" if value is None else value


def _is_count(value: str) -> bool:
    return value.isascii() and value.isdigit() and int(value) > 0


_COUNT = (_is_count, "a number above 0")
_VALUES: Mapping[str, tuple[Callable[[str], object], str]] = {
    TRIGGER: (
        lambda value: value == AVAILABLE_NOW or interval_s(value) is not None,
        '"30 seconds", "1 minute" or "available now"',
    ),
    "maxBytesPerTrigger": (_is_count, "a number of bytes"),
    "maxTriggerDelay": (_DELAY.fullmatch, "a span, like 5m"),
    **dict.fromkeys(
        ("maxFilesPerTrigger", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions"),
        _COUNT,
    ),
}
