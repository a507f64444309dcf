"""The command line: ``python -m volley``, and the command ``volley`` of the extra ``cli``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit with a hint if the extra ``cli`` is not installed."""
    try:
        from volley.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "volley":
            raise
        sys.exit(f'the command volley needs {error.name}\n  hint: pip install "volley-stream[cli]"')
    app()


if __name__ == "__main__":
    main()
