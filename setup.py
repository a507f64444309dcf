"""Leaves the README's links to pages of this folder out of the package's description: an index has no such pages."""

import re
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")

setup(
    long_description=_LINK.sub(r"\1", Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
