"""IcebergSinkConfig: every setting of the Iceberg sink, checked when it is built."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from volley._secrets import show
from volley.errors import ConfigError, near
from volley.iceberg.catalogs import CatalogConfig, MemoryCatalog, RestCatalog, catalog_of
from volley.iceberg.modes import CommitMode
from volley.iceberg.partitioning import Partitioning, Transform
from volley.iceberg.storage import AzureStorage, GcsStorage, LocalStorage, S3Storage

__all__ = ["COMPRESSIONS", "TUNINGS", "IcebergSinkConfig"]

Storage = S3Storage | AzureStorage | GcsStorage | LocalStorage

COMPRESSIONS: dict[str, range | None] = {
    "none": None,
    "snappy": None,
    "gzip": range(1, 10),
    "lz4": None,
    "zstd": range(1, 23),
    "brotli": range(0, 12),
}
"""The codecs, and the levels each takes."""

TUNINGS: dict[str, dict[str, Any]] = {
    "low_latency": {"batch_size": 1_000, "flush_interval": timedelta(seconds=10), "target_file_size_mb": 32},
    "balanced": {"batch_size": 10_000, "flush_interval": timedelta(seconds=60), "target_file_size_mb": 128},
    "high_throughput": {"batch_size": 100_000, "flush_interval": timedelta(seconds=300), "target_file_size_mb": 512},
}
"""The presets of `with_tuning`."""

_EVOLUTIONS = ("strict", "add_columns", "full")
# Keys that Iceberg itself puts into a snapshot's summary.
_SUMMARY_KEY = re.compile(r"^(operation|added|deleted|removed|total|changed|partition|replace|spark|engine|volley)\b")


@dataclass(frozen=True, repr=False)
class IcebergSinkConfig:
    """Which table the sink writes to, and how. A frozen value: each ``with_…`` returns a changed copy.

    Args:
        catalog_uri: ``http(s)://`` for a REST catalog, ``sqlite:///`` or ``postgresql://`` for SQL, ``thrift://`` for
            Hive, ``memory://``; None = `catalog`, or a SQLite catalog beside local storage.
        warehouse: The catalog's name for the warehouse, or its URL; None = the storage's location.
        namespace: A list of names, or one dotted string.
        table: The table's name.
        storage: An `IcebergStorage`; None if the catalog hands out credentials.
        catalog: A catalog value, in place of `catalog_uri`.

    Other settings have setters; their defaults are in the README's table.

    Raises:
        ConfigError: If a setting is wrong, or not supported yet.

    Example:
        >>> from volley.iceberg import IcebergSinkConfig, IcebergStorage
        >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
        >>> config.with_compression("zstd", level=3).compression
        'zstd'
    """

    catalog_uri: str | None = None
    warehouse: str | None = None
    namespace: Sequence[str] | str = ()
    table: str = ""
    storage: Storage | None = None
    catalog: CatalogConfig | None = None
    credential: str | None = None
    token: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    max_records: int | None = None
    batch_size: int = 10_000
    flush_interval: timedelta | None = None
    target_file_size_mb: float = 128
    compression: str = "snappy"
    compression_level: int | None = None
    partitioning: Partitioning | str | Sequence[Transform] = "table_default"
    commit_mode: CommitMode | str = "append"
    schema_evolution: str = "add_columns"
    create_table: bool = True
    branch: str = "main"
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    dead_letter: str | None = None

    def __post_init__(self) -> None:
        self._set("namespace", _namespace(self.namespace))
        self._set("catalog", catalog_of(self.catalog_uri, self.catalog, self.storage))
        self._set("partitioning", Partitioning.of(self.partitioning))  # type: ignore[arg-type]
        self._set("commit_mode", CommitMode.of(self.commit_mode))
        self._set("properties", MappingProxyType(dict(self.properties)))
        self._set("snapshot_properties", MappingProxyType(dict(self.snapshot_properties)))
        _check_name("table", self.table)
        _check_numbers(self)
        _check_compression(self.compression, self.compression_level)
        _check_credentials(self)
        for key in self.snapshot_properties:
            if _SUMMARY_KEY.match(key):
                raise ConfigError(f"snapshot property {key!r} is Iceberg's or Volley's own", hint="prefix it: myteam.…")
        if self.schema_evolution not in _EVOLUTIONS:
            raise ConfigError(
                f"schema_evolution {self.schema_evolution!r} is unknown", hint=near(self.schema_evolution, _EVOLUTIONS)
            )
        _refuse_unsupported(self)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace and table, as pyiceberg takes them."""
        return (*self.namespace, self.table)

    @property
    def table_name(self) -> str:
        """Namespace and table, dotted, for messages."""
        return ".".join(self.identifier)

    @property
    def source(self) -> CatalogConfig:
        """The catalog, however it was given."""
        assert self.catalog is not None
        return self.catalog

    def with_credential(self, credential: str) -> IcebergSinkConfig:
        """OAuth2 client credentials for a REST catalog, ``"id:secret"``."""
        return replace(self, credential=credential)

    def with_token(self, token: str) -> IcebergSinkConfig:
        """A bearer token for a REST catalog."""
        return replace(self, token=token)

    def with_properties(self, properties: Mapping[str, str]) -> IcebergSinkConfig:
        """Anything more for pyiceberg's catalog and FileIO; they win over what the other settings say."""
        return replace(self, properties={**self.properties, **properties})

    def with_max_records(self, rows: int | None) -> IcebergSinkConfig:
        """The most rows one data file holds; None = files are closed by size alone."""
        return replace(self, max_records=rows)

    def with_batch_size(self, rows: int) -> IcebergSinkConfig:
        """The most rows of an Arrow batch handed to the writer."""
        return replace(self, batch_size=rows)

    def with_flush_interval(self, interval: timedelta | float | None) -> IcebergSinkConfig:
        """The longest time rows wait before a commit: a timedelta, or seconds."""
        return replace(
            self, flush_interval=timedelta(seconds=interval) if isinstance(interval, (int, float)) else interval
        )

    def with_target_file_size_mb(self, megabytes: float) -> IcebergSinkConfig:
        """A data file is closed when its encoded size reaches this many MiB (±10 %)."""
        return replace(self, target_file_size_mb=megabytes)

    def with_compression(self, compression: str, level: int | None = None) -> IcebergSinkConfig:
        """The Parquet codec: none, snappy, gzip, lz4, zstd or brotli; gzip, zstd and brotli take a level."""
        return replace(self, compression=compression, compression_level=level)

    def with_partitioning(self, partitioning: Partitioning | str | Sequence[Transform]) -> IcebergSinkConfig:
        """How the table is partitioned if it is made; an existing table's spec wins."""
        return replace(self, partitioning=partitioning)

    def with_commit_mode(self, mode: CommitMode | str) -> IcebergSinkConfig:
        """How an epoch's rows change the table."""
        return replace(self, commit_mode=mode)

    def with_schema_evolution(self, mode: str) -> IcebergSinkConfig:
        """What happens when the stream's columns differ from the table's: strict or add_columns."""
        return replace(self, schema_evolution=mode)

    def with_create_table(self, create: bool) -> IcebergSinkConfig:
        """Whether namespace and table are made when they are absent."""
        return replace(self, create_table=create)

    def with_branch(self, branch: str) -> IcebergSinkConfig:
        """The branch to commit to."""
        return replace(self, branch=branch)

    def with_snapshot_properties(self, properties: Mapping[str, str]) -> IcebergSinkConfig:
        """Added to the summary of every snapshot."""
        return replace(self, snapshot_properties=properties)

    def with_dead_letter(self, target: str | None) -> IcebergSinkConfig:
        """Where rows go that can't be written."""
        return replace(self, dead_letter=target)

    def with_tuning(self, preset: str) -> IcebergSinkConfig:
        """Batch size, flush interval and file size at once: low_latency, balanced or high_throughput."""
        if preset not in TUNINGS:
            raise ConfigError(f"tuning {preset!r} is unknown", hint=near(preset, TUNINGS))
        return replace(self, **TUNINGS[preset])

    __repr__ = show


def _namespace(given: Sequence[str] | str) -> tuple[str, ...]:
    parts = tuple(given.split(".")) if isinstance(given, str) else tuple(given)
    if not parts:
        raise ConfigError("namespace is missing", hint='namespace=["db"] or "db.schema"')
    for part in parts:
        _check_name("namespace", part)
    return parts


def _check_name(what: str, name: str) -> None:
    # Catalogs make folders of these names.
    bad = not isinstance(name, str) or not name.strip() or name in (".", "..") or re.search(r"[/\\\x00-\x1f]", name)
    if bad or "." in name:
        raise ConfigError(
            f"{what} {name!r} is not a name", hint="a name has letters; no dots, slashes or control characters"
        )


def _check_numbers(config: IcebergSinkConfig) -> None:
    for name in ("max_records", "batch_size", "target_file_size_mb"):
        value = getattr(config, name)
        if value is None and name == "max_records":
            continue
        whole = isinstance(value, int) or (name == "target_file_size_mb" and isinstance(value, float))
        if not whole or isinstance(value, bool) or value <= 0:
            raise ConfigError(f"{name} is {value!r}", hint="a number above 0")
    interval = config.flush_interval
    if interval is not None and (not isinstance(interval, timedelta) or interval <= timedelta(0)):
        raise ConfigError(f"flush_interval is {interval!r}", hint="a timedelta above 0, or seconds")


def _check_compression(compression: str, level: int | None) -> None:
    if compression not in COMPRESSIONS:
        raise ConfigError(f"compression {compression!r} is unknown", hint=near(str(compression), COMPRESSIONS))
    levels = COMPRESSIONS[compression]
    if level is not None and (levels is None or level not in levels):
        wanted = f"{levels.start} to {levels.stop - 1}" if levels else "none at all"
        raise ConfigError(f"compression level {level} for {compression}", hint=f"it takes {wanted}")


def _check_credentials(config: IcebergSinkConfig) -> None:
    if (config.credential or config.token) and not isinstance(config.catalog, RestCatalog):
        raise ConfigError(
            f"credential and token are for REST catalogs, not {type(config.catalog).__name__}", hint="leave them out"
        )
    if config.credential is not None and not re.fullmatch(r"[^:]+:.+", config.credential):
        raise ConfigError("credential is not of the form 'id:secret'", hint="for a bearer token use with_token")
    if config.storage is None and not isinstance(config.catalog, (RestCatalog, MemoryCatalog)):
        raise ConfigError("storage is missing", hint="storage=IcebergStorage.S3(…), .Azure(…), .Gcs(…) or .Local(path)")


def _refuse_unsupported(config: IcebergSinkConfig) -> None:
    """What is not built yet is refused, never ignored."""
    assert isinstance(config.partitioning, Partitioning)
    assert isinstance(config.commit_mode, CommitMode)
    for setting, unsupported in (
        (f"commit_mode {config.commit_mode.kind}", config.commit_mode.kind != "append"),
        ("schema_evolution full", config.schema_evolution == "full"),
        ("partitioning by transforms", config.partitioning.strategy == "transforms"),
        (f"branch {config.branch!r}", config.branch != "main"),
        ("dead_letter", config.dead_letter is not None),
    ):
        if unsupported:
            raise ConfigError(f"{setting} is not supported yet", hint="leave it at its default")
