"""TypeConverter: types and schemas from Arrow to Iceberg and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volley.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

__all__ = ["TypeConverter"]


class TypeConverter:
    """Converts types and schemas between Arrow and Iceberg.

    What may be null, docs and the field ids of Parquet (``PARQUET:field_id``) are kept at every level; if a field has
    no id, all get new ones. To Arrow and back gives the same Iceberg type, for all but geometry and geography, which
    Arrow lacks. From Arrow, types that Iceberg lacks become the next wider one: small integers ``int``, ``uint64``
    ``decimal(20, 0)``, dictionaries their values.

    Example:
        >>> import pyarrow as pa
        >>> from volley import TypeConverter
        >>> print(TypeConverter.arrow_to_iceberg(pa.list_(pa.timestamp("us", "UTC"))))
        list<timestamptz>
        >>> from pyiceberg.types import DecimalType
        >>> TypeConverter.iceberg_to_arrow(DecimalType(10, 2))
        Decimal128Type(decimal128(10, 2))
    """

    @staticmethod
    def arrow_to_iceberg(arrow_type: pa.DataType, format_version: int = 2) -> IcebergType:
        """Return the Iceberg type of an Arrow type.

        Args:
            arrow_type: The Arrow type.
            format_version: The table's format version. From 3 on, nanoseconds stay, and columns of nulls only are
                ``unknown``; before, they become microseconds and ``string``.

        Raises:
            SourceError: If the type has no counterpart; names the field and its type.
            ConfigError: If the name of a struct's field is empty, not unique or has a NUL character.
        """
        from volley.iceberg.schema.conversion import iceberg_of

        _check_version(format_version)
        return iceberg_of(arrow_type, format_version)

    @staticmethod
    def iceberg_to_arrow(iceberg_type: IcebergType) -> pa.DataType:
        """Return the Arrow type of an Iceberg type.

        Raises:
            SourceError: If the type has no counterpart; names the field and its type.
        """
        from volley.iceberg.schema.conversion import arrow_of

        return arrow_of(iceberg_type)

    @staticmethod
    def arrow_to_iceberg_schema(schema: pa.Schema, format_version: int = 2) -> Schema:
        """Return the Iceberg schema of an Arrow schema; arguments and errors as for `arrow_to_iceberg`.

        Example:
            >>> import pyarrow as pa
            >>> from volley import TypeConverter
            >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.date32())])
            >>> print(TypeConverter.arrow_to_iceberg_schema(schema))
            table {
              1: id: required long
              2: at: optional date
            }
        """
        from volley.iceberg.schema.conversion import iceberg_schema_of

        _check_version(format_version)
        return iceberg_schema_of(schema, format_version)

    @staticmethod
    def iceberg_to_arrow_schema(schema: Schema) -> pa.Schema:
        """Return the Arrow schema of an Iceberg schema; its identifier fields and default values have no place there.

        Raises:
            SourceError: As for `iceberg_to_arrow`.
        """
        from volley.iceberg.schema.conversion import arrow_schema_of

        return arrow_schema_of(schema)


def _check_version(format_version: int) -> None:
    if isinstance(format_version, bool) or format_version not in (1, 2, 3):
        raise ConfigError(f"format_version {format_version!r} is unknown", hint="1, 2 or 3")
