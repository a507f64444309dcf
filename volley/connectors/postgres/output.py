"""What a source yields: the rows of its one table, or those of many tables, packed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from volley.connectors.postgres.changelog import ChangelogForm
from volley.connectors.postgres.rows import RowForm
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.types import holds
from volley.errors import SchemaChangedError
from volley.formats.packed_rows import pack_rows

__all__ = ["NAMESPACE", "ROWS", "TABLE", "Form", "ManyTables", "OneTable", "Output", "form_of"]

NAMESPACE, TABLE, ROWS = "namespace", "table", "rows"
Form = RowForm | ChangelogForm


def form_of(table: Table, nulls: bool, changelog: bool) -> Form:
    """Return the form of a table's rows.

    Args:
        table: The table.
        nulls: True: values that Arrow does not have are null; False: they are errors.
        changelog: True: one row an event; False: rows for an upsert.
    """
    return ChangelogForm(table, nulls) if changelog else RowForm(table, nulls)


class Output(ABC):
    """Makes the rows that a source yields; picklable."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of what it makes."""

    @abstractmethod
    def form(self, table: Table) -> Form:
        """Return the form of the rows of a table, which has the form that it had then.

        Raises:
            SchemaChangedError: If the job must be planned anew for such rows.
        """

    def form_of_load(self, table: Table) -> Form:
        """Return the form of the rows of a table that a load reads. Raises like `form`."""
        return self.form(table)

    @abstractmethod
    def of(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the source yields for rows of a form."""


@dataclass(frozen=True)
class OneTable(Output):
    """The rows themselves, in the form that the table had when the job was planned.

    Args:
        fixed: The form.
        dropped: The names of columns that the table had once.
    """

    fixed: Form
    dropped: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        return self.fixed.schema

    def form(self, table: Table) -> Form:
        planned = {column.name: column.data_type for column in self.fixed.table.columns}
        for column in table.columns:
            if column.name in self.dropped:
                continue
            if column.name not in planned:
                raise SchemaChangedError(f"table {table.name} has the new column {column.name!r}", hint=ANEW)
            if not holds(planned[column.name], column.data_type):
                raise SchemaChangedError(
                    f"table {table.name}: column {column.name!r} is {column.data_type}, where the job expects "
                    f"{planned[column.name]}",
                    hint=ANEW,
                )
        return self.fixed

    def form_of_load(self, table: Table) -> Form:
        if table.keys != self.fixed.table.keys:
            raise SchemaChangedError(f"table {table.name} has another key", hint=ANEW)
        return self.form(table)

    def of(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows


@dataclass(frozen=True)
class ManyTables(Output):
    """The rows of each batch, packed, beside the escaped name of their table.

    Args:
        nulls: True: values that Arrow does not have are null; False: they are errors.
        changelog: True: one row an event; False: rows for an upsert.
    """

    nulls: bool
    changelog: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(NAMESPACE, pa.string()), (TABLE, pa.string()), (ROWS, pa.binary())])

    def form(self, table: Table) -> Form:
        return form_of(table, self.nulls, self.changelog)

    def of(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        name, keys = form.table.name.escaped, () if self.changelog else form.table.keys
        values = [name.schema], [name.table], [pack_rows(rows, keys)]
        return pa.RecordBatch.from_arrays([pa.array(value) for value in values], schema=self.schema)
