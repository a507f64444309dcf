"""Which test proves what real catalogs do: each case that was seen of them, and each row of what they can do."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.processes import ROOT

# Folder tests/; a case names all its tests.
_THEMSELVES = "services/test_catalogs_themselves.py::"
_CASES = "services/test_cases_of_catalogs.py::"
_CAPABILITIES = "services/test_capabilities_of_catalogs.py::"
_TRANSACTIONS = "services/test_transactions_of_catalogs.py::"
_FAULTS = "recovery/test_catalog_faults.py::"
_DECEIVE = "recovery/test_catalogs_that_deceive.py::"
_NAMESPACES = "recovery/test_namespaces.py::"
_NESSIE = "services/test_catalog_failures.py::test_branches_and_tags_of_nessies_tables_lose_no_row"
_BRANCH = f"{_CASES}test_a_branch_whose_main_moves_while_it_is_written"
_MADE_AT_ONCE = f"{_CAPABILITIES}test_two_jobs_that_make_a_table_at_once"
_TRAVEL = "services/test_travel.py::test_every_catalog_can_do_it_all"
_PLANS = "services/test_server_plans.py::test_rows_are_those_of_an_own_plan"

CASES: dict[int, list[str]] = {
    1: [f"{_TRANSACTIONS}test_all_tables_are_changed_or_none", f"{_TRANSACTIONS}test_a_table_that_is_missing"],
    2: [f"{_TRANSACTIONS}test_all_tables_are_changed_or_none", f"{_TRANSACTIONS}test_a_table_that_is_missing"],
    3: [f"{_TRANSACTIONS}test_all_tables_are_changed_or_none"],
    4: [f"{_CAPABILITIES}test_what_a_server_announces_is_known"],
    5: [_BRANCH],
    6: [_BRANCH],
    7: [_MADE_AT_ONCE],
    8: [_MADE_AT_ONCE],
    9: ["services/test_catalogs.py::test_a_conflict_is_tried_again"],
    10: [f"{_FAULTS}test_a_busy_catalog_is_asked_again_when_it_says"],
    11: [f"{_FAULTS}test_a_busy_catalog_is_asked_again_when_it_says"],
    12: [f"{_FAULTS}test_a_commit_that_fails_and_then_succeeds", f"{_FAULTS}test_a_load_that_fails_and_then_succeeds"],
    13: [f"{_FAULTS}test_a_lost_answer_is_found_by_its_mark", f"{_FAULTS}test_a_commit_that_landed_behind_a_gateway"],
    14: ["services/test_format_3_of_catalogs.py::test_a_routed_sink_makes_tables"],
    15: ["services/test_format_3_of_catalogs.py::test_nessie_makes_tables_of_version_2"],
    16: [
        f"{_CASES}test_old_metadata_files_are_few_where_the_table_asks_for_it",
        f"{_FAULTS}test_old_metadata_files_are_deleted_without_a_warning",
    ],
    17: [f"{_CAPABILITIES}test_nested_namespaces"],
    18: [f"{_CAPABILITIES}test_upper_case_in_names"],
    19: [
        f"{_THEMSELVES}test_names_with_dots_and_slashes_are_refused",
        f"{_CASES}test_names_are_taken_or_refused_by_name",
    ],
    20: [f"{_THEMSELVES}test_a_place_outside_the_warehouse"],
    21: [f"{_THEMSELVES}test_a_namespace_with_a_table_can_not_be_dropped"],
    22: [f"{_CASES}test_a_table_that_another_client_renames"],
    23: [f"{_THEMSELVES}test_a_table_that_another_client_drops"],
    24: [f"{_THEMSELVES}test_lists_that_come_in_pages"],
    25: ["services/test_unchanged_tables.py::test_a_job_that_writes_alone_is_sent_the_metadata_once"],
    26: [f"{_DECEIVE}test_all_snapshots_are_listed_tagged_and_expired_whatever_the_mode"],
    27: [_PLANS],
    29: ["services/test_vendor_catalogs.py::test_a_table_is_made_written_followed_and_maintained"],
    30: ["services/test_catalogs.py::test_a_conflict_is_tried_again"],
    31: [_MADE_AT_ONCE],
    32: [f"{_THEMSELVES}test_a_table_that_another_client_drops", f"{_THEMSELVES}test_a_table_that_is_registered_again"],
    33: [_NESSIE],
    34: [_NESSIE],
    35: ["services/test_catalogs.py::test_columns_are_added"],
    36: [f"{_DECEIVE}test_a_commit_that_another_one_overtakes_whatever_the_mode"],
    37: [f"{_DECEIVE}test_orphans_are_told_by_all_snapshots_whatever_the_loading_mode"],
    38: [f"{_FAULTS}test_a_commit_that_landed_behind_a_gateway"],
    39: [f"{_TRANSACTIONS}test_a_table_that_is_there_twice"],
    40: [f"{_THEMSELVES}test_a_change_that_the_server_does_not_know"],
    41: [f"{_NAMESPACES}test_a_catalog_that_does_not_offer_namespaces"],
    42: [f"{_NAMESPACES}test_a_namespace_that_is_there_is_not_made"],
    43: [_NESSIE],
    44: [
        f"{_CAPABILITIES}test_nested_namespaces",
        f"{_NAMESPACES}test_those_around_it_are_made_where_the_catalog_needs_them",
        "services/test_catalog_failures.py::test_nested_namespaces_of_nessie",
    ],
    45: [f"{_FAULTS}test_a_busy_catalog_is_asked_again_when_it_says"],
    46: [
        "services/test_storage_credentials.py::test_a_catalog_that_vends_keys_needs_none_here_and_each_epoch_has_fresh_ones",
        "recovery/test_remote_signing.py::test_the_catalog_signs_what_is_written_and_read",
    ],
    47: ["services/test_vendor_catalogs.py::test_two_tables_with_a_token_each"],
    48: [_BRANCH],
}
"""The tests by case."""

NO_SERVER = {28: "Hive's own REST catalog comes with 4.1, of which no server can be had from Maven"}
"""The cases that can't be run, and why."""

FEATURES: dict[str, list[str]] = {
    "announces endpoints": CASES[4],
    "namespace separator": CASES[17],
    "several tables atomically": [*CASES[1], *CASES[39]],
    "wrong requirement": CASES[1],
    "first snapshot raced": ["services/test_catalogs.py::test_a_conflict_over_a_tables_first_snapshot_is_tried_again"],
    "stale commit to another, existing branch": CASES[5],
    "branches, tags": [_TRAVEL, _NESSIE],
    "create of a taken name": CASES[31],
    "staged create": CASES[7],
    "add a column": CASES[35],
    "format-version 3 asked": [*CASES[14], *CASES[15]],
    "old metadata files deleted": CASES[16],
    "snapshots shown": [_TRAVEL, *CASES[26]],
    "nested namespaces": CASES[44],
    "upper case": CASES[18],
    "location outside": CASES[20],
    "drop leaves files": CASES[32],
    "purge deletes files": CASES[23],
    "pages": CASES[24],
    "ETag, 304": CASES[25],
    "server-side planning": CASES[27],
    "refs mode": [*CASES[26], *CASES[36], *CASES[37]],
    "Idempotency-Key": ["services/test_idempotency_keys.py::test_no_keys_where_none_are_announced"],
    "statistics, register, views": [
        "services/test_metrics_reports.py::test_each_commit_is_reported",
        f"{_THEMSELVES}test_a_table_that_is_registered_again",
        "services/test_views_of_catalogs.py::test_a_view_is_refused_by_its_name",
    ],
    "rollback": [_TRAVEL],
    "append, upsert": ["services/test_modes_of_catalogs.py::test_rows_are_changed_by_key_and_followed"],
    "dead letters": [f"{_CASES}test_bad_rows_are_in_the_table_beside"],
    "follow over two snapshots": ["services/test_modes_of_catalogs.py::test_rows_are_changed_by_key_and_followed"],
    "maintenance": [f"{_CASES}test_files_are_compacted_and_those_of_nobody_removed"],
    "branch": [_BRANCH, _NESSIE],
}
"""The tests by what catalogs can do."""


@cache
def names_in(path: str) -> set[str]:
    """The tests in a file."""
    return {
        node.name for node in ast.parse((ROOT / "tests" / path).read_text()).body if isinstance(node, ast.FunctionDef)
    }


def test_no_case_is_without_a_test() -> None:
    assert sorted([*CASES, *NO_SERVER]) == [*range(1, 49)]
    assert all(CASES.values())
    assert all(FEATURES.values())


@pytest.mark.parametrize("name", sorted({name for names in (*CASES.values(), *FEATURES.values()) for name in names}))
def test_the_tests_are_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert function in names_in(path)
