"""The settings that all sources which capture a database have: what does not go together is refused, before a server is
asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from volley import ConfigError, MariaDbSource, MySqlSource, PostgresSource

SOURCES: list[Callable[..., Any]] = [
    lambda **settings: PostgresSource(host="h", database="d", user="u", slot_name="s", publication="p", **settings),
    lambda **settings: MariaDbSource(host="h", user="u", server_id=5, **settings),
    lambda **settings: MySqlSource(host="h", user="u", server_id=5, **settings),
]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tables": ["d.orders", "d.lines"], "exclude": "d.o*"}, r"table d\.orders is in tables, and in exclude"),
    ({"exclude": "odd"}, "exclude has 'odd', which is not a schema and a table"),
    ({"tables": ["d.*"], "packed": False}, "packed is False, and tables are several"),
    ({"load": "none", "on_rewrite": "reload"}, 'on_rewrite="reload" with load="none"'),
    ({"sequence": True, "on_rewrite": "reload"}, 'on_rewrite="reload" with sequence=True'),
    ({"sequence": True, "changelog": True}, "changelog and sequence are both True"),
]


@pytest.mark.parametrize("source", SOURCES, ids=["postgres", "mariadb", "mysql"])
@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_what_does_not_go_together_is_refused(
    source: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        source(**settings)
