"""The host's clock, in us of virtual time."""

import threading
import time
from typing import Any

import torch
from torch.autograd import profiler

from penaltylab.errors import InputError

HOST_TIMES = ("modelled", "measured")

_profiler_sees: Any = torch._C._autograd._enable_record_function


class _Forked:
    """Stands where the lock was, in a child that was forked after the device was made."""

    def acquire(self) -> None:
        raise RuntimeError(
            "Cannot re-initialize emu in forked subprocess. To use emu with multiprocessing, you must use the 'spawn' "
            "start method"
        )

    def release(self) -> None:
        """Never held."""


class Clock:
    """Virtual host time: real time outside the emulator counts (`measured`) or does not (`modelled`); a call into the
    emulator costs what the machine says, and a call that blocks makes the clock jump.

    `enter` and `leave` bracket every call into the emulator. They nest, and exclude other threads in between.
    PyTorch's profiler does not see the operators in between, which no real device would run.
    """

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        self._depth = 0
        self._hidden = False
        self.reset("modelled")

    def reset(self, host_time: str) -> None:
        """Back to 0."""
        if host_time not in HOST_TIMES:
            raise InputError(f"host_time {host_time!r}: not one of {', '.join(HOST_TIMES)}")
        with self._lock:
            self.host_time = host_time
            self.now_us = 0.0
            self.blocked_us = 0.0
            self.breaks: list[tuple[int, float]] | None = None
            self._measured = host_time == "measured"
            self._real = self._measured
            self._left_ns = time.perf_counter_ns()

    def enter(self) -> None:
        """The calling thread enters the emulator."""
        self._lock.acquire()
        self._depth += 1
        if self._depth > 1:
            return
        if profiler._is_profiler_enabled:
            self._hidden = True
            _profiler_sees(False)
        if self._real:
            real = time.perf_counter_ns()
            if self._measured:
                self.now_us += (real - self._left_ns) / 1e3
            if self.breaks is not None:
                self.breaks.append((real, self.now_us))

    def leave(self) -> None:
        """The calling thread returns to the user's code."""
        self._depth -= 1
        if not self._depth:
            if self._hidden:
                self._hidden = False
                _profiler_sees(True)
            if self._real:
                self._left_ns = real = time.perf_counter_ns()
                if self.breaks is not None:
                    self.breaks.append((real, self.now_us))
        self._lock.release()

    def forbid(self) -> None:
        """This is a forked child: from here on every call into the emulator raises, as CUDA's do."""
        self._lock = _Forked()

    def __enter__(self) -> "Clock":
        self.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()

    def read(self) -> float:
        """What the host's clock shows now."""
        with self:
            return self.now_us

    def block_until(self, when_us: float) -> float:
        """The host stands still until `when_us`; returns for how long."""
        blocked = max(0.0, when_us - self.now_us)
        self.now_us += blocked
        self.blocked_us += blocked
        return blocked

    def start_breaks(self) -> None:
        """Keep the real and virtual time of every entry and exit from here on."""
        with self:
            self.breaks = [(time.perf_counter_ns(), self.now_us)]
            self._real = True

    def stop_breaks(self) -> list[tuple[int, float]]:
        """Stop, and what was kept."""
        with self:
            breaks, self.breaks = self.breaks or [], None
            breaks.append((time.perf_counter_ns(), self.now_us))
            self._real = self._measured
        return breaks
