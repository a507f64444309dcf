"""Reads every import of the library, inside functions and for type checkers too, and says which break the rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import volley

ROOT = Path(volley.__file__).parent

# Each room may import those above it and itself; rooms of one line don't know each other. A star: each part is a room.
ORDER = """
errors html_table garbage
secrets
checks types
registry storage documents
contracts
metrics
plan telemetry
lineage
columns
store
task formats
capture
spark connectors.*
iceberg.keyed_modes
iceberg.modes iceberg.settings iceberg.pyiceberg_private.access
iceberg.schema iceberg.storage
iceberg.layout
iceberg.pyiceberg_private
iceberg.catalogs
iceberg.table
iceberg.documents
iceberg.config
iceberg.source_config
iceberg.write iceberg.read
iceberg.upsert
iceberg.commit
iceberg.maintain
iceberg.route
iceberg.source iceberg.changes iceberg.letters
iceberg.sink iceberg.statistics
iceberg.time_travel
iceberg.time_travel_query iceberg.views
iceberg
engine
stream
queries
environment testing
views
config
cli
__main__
volley
"""
LEVELS = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}

# The only rooms that may import a package; values may import none of these, in functions neither.
PACKAGES = {
    "pyiceberg": ["iceberg.*"],
    "pyspark": ["spark.*", "engine.*", "task.*", "contracts.source", "environment"],
    "pyarrow": [
        "types.arrow",
        "columns.*",
        "store.*",
        "task.*",
        "formats.*",
        "spark.*",
        "capture.*",
        "connectors.*",
        "iceberg.*",
        "engine.*",
    ],
    "pandas": ["iceberg.*"],
    "openlineage": ["lineage.*"],
    "opentelemetry": ["telemetry.*", "cli.*"],
}
VALUES = [
    *("*.source", "*.sink", "iceberg.letters", "connectors.console", "connectors.function"),
    *("iceberg.time_travel", "iceberg.time_travel_query"),
    *("contracts.*", "stream.*", "plan.*", "views.*"),
    *("types.names", "types.schemas"),
    *(
        "*.values",
        "*.settings",
        "iceberg.config",
        "iceberg.source_config",
        "iceberg.keyed_modes",
        "iceberg.modes",
        "iceberg.table",
        "iceberg.layout.partitioning",
        "iceberg.documents.*",
        "documents.*",
    ),
]


@cache
def sources() -> dict[str, str]:
    """Each module's name below volley, and its text."""
    return {_name(path): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "volley"


def violations(modules: Mapping[str, str]) -> Iterator[str]:
    """What breaks a rule: a module without a room, an import upwards or across, a circle, a package out of its place.

    Args:
        modules: By name below volley, the text of each module.
    """
    graph: dict[str, set[str]] = {}
    for module, text in modules.items():
        # A package that only says what it is for needs none.
        if _room(module) is None and len(parsed(text).body) > 1:
            yield (
                f"{module} has no room: add its folder, or the module, to ORDER in tests/architecture.py, "
                "on a line below all that it may import and above all that may import it"
            )
        for imported, for_types in _imports_of(text):
            package, _, rest = imported.partition(".")
            if package == "volley":
                target = _module_of(rest, modules)
                graph.setdefault(module, set()).add(target)
                if not _may_import(module, target):
                    yield f"{module} imports {target}"
            elif package in PACKAGES and not for_types and not _may_use(module, package):
                yield f"{module} imports {package}"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"circle: {' → '.join(error.args[1])}"


@cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a module; each text is parsed once for all rules."""
    return ast.parse(text)


@cache
def _imports_of(text: str) -> list[tuple[str, bool]]:
    return list(_imports(parsed(text), False))


# The fields of a syntax node that hold statements; an import is a statement.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def _imports(node: ast.AST, for_types: bool) -> Iterator[tuple[str, bool]]:
    """Dotted names of what is imported at any level, and whether for type checkers only."""
    for child in (child for block in _BLOCKS for child in getattr(node, block, ())):
        if isinstance(child, ast.Import):
            yield from ((alias.name, for_types) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((f"{child.module}.{alias.name}", for_types) for alias in child.names)
        checked = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from _imports(child, for_types or checked)


def _module_of(dotted: str, modules: Mapping[str, str]) -> str:
    """The module that a dotted name below volley belongs to."""
    while dotted and dotted not in modules:
        dotted = dotted.rpartition(".")[0]
    return dotted or "volley"


@cache
def _room(module: str) -> str | None:
    """The room of a module; None if it has none, which is told once for the module and not for each import."""
    while _line(module) < 0:
        module, dot, _ = module.rpartition(".")
        if not dot:
            return None
    return module


def _line(room: str) -> int:
    return LEVELS.get(room, LEVELS.get(f"{room.rpartition('.')[0]}.*", -1))


@cache
def _may_import(module: str, target: str) -> bool:
    if module.startswith("iceberg.") and target.startswith("connectors."):
        return False
    room, other = _room(module), _room(target)
    return room is None or other is None or room == other or _line(other) < _line(room)


@cache
def _may_use(module: str, package: str) -> bool:
    if any(fnmatch(module, pattern) for pattern in VALUES) and not module.startswith("iceberg.pyiceberg_private"):
        return False
    return any(fnmatch(module, pattern) for pattern in PACKAGES[package])


def private_names(modules: Mapping[str, str]) -> Iterator[str]:
    """Where private names of pyiceberg are used outside their room: imported, read from an object, or overridden."""
    for module, text in modules.items():
        if module.startswith("iceberg.") and not module.startswith("iceberg.pyiceberg_private"):
            yield from (f"{module}: {use}" for use in _private_names_of(text))


@cache
def _private_names_of(text: str) -> list[str]:
    return list(_private_names(parsed(text)))


def _private_names(tree: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    theirs = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg")
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & theirs:
            methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
            yield from (f"{node.name}.{name}" for name in methods if _is_private(name))
    yield from (name for name in theirs if _is_private(name))


# Asynchronous methods of fsspec, and what named tuples have.
_DOCUMENTED = {"_info", "_fields", "_replace"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in _DOCUMENTED


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "this", "other")
