"""Completes an upsert's settings by what the stream tells of its columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from volley.columns.change_columns import ChangeColumns
from volley.errors import ConfigError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import Upsert

__all__ = ["with_own_columns"]


def with_own_columns(config: IcebergSinkConfig, stream: pa.Schema) -> IcebergSinkConfig:
    """Return a sink's settings with the columns that the stream tells where an upsert names none.

    Args:
        config: The settings.
        stream: The schema of the stream.

    Raises:
        ConfigError: If neither the upsert nor the stream tells the keys.
    """
    mode = config.commit_mode
    return replace(config, commit_mode=_completed(mode, stream)) if isinstance(mode, Upsert) else config


def _completed(mode: Upsert, stream: pa.Schema) -> Upsert:
    own = ChangeColumns.of(stream)
    if not (keys := mode.keys or own.keys):
        raise ConfigError(
            "Upsert() names no keys, and the stream tells none",
            hint='name them: Upsert(["id"]); a PostgresSource tells the primary key while all its columns are in the '
            "stream",
        )
    return replace(
        mode,
        key_fields=keys,
        order_by=mode.order_by or own.order,
        op_field=mode.op_field or own.operation,
        unchanged_field=mode.unchanged_field or own.unchanged,
        write_order=mode.write_order and (mode.order_by is not None or own.order is None),
    )
