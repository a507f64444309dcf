"""Settings that can be read from dicts and from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from volley.documents.collector import Collector
    from volley.documents.mistakes import Path

__all__ = ["FromDocuments"]


class FromDocuments:
    """Adds `from_dict` and `from_env` to a class of settings."""

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return the settings of a dict: those that a sink or source has in YAML under ``config``.

        Args:
            settings: Names and values, as `docs/yaml.md` lists them.

        Raises:
            ConfigError: If settings are unknown, missing or wrong; the message tells all of them.
            MissingDependencyError: If pydantic or PyYAML is not installed.

        Example:
            >>> from volley import IcebergSinkConfig
            >>> lake = {"namespace": "db", "table": "events", "local": {"path": "/tmp/lake"}}
            >>> IcebergSinkConfig.from_dict({**lake, "commit_mode": "upsert", "key_fields": ["id"]}).table_name
            'db.events'
        """
        from volley.registry import installed

        installed("pydantic"), installed("yaml")
        from volley.documents.collector import Collector

        collector = Collector()
        config = cls.from_document(dict(settings), collector, ())
        collector.raise_mistakes(cls.__name__)
        assert config is not None
        return config

    @classmethod
    def from_env(cls, prefix: str = "VOLLEY_", variables: Mapping[str, str] | None = None) -> Self:
        """Return the settings in environment variables.

        Args:
            prefix: What their names begin with. ``VOLLEY_CATALOG__REST__URI`` is the ``uri`` of ``rest`` of
                ``catalog``; a value in brackets or braces is a list or a mapping in YAML.
            variables: The variables; None = those of this process.

        Raises:
            ConfigError: If settings are unknown, missing or wrong; the message tells all of them.
            MissingDependencyError: If pydantic or PyYAML is not installed.

        Example:
            >>> from volley import IcebergSinkConfig
            >>> lake = {"LAKE_NAMESPACE": "db", "LAKE_TABLE": "events", "LAKE_LOCAL__PATH": "/tmp/lake"}
            >>> IcebergSinkConfig.from_env("LAKE_", lake).table_name
            'db.events'
        """
        from volley.registry import installed

        installed("yaml")
        from volley.documents.yaml_text import settings_in

        return cls.from_dict(settings_in(os.environ if variables is None else variables, prefix))

    @classmethod
    def from_document(cls, values: dict[str, Any], collector: Collector, path: Path) -> Self | None:
        """Return the settings; None if they have mistakes, which the collector takes."""
        raise NotImplementedError
