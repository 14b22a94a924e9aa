"""What every test shares: one thread an operator, and a skip that says what is missing."""

import os
import shutil

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A process uses one device: the emulated one, unless the tests of the GPU are asked for (`pytest -m gpu`)."""
    if config.getoption("markexpr") != "gpu":
        os.environ.setdefault("PENALTYLAB_EMU", "1")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device here")
        if os.environ.get("PENALTYLAB_EMU"):
            pytest.skip("this process is on the emulated device: run `pytest -m gpu` for the tests of the GPU")
    if item.get_closest_marker("browser") and not shutil.which("chromium"):
        pytest.skip("no chromium here: Debian's package of that name brings it")
