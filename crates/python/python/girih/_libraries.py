"""CUDA's libraries of the Python environment, for programs that have not activated it."""

import ctypes
import functools
import sys
from collections.abc import Iterable
from pathlib import Path

# In the order of their needs: the second of each pair opens the first.
_NAMES = ("libnvrtc-builtins.so.13*", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13")


def found(folders: Iterable[str]) -> list[Path]:
    """Libraries of NVRTC and cuBLAS in the packages of NVIDIA below some folders; of each name the first."""
    homes = [home for folder in folders for home in sorted(Path(folder or ".").glob("nvidia/*/lib"))]
    each = (next((path for home in homes for path in sorted(home.glob(name))), None) for name in _NAMES)
    return [path for path in each if path is not None]


@functools.cache
def load() -> None:
    """Loads them, once: a library that the process has is found by its name afterwards, wherever it lies.

    What does not load is left to the search of girih, whose message says what is missing. Without a driver nothing is
    loaded.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    for path in found(sys.path):
        try:
            ctypes.CDLL(str(path))
        except OSError:
            pass
