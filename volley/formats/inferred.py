"""The columns of JSON that become known by what is seen: a tree of fields that grows, and is kept in the checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from volley.contracts.rows import Seen, SeenColumns, taken_seen
from volley.contracts.source import Reader
from volley.errors import SourceError
from volley.formats.contract import Contract
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, malformed
from volley.storage.remembered import replace as replace_file
from volley.storage.state_formats import INFERRED
from volley.types.arrow import arrow_type

__all__ = ["DEEPEST", "EMPTY_OBJECT", "NOTHING", "Inferred", "is_name", "learn_first", "learn_from", "wide_schema"]

NOTHING, EMPTY_OBJECT = "null", "{}"
"""What is seen of values without a type."""

DEEPEST, _LONGEST_NAME = 10, 255
"""How deep a column may be in others, whose values are texts there, and how long its name."""

_MOST_COLUMNS = 1_000
_FIRST_ROWS = 1_000
_MOST_DIGITS = 38
_NO_NAME = re.compile("[\0.\ud800-\udfff]")
_OPEN = (None, pa.null(), pa.struct([]))
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass
class _Node:
    """A column, or a field or item within: it has a type, or fields, or an item."""

    type: pa.DataType | None = None
    fields: dict[str, _Node] = field(default_factory=dict)
    item: _Node | None = None

    @classmethod
    def of(cls, data_type: pa.DataType) -> _Node:
        """Return the node of a declared type."""
        if pa.types.is_struct(data_type):
            return cls(fields={inner.name: cls.of(inner.type) for inner in data_type})
        return cls(item=cls.of(data_type.value_type)) if pa.types.is_list(data_type) else cls(data_type)

    @property
    def arrow(self) -> pa.DataType:
        """The type in Arrow."""
        if self.item is not None:
            return pa.list_(self.item.arrow)
        return self.type if self.type is not None else pa.struct([(name, of.arrow) for name, of in self.fields.items()])

    def child(self, step: str | None) -> _Node | None:
        """Return the field of a name, or the item; None if there is none."""
        return self.item if step is None else self.fields.get(step)

    def takes(self, step: str | None) -> bool:
        """Return True if it has no type, or can have another field of this kind."""
        return self.type in _OPEN and (not self.fields if step is None else self.item is None)

    def add(self, steps: Sequence[str | None], data_type: pa.DataType) -> _Node:
        """Add a field or item with a type, and what it is in; return the outermost one."""
        step, *rest = steps
        child = _Node() if rest else _Node(data_type)
        if rest:
            child.add(rest, data_type)
        self.type = None
        if step is None:
            self.item = child
        else:
            self.fields[step] = child
        return child


@dataclass
class _Tree:
    """Columns that grow by what is seen, one thing after the other.

    Args:
        reserved: Names of columns that others have.
    """

    root: _Node
    contract: Contract
    reserved: Collection[str]
    added: int = 0

    def takes(self, seen: Seen) -> bool:
        """Return True if what was seen changes something."""
        node, number = self._place(seen)
        if number < len(seen.path):
            return self._is_new(node, seen, number)
        return self._wider(node, seen) is not None

    def has(self, seen: Seen) -> bool:
        """Return True if a field is in a column, or in the value of one."""
        node, number = self._place(seen)
        return number == len(seen.path) or (number > 0 and node.type not in _OPEN)

    def see(self, seen: Seen) -> bool:
        """Take what was seen into account; return False if it changes nothing."""
        node, number = self._place(seen)
        if number < len(seen.path):
            return self._is_new(node, seen, number) and self._add(node, seen, number)
        wider = self._wider(node, seen)
        node.type = wider or node.type
        return wider is not None

    def _place(self, seen: Seen) -> tuple[_Node, int]:
        """Return the innermost node on the path of a field, and how many steps lead to it."""
        node = self.root
        for number, step in enumerate(seen.path):
            child = node.child(step)
            if child is None:
                return node, number
            node = child
        return node, len(seen.path)

    def _wider(self, node: _Node, seen: Seen) -> pa.DataType | None:
        return _wider(node.type, seen.type) if self.contract.of_value(seen.column) == "evolve" else None

    def _is_new(self, node: _Node, seen: Seen, number: int) -> bool:
        """Return True if a field may be added to a node."""
        steps = seen.path[number:]
        if self.contract.of_field(seen.column) != "evolve" or self.added == _MOST_COLUMNS or len(seen.path) > DEEPEST:
            return False
        taken = {*node.fields, *(() if number else self.reserved)}
        is_taken = steps[0] is not None and steps[0].casefold() in map(str.casefold, taken)
        return node.takes(steps[0]) and not is_taken and all(map(is_name, steps))

    def _add(self, node: _Node, seen: Seen, number: int) -> bool:
        node.add(seen.path[number:], arrow_type(seen.type))
        self.added += 1
        return True


def is_name(step: str | None) -> bool:
    """Return True if a column or a field can have this name; None = it is an item, which needs none."""
    return step is None or (0 < len(step) <= _LONGEST_NAME and _NO_NAME.search(step) is None)


def _wider(data_type: pa.DataType | None, seen: str) -> pa.DataType | None:
    """Return the type that Iceberg widens a type to, so that it holds what was seen; None if there is none."""
    if data_type == pa.int32():
        return pa.int64() if seen == "long" else None
    number = _DECIMAL.fullmatch(seen)
    if number is None or data_type is None or not pa.types.is_decimal(data_type):
        return None
    precision = int(number[1]) - int(number[2]) + data_type.scale
    fits = int(number[2]) <= data_type.scale and data_type.precision < precision <= _MOST_DIGITS
    return pa.decimal128(precision, data_type.scale) if fits else None


@dataclass(frozen=True)
class Inferred:
    """The columns of a source: those that are declared, and those that were seen.

    Args:
        source: The folder below the job's checkpoint that keeps what was seen.
        declared: The columns that are declared.
        contract: What becomes of new fields.
        reserved: Names that its columns can't have: those that a source adds.
        seen: What was seen so far and made a column, or made one wider, in the order of the rows.
    """

    source: str
    declared: pa.Schema
    contract: Contract
    reserved: Collection[str] = ()
    seen: tuple[Seen, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._after(())[0]

    def with_seen(self, seen: Iterable[Seen]) -> Inferred:
        """Return the columns after more was seen; the same ones if nothing is new.

        It depends on the order of what is seen, and not on how it is divided among calls.
        """
        new = self._after(seen)[1]
        return replace(self, seen=(*self.seen, *new)) if new else self

    def takes(self, seen: Seen) -> bool:
        """Return True if a field could become a column, or make one wider: now, or after more was seen."""
        return self._known.takes(seen)

    def has(self, seen: Seen) -> bool:
        """Return True if a field is in a column, or in the value of one."""
        return self._known.has(seen)

    @cached_property
    def _known(self) -> _Tree:
        return self._tree()

    def _tree(self) -> _Tree:
        root = _Node(fields={field.name: _Node.of(field.type) for field in self.declared})
        tree = _Tree(root, self.contract, self.reserved)
        for known in self.seen:
            tree.see(known)
        return tree

    def _after(self, seen: Iterable[Seen]) -> tuple[pa.Schema, list[Seen]]:
        """Return the schema after more was seen, and what of that is new."""
        tree = self._tree()
        new = [each for each in seen if tree.see(each)]
        return pa.schema([pa.field(name, node.arrow) for name, node in tree.root.fields.items()]), new

    @property
    def is_kept(self) -> bool:
        """True if something that was seen is kept."""
        files, path = filesystem(self._file, {})
        return bool(files.exists(path))

    def kept(self) -> Inferred:
        """Return the columns with what is kept of them.

        Raises:
            StorageError: If the file is damaged, or a newer Volley wrote it.
        """
        files, path = filesystem(self._file, {})
        try:
            data = files.cat_file(path)
        except FileNotFoundError:
            return self
        try:
            seen = [Seen(tuple(steps), name) for steps, name in json.loads(INFERRED.unseal(data, path))]
            return replace(self, seen=()).with_seen(seen)
        except (*MALFORMED, SourceError) as error:
            raise malformed(path, error) from error

    def learn(self, learned: Iterable[SeenColumns]) -> bool:
        """Keep what tasks have seen of this source's rows, given in the order of the rows; return False if nothing is.

        Raises:
            OSError: If it can't be written.
        """
        before = self.kept()
        after = before.with_seen(each for columns in learned if columns.source == self.source for each in columns.seen)
        if after is not before:
            pairs = [[list(each.path), each.type] for each in after.seen]
            replace_file(self._file, INFERRED, json.dumps(pairs, ensure_ascii=False).encode())
        return after is not before

    @property
    def _file(self) -> str:
        return f"{self.source}/inferred.json"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def learn_first(reader: Reader, inferred: Inferred | None) -> bool:
    """Keep what the first rows of a source have, unless something is kept; return True if its reader is to be remade.

    A job's steps may then name these columns from the start. They are the ones that the first epoch would find.
    """
    if inferred is None or inferred.is_kept or not inferred.contract.evolves:
        return False
    start = reader.initial_offset()
    end = reader.latest_offset(start, _FIRST_ROWS, None)
    splits = reader.splits(start, end) if end != start else []
    return learn_from(reader.read_tolerant(splits[0]), inferred) if splits else False


def learn_from(rows: Iterator[object], inferred: Inferred) -> bool:
    """Keep what the first of some rows have, and the others of their piece of text; return False if it is nothing."""
    taken_seen()
    next(rows, None)
    return inferred.learn(taken_seen())


def wide_schema(schema: pa.Schema, shapes: Iterable[Seen]) -> pa.Schema:
    """Return a schema with the fields that were seen without a type: null, lists of null, objects without fields."""
    root = _Node(fields={field.name: _Node.of(field.type) for field in schema})
    for shape in shapes:
        _set_shape(root, shape)
    return pa.schema([pa.field(name, node.arrow) for name, node in root.fields.items()])


def _set_shape(node: _Node, shape: Seen) -> None:
    """Set the type of a field without one, unless something else is in its place."""
    for step in shape.path:
        child = node.child(step)
        if child is None:
            if not node.takes(step):
                return
            child = node.add([step], pa.null())
        node = child
    if shape.type == EMPTY_OBJECT and node.type == pa.null():
        node.type = pa.struct([])
