"""A figure of Matplotlib's that a notebook shows by itself."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

__all__ = ["NotebookFigure"]


class NotebookFigure(Figure):
    """Shows itself also where nothing has imported pyplot, which tells a notebook how to show figures."""

    def _repr_png_(self) -> bytes:
        with BytesIO() as file:
            self.savefig(file, format="png")
            return file.getvalue()
