"""One `Settings`, strict, every key documented here and in docs/settings.md.

Precedence: environment (`WEIR_SECTION__KEY`) > `weir.toml` > default.
"""

import glob
import os
import re
import tomllib
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as SourceError

from backend.access import Actor, Grant, Role
from backend.errors import SettingsError
from backend.redaction import remember, remember_options
from backend.table_policies import OptimizeWhen, TablePolicy

_HINT = "docs/settings.md lists every key"
HOST = r"(?P<name>(?i:\[[0-9a-f:.]+\]|[a-z0-9_.-]+))(:(?P<port>[0-9]{1,5}))?"
_SAFE_ORIGIN = rf"(https://{HOST}|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{{1,5}})?)"
STREAM_BYTES = 32 * 1_024**2  # of the heap of a driver, that a stream needs
DEMO = "pipelines.demo"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LakeSettings(Section):
    roots: Annotated[
        list[str],
        Field(description="Folders or URIs that may be read. Nothing outside is opened. Empty: `lake.tables_uri`."),
    ] = []
    read_only_roots: Annotated[
        list[str],
        Field(description="Roots, or folders below them, whose tables nobody may act on: they can be looked at alone."),
    ] = []
    tables_uri: Annotated[
        str,
        Field(description="Folder or URI below which streams make their tables. Empty: `$WEIR_HOME/lake`."),
    ] = ""
    storage_options: Annotated[
        dict[str, dict[str, SecretStr]],
        Field(description="For each root URI the options of its object store (endpoint, region, credentials)."),
    ] = {}
    preview_rows: Annotated[int, Field(ge=1, le=10_000, description="Most rows a data preview shows.")] = 200
    diff_rows: Annotated[
        int, Field(ge=1, le=1_000_000, description="Most changed rows that a diff returns. The counts are of all rows.")
    ] = 1_000
    diff_max_bytes: Annotated[
        int,
        Field(ge=1, description="Most bytes of data files that a diff reads here, unless its method is chosen."),
    ] = 2 * 1024**3
    diff_time_limit_s: Annotated[float, Field(gt=0, description="How long a diff may compare rows, in seconds.")] = (
        600.0
    )
    filter_time_limit_s: Annotated[
        float, Field(gt=0, description="How long a page looks for the rows that a filter lets through, in seconds.")
    ] = 120.0
    judged_rows: Annotated[
        int,
        Field(ge=0, description="Most rows of a commit that are read to judge it. 0: by the log alone."),
    ] = 1_000_000
    query_max_bytes: Annotated[
        int, Field(ge=1, description="Most bytes of data files that a SQL query reads, unless it is confirmed.")
    ] = 10 * 1024**3
    query_memory_bytes: Annotated[
        int, Field(ge=64_000_000, description="Memory of the process that runs a SQL query; beyond it spills to disk.")
    ] = 1_000_000_000
    query_spill_bytes: Annotated[
        int, Field(ge=0, description="Most bytes that a SQL query may spill into a folder of its own.")
    ] = 10 * 1024**3
    query_time_limit_s: Annotated[float, Field(gt=0, description="How long a SQL query may run, in seconds.")] = 120.0
    checkpoint_max_files: Annotated[
        int, Field(ge=1, description="Most rows of a checkpoint. A table whose checkpoint has more is refused.")
    ] = 10_000_000
    checkpoint_max_bytes: Annotated[
        int,
        Field(ge=1, description="Most bytes to unpack of a checkpoint's file, at most 200 times its size and 256 MiB."),
    ] = 4 * 1024**3
    max_columns: Annotated[
        int, Field(ge=1, description="Most columns of a table, nested ones counted. A table with more is refused.")
    ] = 20_000
    refresh_s: Annotated[
        float, Field(gt=0, description="How old a listing of the lake may be before it is read again, in seconds.")
    ] = 5.0

    @model_validator(mode="after")
    def _no_root_is_empty(self) -> "LakeSettings":
        if not all(root.strip() for root in self.roots):
            raise ValueError("a root is empty: it would open the working directory")
        return self


class StoreSettings(Section):
    url: Annotated[
        SecretStr,
        Field(
            description="SQLAlchemy URL of the control store (SQLite or PostgreSQL). Empty: `sqlite:///$WEIR_HOME/store/weir.db`."
        ),
    ] = SecretStr("")
    progress_retention_days: Annotated[
        float, Field(gt=0, description="Days for which each batch's progress is kept, with Spark's own report.")
    ] = 7.0
    progress_max_rows: Annotated[
        int, Field(ge=1, description="Most batches whose progress is kept; the oldest go first.")
    ] = 1_000_000
    minutes_retention_days: Annotated[
        float,
        Field(gt=0, description="How long a stream's figures per minute are kept, for charts up to 24 h, in days."),
    ] = 3.0
    hours_retention_days: Annotated[
        float,
        Field(gt=0, description="How long its figures per hour and its runs are kept, for charts over days, in days."),
    ] = 400.0
    audit_retention_days: Annotated[
        float, Field(ge=0, description="Days for which the audit trail is kept, 90 or more. 0: for ever.")
    ] = 0.0

    @field_validator("audit_retention_days")
    @classmethod
    def _is_ninety_days_at_least(cls, days: float) -> float:
        if 0 < days < 90:
            raise ValueError("the audit trail is kept for 90 days or more, or for ever (0)")
        return days


class SparkSettings(Section):
    master: Annotated[str, Field(description="Spark master of the stream host.")] = "local[2]"
    driver_memory: Annotated[str, Field(description="Heap of the host's JVM, as Spark writes it.")] = "2g"
    conf: Annotated[dict[str, str], Field(description="More Spark settings; they win over Weir's own.")] = {}


class HostSettings(Section):
    pipelines: Annotated[
        list[str],
        Field(
            description="Python modules that declare streams: `Pipeline` values or a function `pipelines(settings)`."
        ),
    ] = [DEMO]
    checkpoints_uri: Annotated[
        str,
        Field(description="Folder or URI of the checkpoints, also for pages. Empty: `$WEIR_HOME/checkpoints`."),
    ] = ""
    tags: Annotated[
        list[str],
        Field(description="What this host has (`eu`, `gpu`). A stream with the tag `host` runs only where it is."),
    ] = []
    max_streams: Annotated[
        int,
        Field(ge=0, description="Streams that run on one host at most. 0: one for each 32 MB of its JVM's heap."),
    ] = 0
    reconcile_interval_s: Annotated[
        float, Field(gt=0, description="Pause between two reconciliations, in seconds.")
    ] = 1.0
    heartbeat_stale_s: Annotated[
        float, Field(gt=0, description="How long a host may be silent, in seconds. Then its streams show UNKNOWN.")
    ] = 15.0
    lease_ttl_s: Annotated[
        float, Field(gt=0, description="How long a lease on a stream outlives its host, in seconds.")
    ] = 15.0
    stop_timeout_s: Annotated[
        float, Field(gt=0, description="How long a stop waits for the running micro-batch, in seconds.")
    ] = 30.0
    max_restarts: Annotated[
        int,
        Field(
            ge=0,
            description="Failures within `restart_window_s` after which a stream is FAILED and waits for a person.",
        ),
    ] = 5
    restart_window_s: Annotated[float, Field(gt=0, description="Window in which failures are counted, in seconds.")] = (
        600.0
    )
    backoff_initial_s: Annotated[
        float, Field(gt=0, description="Pause before the first restart, in seconds. It doubles with each failure.")
    ] = 1.0
    backoff_max_s: Annotated[float, Field(gt=0, description="Longest pause before a restart, in seconds.")] = 60.0
    freshness_interval_s: Annotated[
        float, Field(gt=0, description="Pause between two looks whether tables that should be fresh are, in seconds.")
    ] = 15.0
    expectations_interval_s: Annotated[
        float,
        Field(gt=0, description="Pause between two looks at keys and daily rows that are expected, in seconds."),
    ] = 300.0
    keys_max_bytes: Annotated[
        int, Field(ge=0, description="Keys of larger tables are not judged, in bytes; pages say so.")
    ] = 10_000_000_000
    metrics_address: Annotated[
        str,
        Field(
            pattern=r"^$|^(\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):\d{1,5}$",
            description="`address:port` on which each host serves `/metrics`, without a login. Empty: it serves none.",
        ),
    ] = ""

    @model_validator(mode="after")
    def _tags_are_words(self) -> "HostSettings":
        if not all(re.fullmatch(r"[\w.-]+", tag) for tag in self.tags):
            raise ValueError("a tag is one word of letters, digits, '_', '.' and '-'")
        return self


class JobSettings(Section):
    results_uri: Annotated[
        str,
        Field(
            description="Folder or URI for the results of comparisons and queries: hosts write, pages and commands "
            "read. Empty: `$WEIR_HOME/results`."
        ),
    ] = ""
    at_once: Annotated[int, Field(ge=0, le=8, description="Jobs that one host runs at the same time, 0 for none.")] = 1
    time_limit_s: Annotated[float, Field(gt=0, description="How long one job may run, in seconds.")] = 3_600.0
    query_rows: Annotated[
        int, Field(ge=1, le=1_000_000, description="Most rows that a host keeps of a SQL query, the first ones.")
    ] = 10_000
    retention_days: Annotated[
        float, Field(gt=0, description="The host deletes jobs and their results this long after they ended, in days.")
    ] = 7.0


class UiSettings(Section):
    address: Annotated[str, Field(description="Address the UI listens on.")] = "127.0.0.1"
    allowed_hosts: Annotated[
        list[str],
        Field(
            description="Names by which browsers reach Weir besides the address it listens on: `name` or `name:port`."
        ),
    ] = []
    export_time_limit_s: Annotated[
        float, Field(gt=0, description="How long one export to a browser may take, in seconds.")
    ] = 3_600.0
    export_min_bytes_per_s: Annotated[
        int,
        Field(ge=1, description="Least rate at which a browser has to take each megabyte of an export."),
    ] = 10_000
    exports_per_viewer: Annotated[
        int, Field(ge=1, le=4, description="Exports that one viewer runs at the same time, of four in all.")
    ] = 2
    trusted_proxies: Annotated[
        list[str],
        Field(
            description="Addresses or networks of reverse proxies. Only their `X-Forwarded-*`, `ui.user_header` and "
            "`ui.groups_header` count."
        ),
    ] = []
    user_header: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9-]*$",
            description="Header in which a trusted proxy names who is logged in, such as `X-Forwarded-Email`.",
        ),
    ] = ""
    groups_header: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9-]*$",
            description="Header in which it lists their groups, with commas, such as `X-Forwarded-Groups`.",
        ),
    ] = ""
    frame_ancestors: Annotated[
        list[str],
        Field(description="Origins whose pages may show Weir in a frame, such as `https://portal.example.com`."),
    ] = []
    allow_remote_writes: Annotated[
        bool, Field(description="Let every viewer act, also where the UI listens on another address than loopback.")
    ] = False
    live_interval_s: Annotated[
        float,
        Field(
            gt=0,
            description="Pause between two updates of a live panel, in seconds; longer while more than 25 watch.",
        ),
    ] = 2.0
    metrics_tables: Annotated[
        int,
        Field(ge=0, le=100_000, description="Most tables, the largest first, with series of their own in `/metrics`."),
    ] = 500

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_networks(cls, proxies: list[str]) -> list[str]:
        return [str(ip_network(proxy)) for proxy in proxies]

    @model_validator(mode="after")
    def _hosts_are_no_urls(self) -> "UiSettings":
        if not all(re.fullmatch(HOST, host) for host in self.allowed_hosts):
            raise ValueError(
                "allowed_hosts holds `name`, `name:port`, `[IPv6]` or `[IPv6]:port`, no scheme and no path"
            )
        if not all(re.fullmatch(rf"https?://{HOST}", origin) for origin in self.frame_ancestors):
            raise ValueError("frame_ancestors holds origins: `https://name` or `https://name:port`, no path")
        return self


class Provider(Section):
    metadata_url: Annotated[str, Field(description="Address of its `/.well-known/openid-configuration`.")]
    client_id: Annotated[str, Field(min_length=1, description="Under which the provider knows Weir.")]
    client_secret: Annotated[SecretStr, Field(description="That the provider gave Weir with it.")]
    label: Annotated[str, Field(description="What the button says after *Log in with*. Empty: the name.")] = ""
    scope: Annotated[str, Field(description="What it is asked for; some need `groups` too.")] = "openid email profile"


class AuthSettings(Section):
    providers: Annotated[dict[str, Provider], Field(description="Whose logins by OpenID Connect count, by name.")] = {}
    redirect_url: Annotated[str, Field(description="Weir's address for browsers, then `/oauth2callback`.")] = ""
    cookie_secret: Annotated[
        SecretStr, Field(description="Signs logins: 32 random characters or more, for all pages the same.")
    ] = SecretStr("")
    session_hours: Annotated[float, Field(gt=0, le=720, description="How long a login counts, in hours.")] = 12.0
    name_claim: Annotated[str, Field(description="What names a person in a token; nobody may choose it.")] = "email"
    groups_claim: Annotated[str, Field(description="What lists their groups: `groups`, `realm.roles`.")] = "groups"
    grants: Annotated[
        list[Grant],
        Field(description="Who may do what; in `weir.toml` as `[[auth.grants]]`. None: as without a login."),
    ] = []
    default_role: Annotated[
        Role | Literal["none"] | None,
        Field(
            description="What whoever is logged in may do to everything. `none`: who has no grant sees nothing. "
            "Unset: `viewer` where there are grants."
        ),
    ] = None
    terminal_role: Annotated[
        Role | None,
        Field(description="What the user of a terminal may do without a grant of their own. Unset: everything."),
    ] = None

    restricted: Annotated[list[str], Field(description="Tags whose rows need a grant by name.")] = ["restricted"]

    @model_validator(mode="after")
    def _login_is_whole(self) -> "AuthSettings":
        addresses = [provider.metadata_url for provider in self.providers.values()]
        if self.providers and (len(self.cookie_secret) < 32 or not self.redirect_url.endswith("/oauth2callback")):
            raise ValueError("providers need a cookie_secret of 32 characters or more, and a redirect_url")
        if not all(re.fullmatch("[a-z0-9-]+", name) for name in self.providers):
            raise ValueError("the name of a provider has lower case letters, digits and `-`")
        if not all(
            re.fullmatch(rf"{_SAFE_ORIGIN}/\S+", url) for url in [*addresses, *filter(None, [self.redirect_url])]
        ):
            raise ValueError("metadata_url and redirect_url begin with https://, or with http:// on this machine")
        return self

    def actor(self, name: str, groups: Iterable[str] = (), *, of_terminal: bool = False) -> Actor:
        """Somebody who is known by this name and in these groups, with what they may do."""
        default = self.terminal_role if of_terminal else self.default_role
        if default is None and (of_terminal or not self.grants):
            return Actor(name, groups=frozenset(groups))
        role = None if default == "none" else default or Role.VIEWER
        return Actor(name, "", frozenset(groups), tuple(self.grants), role)


class HealthSettings(Section):
    target_file_bytes: Annotated[
        int | None,
        Field(
            gt=0,
            description="Target file size where a table sets none, in bytes. Unset: by table size, 256 MB to 1 GB.",
        ),
    ] = None
    small_file_ratio: Annotated[
        float, Field(gt=0, le=1, description="A file is small below this share of the target size.")
    ] = 0.5
    min_files: Annotated[
        int,
        Field(ge=1, description="With fewer files to merge, or partitions that hold too little, a table is fine."),
    ] = 16
    stale_after_s: Annotated[
        float, Field(gt=0, description="A table is stale when its last commit is older than this, in seconds.")
    ] = 86_400.0
    data_loss_within_s: Annotated[
        float,
        Field(gt=0, description="Told on Overview: retention deletes unread input of a stream sooner, in seconds."),
    ] = 259_200.0


class NotifySettings(Section):
    webhook: Annotated[
        SecretStr, Field(description="Address that hosts POST what needs attention to, as JSON for Slack. Empty: none.")
    ] = SecretStr("")
    severity: Annotated[
        str,
        Field(
            pattern="^(critical|warning|note)$",
            description="Lowest severity that is sent: `critical`, `warning` or `note`.",
        ),
    ] = "warning"

    @field_validator("webhook")
    @classmethod
    def _is_url(cls, webhook: SecretStr) -> SecretStr:
        url = webhook.get_secret_value()
        match = re.fullmatch(rf"https?://{HOST}([/?][!-~]*)?", url)
        if url and (match is None or int(match["port"] or 0) > 65_535):
            raise ValueError("it is no http:// or https:// address, without a login in it")
        return webhook


class DemoSettings(Section):
    enabled: Annotated[bool, Field(description="Whether `weir up` starts the demo generator.")] = True
    seed: Annotated[int, Field(description="Seed of the demo generator.")] = 7
    events_per_s: Annotated[float, Field(gt=0, description="Events landed per second.")] = 20.0
    orders_per_s: Annotated[float, Field(gt=0, description="Order changes landed per second.")] = 5.0
    landing_interval_s: Annotated[
        float, Field(gt=0, description="Pause between two landed files of a kind, in seconds.")
    ] = 2.0
    pace: Annotated[
        float, Field(gt=0, description="How often the demo's streams trigger: 2 is twice as often, 0.5 half as often.")
    ] = 1.0
    kafka: Annotated[
        str,
        Field(
            pattern=r"^$|^[^:,]+:\d+$",
            description="`host:port` of a Kafka broker that `weir up` starts here; the demo goes through its topics. "
            "Empty: through files. Used by `make run-kafka`.",
        ),
    ] = ""
    policy: Annotated[
        bool, Field(description="Whether the host merges the small files of the demo's `bronze_orders` by itself.")
    ] = True


class Settings(BaseSettings):
    """All settings. Build with `load_settings`; frozen afterwards."""

    model_config = SettingsConfigDict(
        env_prefix="WEIR_", env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True,
        hide_input_in_errors=True,
    )  # fmt: skip

    home: Annotated[Path, Field(description="Folder of lake, checkpoints, store and logs.")] = Path(".weir")
    port: Annotated[int, Field(ge=1, le=65_535, description="Port of the UI.")] = 8501
    policies: Annotated[
        list[TablePolicy],
        Field(description="Acts on tables that the stream host does by itself; in `weir.toml` as `[[policies]]`."),
    ] = []
    lake: LakeSettings = LakeSettings()
    store: StoreSettings = StoreSettings()
    spark: SparkSettings = SparkSettings()
    host: HostSettings = HostSettings()
    jobs: JobSettings = JobSettings()
    ui: UiSettings = UiSettings()
    auth: AuthSettings = AuthSettings()
    health: HealthSettings = HealthSettings()
    notify: NotifySettings = NotifySettings()
    demo: DemoSettings = DemoSettings()

    @field_validator("home")
    @classmethod
    def _absolute_home(cls, home: Path) -> Path:
        try:
            return home.expanduser().absolute()
        except RuntimeError as exc:
            raise ValueError(f"{home} begins with the home of a user who is not known") from exc

    @property
    def roots(self) -> tuple[str, ...]:
        """The allowed roots, never empty; local ones as absolute paths."""
        return tuple(self.lake.roots) or (self.tables_uri,)

    @property
    def checkpoints_uri(self) -> str:
        """Where checkpoints lie, a folder a stream, and what belongs to them."""
        return self.host.checkpoints_uri.rstrip("/") or str(self.home / "checkpoints")

    @property
    def tables_uri(self) -> str:
        """Where streams make their tables, `layer/name` below it."""
        return self.lake.tables_uri.rstrip("/") or str(self.home / "lake")

    @property
    def table_policies(self) -> tuple[TablePolicy, ...]:
        """The policies, and that of the demo while its streams are there: for its own table, wherever it lies."""
        if not (self.demo.enabled and self.demo.policy and DEMO in self.host.pipelines):
            return tuple(self.policies)
        own = glob.escape(f"{self.tables_uri}/bronze/bronze_orders")
        return (*self.policies, TablePolicy(tables=own, optimize=OptimizeWhen(spares_files=20)))

    @property
    def dashboard_folders(self) -> tuple[Path, ...]:
        """Where dashboards lie: beside `weir.toml`, and that of the demo while its streams and tables are there."""
        own = _config_file().parent / "dashboards"
        is_shown = f"{self.tables_uri}/".startswith(tuple(f"{root.rstrip('/')}/" for root in self.roots))
        is_demo = self.demo.enabled and DEMO in self.host.pipelines and is_shown
        return (own, Path(__file__).parents[1].joinpath(*DEMO.split("."), "dashboards")) if is_demo else (own,)

    @property
    def max_streams(self) -> int:
        """How many streams one host runs at most. A heap that Spark will refuse counts as 2 GB."""
        heap = self.spark.conf.get("spark.driver.memory", self.spark.driver_memory).strip().lower()
        match = re.fullmatch(r"(\d+)([kmgt]?)b?", heap)
        number, unit = match.groups() if match else ("2", "g")
        heap_bytes = int(number) * 1_024 ** ("kmgt".index(unit or "m") + 1)
        return self.host.max_streams or max(1, heap_bytes // STREAM_BYTES)

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL with its password: for the store alone, never for logs."""
        return self.store.url.get_secret_value() or f"sqlite:///{self.home / 'store' / 'weir.db'}"

    @property
    def results_uri(self) -> str:
        """Where results of jobs lie."""
        return self.jobs.results_uri or str(self.home / "results")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, InitSettingsSource(settings_cls, _from_file()))


def load_settings(**given: object) -> Settings:
    """Settings as given, from environment, `weir.toml` and defaults; raises `SettingsError` naming each wrong key.

    From then on no text of this process shows a secret that is among them or in the environment.
    """
    _refuse_unknown_variables()
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as exc:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors(include_input=False))
        raise SettingsError(f"settings are wrong: {wrong}", hint=_HINT) from exc
    except SourceError as exc:
        raise SettingsError(f"{exc}: lists and maps are written as JSON", hint=_HINT) from exc
    places = ("PWD", "OLDPWD")  # the shell's folders, not passwords
    remember_options({name: value for name, value in os.environ.items() if name not in places})
    remember_options(settings.spark.conf)
    auth = settings.auth
    own = settings.notify.webhook, auth.cookie_secret, *(provider.client_secret for provider in auth.providers.values())
    remember([secret.get_secret_value() for secret in own])
    for secrets in settings.lake.storage_options.values():
        remember_options({name: value.get_secret_value() for name, value in secrets.items()})
    return settings


def _config_file() -> Path:
    return Path(os.environ.get("WEIR_CONFIG") or "weir.toml")


def _from_file() -> dict[str, Any]:
    """What `weir.toml` says; nothing where there is none, unless `WEIR_CONFIG` names it."""
    file = _config_file()
    if not os.environ.get("WEIR_CONFIG") and not file.exists():
        return {}
    try:
        return tomllib.loads(file.expanduser().read_text("utf-8"))
    except (OSError, RuntimeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise SettingsError(f"{file} cannot be read: {why}", hint="WEIR_CONFIG names the file of settings") from exc
    except ValueError as exc:
        raise SettingsError(f"{file} is not TOML: {exc}", hint=_HINT) from exc


def _refuse_unknown_variables() -> None:
    """The library checks keys inside a section but ignores a misspelled section or top-level key."""
    sections = {name for name, field in Settings.model_fields.items() if isinstance(field.default, Section)}
    for variable in os.environ:
        if not variable.startswith("WEIR_") or variable == "WEIR_CONFIG" or variable.startswith("WEIR_TEST_"):
            continue
        name, nested, _ = variable.removeprefix("WEIR_").lower().partition("__")
        if name not in (sections if nested else Settings.model_fields):
            raise SettingsError(f"{variable} is not a setting", hint=_HINT)
