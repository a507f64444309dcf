"""Makes tables and namespaces as their catalog takes them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, RESTError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties

from volley.errors import CatalogAuthError
from volley.iceberg.catalogs.answers import status_of
from volley.iceberg.catalogs.capabilities import Capabilities
from volley.iceberg.catalogs.refusals import NAMESPACES, PROPERTIES
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog
from volley.iceberg.settings import format_version
from volley.iceberg.table import TableRef

__all__ = ["capabilities_of", "create_table", "has_namespace", "make_namespace", "unbounded"]

_log = logging.getLogger(__name__)
# These properties keep the cost and the leftovers of a commit from growing with the table's age.
_BOUNDED = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}
_PARENTLESS = "without a parent"


def capabilities_of(ref: TableRef, catalog: Catalog) -> Capabilities:
    """Return what an opened catalog can do: as its name tells, and as it announces."""
    return ref.capabilities.announced(catalog.endpoints if isinstance(catalog, GuardedCatalog) else None)


def create_table(catalog: Catalog, config: IcebergSinkConfig, schema: Schema, spec: PartitionSpec) -> Table:
    """Make a table; without properties that Volley would add and the catalog refuses, which are left out from then on.

    Raises:
        TableAlreadyExistsError: If there is one of this name.
    """
    ref = config.ref
    left_out = set(PROPERTIES.of(ref.catalog, ref.warehouse))
    while True:
        added = {
            name: value for name, value in _BOUNDED.items() if name not in left_out | config.table_properties.keys()
        }
        properties = {**added, **config.table_properties}
        try:
            table = catalog.create_table(config.identifier, schema, partition_spec=spec, properties=properties)
        except TableAlreadyExistsError:
            raise
        except Exception as error:  # each client has its own
            refused = _refused(error, added)
            if not refused:
                raise
            left_out |= refused
        else:
            if new := PROPERTIES.add(ref.catalog, ref.warehouse, left_out):
                _log.warning(
                    "catalog %s refuses the table properties %s: table %s is made without them, and so are those that "
                    "follow; where the catalog does not see to it, old metadata files and small manifests pile up",
                    *(ref.address, ", ".join(sorted(new)), config.table_name),
                )
            _warn_of_version(config, table)
            return table


def unbounded(table: Table) -> list[str]:
    """Return the properties that Volley would have given a table, and that it does not have."""
    return [name for name in _BOUNDED if name not in table.properties]


def _refused(error: Exception, added: Collection[str]) -> set[str]:
    """Return which of the properties a catalog may have refused: those that it names, or all if it names none."""
    text = str(error).lower()
    named = {name for name in added if name in text}
    return named or (set(added) if status_of(error) in (400, 422) and "propert" in text else set())


def _warn_of_version(config: IcebergSinkConfig, table: Table) -> None:
    """Warn if a catalog has made a table of another format version than asked for, as Nessie 0.99 does."""
    made, asked = table.format_version, format_version(config.table_properties)
    if made != asked:
        _log.warning(
            "table %s is of format version %d: %s makes no other, though the table property asks for %d",
            *(config.table_name, made, config.ref.address, asked),
        )


def make_namespace(catalog: Catalog, namespace: tuple[str, ...], ref: TableRef) -> None:
    """Make a namespace, and those around it if the catalog needs them, unless it is there."""
    if has_namespace(catalog, namespace):
        return
    missing = f"namespace {'.'.join(namespace)} is missing, and can't be made"
    capabilities_of(ref, catalog).require("namespaces", f"catalog {ref.address}", missing)
    if len(namespace) > 1 and NAMESPACES.of(ref.catalog, ref.warehouse):
        make_namespace(catalog, namespace[:-1], ref)
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except ForbiddenError as error:
        raise CatalogAuthError(
            f"catalog {ref.address} shows no namespace {'.'.join(namespace)}, and refused to make it: {error}",
            hint="create it, or grant the privilege to create namespaces (Polaris: NAMESPACE_CREATE); if it is there, "
            "a privilege to see it is missing, and writing needs TABLE_WRITE_DATA",
        ) from error
    except (NoSuchNamespaceError, RESTError) as error:
        if len(namespace) == 1 or not _lacks_parent(error):
            raise
        # Nessie, for one, makes a namespace only inside one that is there.
        NAMESPACES.add(ref.catalog, ref.warehouse, [_PARENTLESS])
        make_namespace(catalog, namespace[:-1], ref)
        catalog.create_namespace_if_not_exists(namespace)


def _lacks_parent(error: Exception) -> bool:
    """Return True if a catalog has refused a namespace since the one around it is missing."""
    status = status_of(error)
    is_said = status in (400, 422) and re.search("parent|not exist|not found", str(error), re.IGNORECASE)
    return isinstance(error, NoSuchNamespaceError) or status == 404 or bool(is_said)


def has_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> bool:
    """Return True if a namespace is there, or if the catalog does not tell."""
    try:
        catalog.load_namespace_properties(namespace)
    except NoSuchNamespaceError:
        return False
    except (ForbiddenError, NotImplementedError):
        pass  # what can't be asked for may be there: the table's own request tells
    return True
