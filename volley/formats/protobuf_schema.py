"""Makes descriptors of Protobuf schemas: of a registry, of a descriptor file, or of the text of a .proto file."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from volley.errors import ConfigError, MissingDependencyError, SourceError
from volley.formats.registered import Registered

__all__ = [
    *(
        "LARGEST",
        "check_files",
        "decoded",
        "files_of",
        "files_of_registered",
        "is_built_in",
        "joined",
        "message_at",
        "message_named",
    ),
    "parts_of",
]

LARGEST = 16 << 20
"""The limit of a schema in bytes."""

_MOST_FILES = 1_000
_SECONDS = 60
_ROOT = "volley_schema.proto"
# What compilers know by themselves, and registries don't keep.
_BUILT_IN = re.compile(r"(google/protobuf|google/type|confluent|confluent/type)/\w+\.proto")
_PACKAGES = {"confluent": "confluent_kafka.schema_registry.confluent"}
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+|option\s+)?"([^"\n]+)"')


def files_of(schema: str | bytes) -> bytes:
    """Return a schema as a serialized FileDescriptorSet, in which the last file is the one with the messages.

    Args:
        schema: Such a set, as ``protoc --include_imports --descriptor_set_out`` writes it, or as base64; or the text
            of a .proto file that imports nothing but what every compiler knows.

    Raises:
        ConfigError: If it is none of them.
        MissingDependencyError: If protobuf is not installed, or for a text its compiler.
    """
    try:
        data = schema if isinstance(schema, bytes) else decoded(schema)
        if len(data or schema) > LARGEST:
            raise SourceError(f"it has more than {LARGEST:,} bytes")
        if data is None:
            return _compiled({_ROOT: str(schema)}, {}, _ROOT)
        return joined(_set(data).file, "")
    except SourceError as error:
        raise ConfigError(
            f"not a Protobuf schema: {error.message}",
            hint="give what protoc --include_imports --descriptor_set_out writes, or the text of a .proto file",
        ) from error


def files_of_registered(schema: Registered) -> bytes:
    """Return a registry's schema likewise.

    Raises:
        SourceError: If it is damaged, or imports what the registry did not give.
        MissingDependencyError: If protobuf is not installed, or for a text its compiler.
    """
    texts: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for name, text in [*_references(schema), (_ROOT, schema.text)]:
        data = decoded(text)
        if data is None:
            texts[name] = text
        else:
            file = _file(data)
            # Others import it under the name of the reference.
            file.name = name
            files[name] = file.SerializeToString()
    if texts:
        return _compiled(texts, files, _ROOT)
    return joined(map(_file, files.values()), _ROOT)


def parts_of(files: bytes) -> list[Any]:
    """Return the files of a set, as FileDescriptorProtos."""
    return [*_set(files).file]


def check_files(files: bytes) -> None:
    """Raise SourceError unless the files of a set are valid descriptors."""
    _loaded(files)


def is_built_in(name: str) -> bool:
    """Return True for a file that compilers know by themselves.

    Example:
        >>> is_built_in("google/protobuf/timestamp.proto"), is_built_in("shop/order.proto")
        (True, False)
    """
    return bool(_BUILT_IN.fullmatch(name))


def message_named(files: bytes, name: str | None) -> Any:
    """Return the descriptor of a message.

    Args:
        files: What `files_of` returns.
        name: Its full name, also of an imported file, or that within the last file's package; None = the first one
            of the last file.

    Raises:
        ConfigError: If there is no such message.
        SourceError: If the files are no valid descriptors.
    """
    file = _loaded(files)
    messages = {message.full_name: message for message in _messages(file.message_types_by_name.values())}
    if name is None and messages:
        return next(iter(file.message_types_by_name.values()))
    prefix = f"{file.package}." if file.package else ""
    message = messages.get(name or "") or messages.get(f"{prefix}{name}") or _imported(file.pool, name or "")
    if message is None:
        raise ConfigError(
            f"the Protobuf schema has no message {name!r}" if name else "the Protobuf schema has no message",
            hint=f"it has {', '.join(sorted(messages)[:10])}" if messages else "give a file with messages",
        )
    return message


def _imported(pool: Any, name: str) -> Any:
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        return None


def message_at(files: bytes, indexes: Sequence[int]) -> Any:
    """Return the descriptor of the message that stands at these indexes in the last file, from outside to inside.

    Raises:
        SourceError: If there is none.
    """
    file = _loaded(files)
    messages: Sequence[Any] = [*file.message_types_by_name.values()]
    message = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise SourceError(f"its schema has no message at {list(indexes)}")
        message = messages[index]
        messages = message.nested_types
    return message


def _references(schema: Registered) -> Iterator[tuple[str, str]]:
    for name, reference in schema.references:
        yield from _references(reference)
        yield name, reference.text


def _messages(messages: Iterable[Any]) -> Iterator[Any]:
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
        yield from _messages(message.nested_types)


def decoded(text: str) -> bytes | None:
    """Return base64 as bytes; None for the text of a .proto file, which always has other characters."""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


def _descriptors() -> Any:
    try:
        from google.protobuf import descriptor_pb2
    except ImportError as error:
        raise MissingDependencyError(
            "Protobuf needs protobuf", hint='pip install "volley-stream[kafka,protobuf]"'
        ) from error
    return descriptor_pb2


def _file(data: bytes) -> Any:
    return _parsed(_descriptors().FileDescriptorProto, data)


def _set(data: bytes) -> Any:
    files = _parsed(_descriptors().FileDescriptorSet, data)
    if not files.file:
        raise SourceError("it has no file")
    return files


def _parsed(message: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return message.FromString(data)
    except DecodeError as error:
        raise SourceError(f"it is no descriptor: {error}") from error


def joined(files: Iterable[Any], root: str) -> bytes:
    """Return a set with imported files first, those that compilers know among them, and no others.

    Args:
        root: The name of the last file; empty = that of the last one given.

    Raises:
        SourceError: If one imports another that is not there, or they do so in a circle.
    """
    by_name = {file.name: file for file in files}
    last = root or next(reversed(by_name))
    graph: dict[str, list[str]] = {}
    waiting = [last]
    while waiting:
        name = waiting.pop()
        if name in graph:
            continue
        if is_built_in(name):
            by_name[name] = _built_in(name)
        if name not in by_name:
            raise SourceError(f"it imports {name!r}, which is not there")
        graph[name] = list(by_name[name].dependency)
        waiting += graph[name]
        if len(graph) > _MOST_FILES:
            raise SourceError(f"it has more than {_MOST_FILES:,} files")
    try:
        order = [*TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise SourceError("its files import one another in a circle") from error
    # Nothing imports the last one.
    order = [*(name for name in order if name != last), last]
    files_set = _descriptors().FileDescriptorSet(file=[by_name[name] for name in order])
    return bytes(files_set.SerializeToString(deterministic=True))


def _built_in(name: str) -> Any:
    """Return a file that compilers know, whatever a registry gives under its name."""
    package, _, rest = name.partition("/")
    module = f"{_PACKAGES.get(package, package)}.{rest}".replace("/", ".").removesuffix(".proto") + "_pb2"
    try:
        descriptor = import_module(module).DESCRIPTOR
    except ImportError as error:
        raise SourceError(f"it imports {name!r}, which is not installed") from error
    file = _descriptors().FileDescriptorProto()
    descriptor.CopyToProto(file)
    file.name = name
    return file


@lru_cache(maxsize=200)
def _loaded(files: bytes) -> Any:
    """Return the last file of a set, in a pool of its own."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    name = ""
    for file in _set(files).file:
        name = file.name
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except Exception as error:
            # It raises TypeError for what a compiler would refuse, and may raise others.
            raise SourceError(f"the Protobuf schema is no valid file: {str(error)[:300]}") from error
    return pool.FindFileByName(name)


def _compiled(texts: Mapping[str, str], files: Mapping[str, bytes], root: str) -> bytes:
    """Compile .proto texts, in a process of its own.

    Args:
        texts: The texts, by the name under which they are imported.
        files: Imported files that are descriptors already.
    """
    known = {name: _file(data) for name, data in files.items()}
    for name in {found for text in texts.values() for found in _IMPORT.findall(text)}:
        if is_built_in(name):
            known[name] = _built_in(name)
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder, "texts", _inside(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return _run(folder, known, root)


def _run(folder: str, known: Mapping[str, Any], root: str) -> bytes:
    descriptors = _descriptors()
    imported, compiled = Path(folder, "imported"), Path(folder, "compiled")
    arguments = [f"-I{folder}/texts", "--include_imports", f"--descriptor_set_out={compiled}", root]
    if known:
        # What these import comes along.
        more = [file for name in known for file in _dependencies(known, name)]
        files = {file.name: file for file in [*more, *known.values()]}
        imported.write_bytes(descriptors.FileDescriptorSet(file=[*files.values()]).SerializeToString())
        arguments.insert(1, f"--descriptor_set_in={imported}")
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"it was not compiled within {_SECONDS} seconds") from error
    if "No module named" in run.stderr:
        raise MissingDependencyError(
            "the text of a .proto file needs a compiler", hint='pip install "volley-stream[kafka,protobuf]"'
        )
    if run.returncode or not compiled.exists():
        lines = run.stderr.replace(f"{folder}/texts/", "").splitlines()
        reason = next((line for line in lines if ".proto:" in line), "the compiler failed")
        raise SourceError(f"it does not compile: {reason[:300]}")
    return joined(_set(compiled.read_bytes()).file, root)


def _dependencies(known: Mapping[str, Any], name: str) -> Iterator[Any]:
    file = known.get(name) or _built_in(name)
    yield file
    for inner in file.dependency:
        if is_built_in(inner):
            yield from _dependencies(known, inner)


def _inside(name: str) -> str:
    """Check that the name of an imported file is a path below a folder."""
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)*", name) or ".." in name.split("/"):
        raise SourceError(f"it imports {name[:100]!r}, which is no path of a file")
    return name
