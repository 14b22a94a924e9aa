"""How PyTorch was built and what it finds. Importing torch takes seconds, so a driver asks a process of its own.

`python -m penaltylab.study.torch_build` prints it as one JSON object.
"""

import json
import re
import subprocess
import sys
from typing import Any


def torch_build() -> dict[str, Any]:
    """Version, revision, CUDA or ROCm, compile flags, threads, and the name of each GPU. Imports torch."""
    import torch

    return {
        "version": str(torch.__version__),
        "git_version": torch.version.git_version,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "flags": re.sub(r"CXX_COMPILER=[^,]*, ", "", torch.__config__.show()),  # a path of whoever built it
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def ask() -> "subprocess.Popen[str]":
    """Start the process that tells; `answer` reads it."""
    command = [sys.executable, "-m", "penaltylab.study.torch_build"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def answer(process: "subprocess.Popen[str]") -> dict[str, Any] | None:
    """What a process of `ask` told; None where it could not."""
    try:
        printed, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    found: dict[str, Any] | None = json.loads(printed) if process.returncode == 0 else None
    return found


if __name__ == "__main__":
    print(json.dumps(torch_build()))
