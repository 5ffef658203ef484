"""What the peer scripts share: reading girih's folder, and the question-and-answer loop with the harness."""
import json
import resource
import sys
import time

import numpy as np
import torch


def tensor(folder, name):
    """The floats of array NAME of a folder in girih's own layout."""
    return torch.from_numpy(np.load(f"{folder}/{name}.npy"))


def ids(folder, name):
    """The integers of array NAME, as 64-bit: torch takes no others as indices."""
    return torch.from_numpy(np.load(f"{folder}/{name}.npy").astype(np.int64))


def serve(name, answer):
    """Announces the library, then times `answer(question)()` once for every line of standard input."""
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        work = answer(line.split())
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes}), flush=True)
