"""Streams of PyTorch, by their handles."""

from __future__ import annotations

from typing import Callable

import torch


def _current_stream(ordinal: int) -> int:
    stream: int = torch.cuda.current_stream(ordinal).cuda_stream
    return stream


# Without an object for each call, where PyTorch has that.
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
"""Handle of the current stream of a GPU, by its ordinal."""
