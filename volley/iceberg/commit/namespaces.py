"""Makes the namespace of a new table, where it is missing."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, RESTError

from volley.errors import CatalogAuthError
from volley.iceberg.catalogs.answers import status_of

__all__ = ["has_namespace", "make_namespace"]


def make_namespace(catalog: Catalog, namespace: tuple[str, ...], address: str) -> None:
    """Make a namespace, and those around it if the catalog needs them, unless it is there.

    Args:
        catalog: The catalog.
        namespace: The names of the namespace.
        address: The catalog's address, for messages.

    Raises:
        CatalogAuthError: If it is missing and may not be made.
    """
    if has_namespace(catalog, namespace):
        return
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except ForbiddenError as error:
        raise CatalogAuthError(
            f"catalog {address} shows no namespace {'.'.join(namespace)}, and refused to make it: {error}",
            hint="create it, or grant the privilege to create namespaces (Polaris: NAMESPACE_CREATE); if it is there, "
            "a privilege to see it is missing, and writing needs TABLE_WRITE_DATA",
        ) from error
    except (NoSuchNamespaceError, RESTError) as error:
        if len(namespace) == 1 or not (isinstance(error, NoSuchNamespaceError) or status_of(error) == 404):
            raise
        # Nessie makes a namespace only inside one that is there.
        make_namespace(catalog, namespace[:-1], address)
        catalog.create_namespace_if_not_exists(namespace)


def has_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> bool:
    """Return True if a namespace is there, or if the catalog does not tell."""
    try:
        catalog.load_namespace_properties(namespace)
    except NoSuchNamespaceError:
        return False
    except (ForbiddenError, NotImplementedError):
        pass  # what can't be asked for may be there: the table's own request tells
    return True
