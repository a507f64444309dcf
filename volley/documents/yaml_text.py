"""YAML 1.2 as Python values, with the place of each key and value; all mistakes are collected."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from volley.documents.mistakes import MOST_MISTAKES, SECRET_NAME, FilePlace, Mistake, Path, Secrecy, error_of, is_secret
from volley.documents.references import References, UnresolvedReference, is_reference
from volley.secrets import FOREIGN, MASK, redact_uri

__all__ = ["Document", "parse", "settings_in"]

# An alias stands for all that it names: a few lines can stand for billions of values.
_MOST_VALUES = 100_000
_DEEPEST = 100
_LONGEST_LINE = 1_000
_SECRET_KEY = re.compile(rf"(?:{SECRET_NAME}|{'|'.join(FOREIGN)})\w*[\"']?\s*:\s*", re.IGNORECASE)
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "merge": (r"<<", "<"),
}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML follows YAML 1.1, where ``no`` is false and ``010`` is 8; with these scalars it follows YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._heights: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node:
        """Compose a node; PyYAML and the code behind it call themselves for each level, also by way of aliases."""
        mark = self.peek_event().start_mark
        self._depth += 1
        node = super().compose_node(parent, index) if self._depth <= _DEEPEST else None
        self._depth -= 1
        if node is not None and node not in self._heights:
            self._heights[node] = 1 + max((self._heights.get(child, 0) for child in _children(node)), default=0)
        if node is None or self._heights[node] > _DEEPEST:
            raise yaml.composer.ComposerError(problem=f"more than {_DEEPEST} levels deep", problem_mark=mark)
        return node


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(
        f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), ["", *_first] if _name == "null" else _first
    )


@dataclass
class Document:
    """A YAML file as Python values.

    Args:
        file: Its name, for messages.
        hidden: Where secrets stand in the lines, by the line's number, from 0: begins and ends, in order.
        value: Its content: dicts, lists, texts, numbers, booleans, None.
        keys: The mark of each key, by its path.
        values: The mark of each value, by its path.
        references: The text of each value that has references in it, by its path.
    """

    file: str
    lines: list[str]
    hidden: dict[int, list[tuple[int, int]]]
    value: Any = None
    keys: dict[Path, yaml.Mark] = field(default_factory=dict)
    values: dict[Path, yaml.Mark] = field(default_factory=dict)
    references: dict[Path, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def place(self, path: Path, of_key: bool = False) -> FilePlace:
        """Return the place of a value or a key; of one that is missing, that of what it is missing in."""
        mark = self._mark(path, of_key)
        return self.at(mark.line, mark.column) if mark else self.at(0, 0)

    def _mark(self, path: Path, of_key: bool = False) -> yaml.Mark | None:
        if of_key and path in self.keys:
            return self.keys[path]
        if path in self.values or not path:
            return self.values.get(path)
        return self.keys.get(path[:-1]) or self._mark(path[:-1])

    def at(self, line: int, column: int) -> FilePlace:
        """Return a place, line and column from 0."""
        if (length := len(self._line(line))) > _LONGEST_LINE:
            # To mask it once for each of its mistakes would take minutes.
            return FilePlace(line + 1, column + 1, f"(a line of {length:,} characters)", column)
        shift = len(self._line(line)[:column]) - len(self._masked(line, column))
        return FilePlace(line + 1, column + 1, self._masked(line), shift)

    def is_quoted(self, path: Path) -> bool:
        """Return True if a value stands in quotes."""
        mark = self._mark(path)
        return mark is not None and self._line(mark.line)[mark.column : mark.column + 1] in ("'", '"')

    def before(self, place: FilePlace) -> str:
        """Return what stands before a place in its line, and the character there, secrets not masked."""
        return self._line(place.line - 1)[: place.column]

    def _line(self, number: int) -> str:
        return self.lines[number] if number < len(self.lines) else ""

    def _masked(self, number: int, end: int | None = None) -> str:
        """Return a line, or what stands before its column `end`, without secrets."""
        text = self._line(number)[:end]
        for begin, stop in reversed(self.hidden.get(number, [])):
            if begin < len(text):
                text = text[:begin] + MASK + text[stop:]
        return redact_uri(text)


def parse(text: str, file: str, references: References) -> Document:
    """Parse YAML, and put values of the environment and of files in.

    Args:
        file: The file's name, for messages.
        references: Where the values of references come from.

    Returns:
        The document; look at its `mistakes` first.

    Example:
        >>> document = parse("a: {b: no, c: 010, d: 1e3}", "a.yaml", References({}))
        >>> document.value, document.place(("a", "c")).column
        ({'a': {'b': 'no', 'c': 10, 'd': 1000.0}}, 15)
    """
    lines = text.splitlines()
    document = Document(file, lines, _suspected(lines))
    try:
        root = _only_node(_Loader(text), document)
    except yaml.MarkedYAMLError as error:
        _add_syntax_error(document, error)
        return document
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = document.at(before.count("\n"), len(before) - before.rfind("\n") - 1)
        document.mistakes.append(
            Mistake(f"character {chr(error.character)!r} is not allowed", (), "leave it out", place)
        )
        return document
    if root is not None:
        document.hidden = _hidden(root, lines)
        document.value = _Values(document, references).of(root, (), ())
    return document


def _only_node(loader: _Loader, document: Document) -> yaml.Node | None:
    """Return the root of the file's only document; None if it is empty."""
    if not loader.check_node():
        return None
    root: yaml.Node = loader.get_node()
    if loader.check_node():
        mark = loader.get_node().start_mark
        place = document.at(mark.line, mark.column)
        document.mistakes.append(
            Mistake("a second document begins here", (), "one file, one document: leave --- out", place)
        )
    return root


def _add_syntax_error(document: Document, error: yaml.MarkedYAMLError) -> None:
    mark = error.problem_mark or error.context_mark
    place = document.at(mark.line, mark.column) if mark else document.at(0, 0)
    problem = str(error.problem or error)
    message, hint = f"this is not YAML: {problem}", "look at the indentation, and at quotes and brackets"
    if problem.endswith("levels deep"):
        message, hint = f"values and aliases are nested {problem}", "flatten them"
    elif "\\t" in problem or document.before(place).strip(" ").startswith("\t"):
        message, hint = "a tab, where YAML takes spaces only", "indent by spaces"
    elif document.before(place).endswith("${"):
        message, hint = "a reference inside {…} or […] needs quotes", '"${NAME}"'
    document.mistakes.append(Mistake(message, (), hint, place))


def _hidden(root: yaml.Node, lines: Sequence[str]) -> dict[int, list[tuple[int, int]]]:
    """Return where secrets stand in the lines; a reference is none."""
    spans: set[tuple[int, int, int]] = set()
    for node in _secret_nodes(root, Secrecy(), set()):
        start, end = node.start_mark, node.end_mark
        for number in range(start.line, min(end.line + 1, len(lines))):
            begin = start.column if number == start.line else _indent(lines[number])
            spans.add((number, begin, end.column if number == end.line else len(lines[number])))
    hidden: dict[int, list[tuple[int, int]]] = {}
    for number, begin, stop in sorted(spans):
        if begin < stop:
            hidden.setdefault(number, []).append((begin, stop))
    return hidden


def _secret_nodes(node: yaml.Node, secrecy: Secrecy, seen: set[tuple[yaml.Node, Secrecy]]) -> Iterator[yaml.ScalarNode]:
    """Yield the scalars that are secrets by their keys; those of an alias once for each secrecy of its places."""
    if (node, secrecy) in seen:
        return
    seen.add((node, secrecy))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _secret_nodes(value, secrecy.below(key.value) if key.tag == f"{_TAG}str" else secrecy, seen)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _secret_nodes(item, secrecy, seen)
    elif secrecy.is_secret and not is_reference(node.value):
        yield node


def _suspected(lines: Sequence[str]) -> dict[int, list[tuple[int, int]]]:
    """Return where secrets may stand in lines that may be no YAML: behind a secret key, and indented below it."""
    hidden: dict[int, list[tuple[int, int]]] = {}
    above: int | None = None
    for number, line in enumerate(lines):
        indent = _indent(line)
        if above is not None and (indent > above or not line.strip()):
            begin = indent
        elif key := _SECRET_KEY.search(line):
            begin, above = key.end(), indent
        else:
            begin, above = len(line), None
        if begin < len(line) and not is_reference(line[begin:].strip(" \"'")):
            hidden[number] = [(begin, len(line))]
    return hidden


def _indent(line: str) -> int:
    """Return the column of a line's first key or value."""
    return len(line) - len(line.lstrip(" \t-"))


class _Values:
    """Turns PyYAML's nodes into Python values."""

    def __init__(self, document: Document, references: References) -> None:
        self._document = document
        self._references = references
        self._count = 0

    def of(self, node: yaml.Node, path: Path, outer: tuple[yaml.Node, ...]) -> Any:
        """Return the value of a node."""
        self._document.values[path] = node.start_mark
        if node in outer:
            self._add(path, "this alias stands for itself", node)
        if not self._counts(node, path) or node in outer:
            return None
        if not isinstance(node, yaml.ScalarNode) and node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            self._refuse_tag(node, path)
            return None
        if isinstance(node, yaml.MappingNode):
            pairs = dict(self._pairs(node, path, (*outer, node)))
            return {key: self.of(value, (*path, key), (*outer, node)) for key, value in pairs.items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item, (*path, number), (*outer, node)) for number, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _counts(self, node: yaml.Node, path: Path) -> bool:
        """Count a value; return False if there are too many."""
        self._count += 1
        if self._count == _MOST_VALUES:
            self._add(path, "aliases stand for too many values", node)
        return self._count < _MOST_VALUES

    def _pairs(
        self, node: yaml.MappingNode, path: Path, outer: tuple[yaml.Node, ...]
    ) -> Iterator[tuple[Hashable, yaml.Node]]:
        """Yield the keys and values of a mapping, merged ones (``<<: *name``) first: its own replace them."""
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                for merged in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                    if isinstance(merged, yaml.MappingNode) and merged not in outer:
                        yield from self._pairs(merged, path, (*outer, merged))
                    else:
                        self._add(path, "<< takes a mapping", key)
        lines: dict[Hashable, int] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if not self._counts(key, path):
                return
            if not isinstance(key, yaml.ScalarNode):
                self._add(path, "a key is a list or a mapping", key)
                continue
            name = self._constant(key, path)
            if name in lines:
                self._add((*path, name), f"key {name!r} is there already, in line {lines[name]}", key)
                continue
            self._document.keys[(*path, name)] = key.start_mark
            lines[name] = key.start_mark.line + 1
            yield name, value

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        value = self._constant(node, path)
        if not isinstance(value, str) or "$" not in value:
            return value
        self._document.references[path] = value
        try:
            return self._references.resolve(value)
        except UnresolvedReference as error:
            self._add(path, error.message, node, error.hint)
            # The text stands for the value, so that the rest can be looked at.
            return value

    def _constant(self, node: yaml.ScalarNode, path: Path) -> Any:
        text: str = node.value
        type_name = node.tag.removeprefix(_TAG)
        if type_name not in ("str", "null", "bool", "int", "float"):
            self._refuse_tag(node, path)
            return text
        try:
            return _CONSTANTS[type_name](text)
        except ValueError:
            self._add(path, f"{MASK if is_secret(path) else text!r} is no {type_name}", node)
            return None

    def _refuse_tag(self, node: yaml.Node, path: Path) -> None:
        self._add(path, f"tag {node.tag.replace(_TAG, '!!')!r} is not allowed", node, "leave it out")

    def _at(self, node: yaml.Node) -> FilePlace:
        return self._document.at(node.start_mark.line, node.start_mark.column)

    def _add(self, path: Path, message: str, node: yaml.Node, hint: str | None = None) -> None:
        if len(self._document.mistakes) < MOST_MISTAKES:
            self._document.mistakes.append(Mistake(message, path, hint, self._at(node)))


def _int(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(text: str) -> float:
    return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))


_CONSTANTS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": _int,
    "float": _float,
}


def settings_in(variables: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return the settings in the variables whose names begin with a prefix.

    Two underscores lead into a setting. A value in brackets or braces is a list or a mapping in YAML.

    Raises:
        ConfigError: If a value in brackets or braces is not YAML.

    Example:
        >>> settings_in({"LAKE_TABLE": "events", "LAKE_LOCAL__PATH": "lake", "LAKE_KEY_FIELDS": "[id, day]"}, "LAKE_")
        {'table': 'events', 'local': {'path': 'lake'}, 'key_fields': ['id', 'day']}
    """
    settings: dict[str, Any] = {}
    for name, text in variables.items():
        if not name.startswith(prefix):
            continue
        *outer, last = name.removeprefix(prefix).lower().split("__")
        inside = settings
        for key in outer:
            inside = inside.setdefault(key, {})
        inside[last] = _value(name, text)
    return settings


def _value(name: str, text: str) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    # A $ in it is not a reference: the shell has replaced those.
    document = parse(text.replace("$", "$$"), name, References({}))
    if document.mistakes:
        raise error_of(name, document.mistakes)
    return document.value
