"""Interleaved timing: what is compared is run in turns in one process, so that a noisy machine is noisy for all."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from penaltylab.upstream import Upstream, load
from penaltylab.upstream.wheel import cache_folder

Body = Callable[[], object]
RELEASE = "0.5.14"


def cached_release() -> Upstream | None:
    """The sglang to compare with, if it is in the cache: a benchmark fetches nothing."""
    return load(RELEASE) if (cache_folder() / f"sglang-{RELEASE}").is_dir() else None


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch's operators on one thread of the host, as a server's are that share it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def host_us(
    bodies: dict[str, Body], rounds: int = 15, at_least_us: float = 200, enough_s: float = 1.5
) -> dict[str, float]:
    """The lowest time of one call of each body, in us of the host; a round repeats a body for `at_least_us`.

    After three rounds, `enough_s` seconds are enough.
    """
    calls = {name: _calls(body, at_least_us) for name, body in bodies.items()}
    lowest = dict.fromkeys(bodies, float("inf"))
    start = time.perf_counter()
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() - start > enough_s:
            break
        for name, body in bodies.items():
            lowest[name] = min(lowest[name], _timed(body, calls[name]))
    return lowest


def device_us(bodies: dict[str, Body], device: torch.device, rounds: int = 15, calls: int = 20) -> dict[str, float]:
    """The median time of one call of each body in us of the device, between events on the current stream."""
    module = torch.get_device_module(device)
    times: dict[str, list[float]] = {name: [] for name in bodies}
    for _ in range(rounds):
        for name, body in bodies.items():
            start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                body()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3 / calls)
    return {name: median(values) for name, values in times.items()}


def _calls(body: Body, at_least_us: float) -> int:
    body()
    return max(1, int(at_least_us / max(_timed(body, 1), 0.05)))


def _timed(body: Body, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        body()
    return (time.perf_counter_ns() - start) / calls / 1e3
