"""Pictures of graphs."""

import os
from pathlib import Path

from ._girih import Graph, spy_png


class Picture(bytes):
    """PNG, which notebooks show."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture to a file."""
        Path(path).write_bytes(self)

    def _repr_png_(self) -> bytes:
        return bytes(self)

    def __repr__(self) -> str:
        return f"girih.Picture({len(self)} bytes of PNG)"


def spy(*graphs: Graph) -> Picture:
    """Picture of where the edges of graphs lie, such as before and after `reorder`: row v has the sources of node v.

    Darker cells have more edges, on one logarithmic scale for all graphs; empty ones are white.

    Raises ValueError without a graph.
    """
    if not graphs:
        raise ValueError("spy() needs at least one graph")
    return Picture(spy_png(list(graphs)))
