"""Runs the Python of documentation pages: ``python -m tests.pages PAGE …`` in one process, each page in a new folder.

A ``text`` block right behind a ``python`` block is what that block prints; ``…`` stands for any text. This file needs
nothing but Python, so that it runs where only what a page installs is there.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Args:
        language: Its language.
        text: Its text.
        line: The line of the page that it begins in, from 1.
        output: What it prints, as the page says; None = the page does not say.
    """

    language: str
    text: str
    line: int
    output: str | None = None


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page, each with the output behind it.

    Args:
        page: The page's text.
    """
    matches = list(_BLOCK.finditer(page))
    for match, following in pairwise([*matches, None]):
        assert match
        output = None
        if following and following[1] == "text" and not page[match.end() : following.start()].strip():
            output = following[2]
        if match[1] != "text":
            yield Block(match[1], match[2], page.count("\n", 0, match.start(2)) + 1, output)


def run(path: Path, exchanged: Mapping[str, str]) -> list[str]:
    """Run the Python blocks of a page, one after the other in one namespace; return what is wrong.

    Args:
        path: The page.
        exchanged: Texts, such as addresses, by the texts of the page that they stand for.
    """
    text, names = path.read_text(), dict[str, Any]({"__name__": "__main__"})
    for given, real in exchanged.items():
        text = text.replace(given, real)
    for block in blocks(text):
        if block.language == "python":
            try:
                printed = _printed(path, block, names)
            except Exception:
                return [f"{path}, line {block.line}:\n{traceback.format_exc()}"]
            if block.output is not None and not _fits(block.output, printed):
                return [f"{path}, line {block.line} printed\n{printed}and not\n{block.output}"]
    return []


def _printed(path: Path, block: Block, names: dict[str, Any]) -> str:
    # Empty lines in front of the code: tracebacks have the lines of the page.
    code = compile("\n" * (block.line - 1) + block.text, path, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, names)
    return output.getvalue()


def _fits(expected: str, printed: str) -> bool:
    expected, printed = (re.sub(r" +$", "", text.rstrip(), flags=re.M) for text in (expected, printed))
    return re.fullmatch(".*?".join(map(re.escape, expected.split("…"))), printed, re.S) is not None


def main(arguments: list[str]) -> int:
    """Run pages; ``GIVEN=REAL`` among the arguments exchanges a text in each of them."""
    exchanged = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    wrong = []
    # Spark's processes stay in the folder of the first page: all of them last as long as this process.
    with tempfile.TemporaryDirectory() as folder:
        for number, page in enumerate(Path(argument).resolve() for argument in arguments if "=" not in argument):
            (own := Path(folder, str(number))).mkdir()
            with contextlib.chdir(own):
                wrong += run(page, exchanged)
    print("\n".join(wrong) or "all pages run")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
