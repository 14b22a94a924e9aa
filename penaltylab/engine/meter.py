"""Meter: where the host's time goes, by section and step, on whatever clock the device has."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch

from penaltylab import devices


@dataclass(eq=False)
class Iteration:
    """One iteration of the loop; us by section (elapsed, blocked) and by kind of wait."""

    start_us: float
    blocked_at_start_us: float
    traffic_at_start: tuple[float, float]
    is_decode: bool = False
    end_us: float = math.nan
    blocked_at_end_us: float = math.nan
    traffic_at_end: tuple[float, float] = (math.nan, math.nan)
    elapsed_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    blocked_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waited_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    forward: tuple[Any, Any] | None = None  # the events around the launch's forward pass


class Meter:
    """Collects an `Iteration` a loop iteration. With `annotate`, sections appear in a profiler's trace by name."""

    def __init__(self, device: torch.device, annotate: bool = False) -> None:
        self.device = device
        self.annotate = annotate
        self.iterations: list[Iteration] = []

    def start_iteration(self) -> Iteration:
        """The loop's next iteration begins; the one before ends."""
        self._end()
        device = self.device
        self.iterations.append(Iteration(devices.now_us(device), devices.blocked_us(device), devices.traffic(device)))
        return self.iterations[-1]

    def finish(self) -> None:
        """The last iteration ends."""
        if self.iterations and math.isnan(self.iterations[-1].end_us):
            self._end()

    def _end(self) -> None:
        if self.iterations:
            self.iterations[-1].end_us = devices.now_us(self.device)
            self.iterations[-1].blocked_at_end_us = devices.blocked_us(self.device)
            self.iterations[-1].traffic_at_end = devices.traffic(self.device)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Charge the host's elapsed and blocked time of the body to `name`."""
        start, blocked = devices.now_us(self.device), devices.blocked_us(self.device)
        with torch.profiler.record_function(name) if self.annotate else nullcontext():
            yield
        if self.iterations:
            self.iterations[-1].elapsed_us[name] += devices.now_us(self.device) - start
            self.iterations[-1].blocked_us[name] += devices.blocked_us(self.device) - blocked

    @contextmanager
    def wait(self, kind: str) -> Iterator[None]:
        """Charge the body, which does nothing but wait for the device, to the host waits of `kind`."""
        start, blocked = devices.now_us(self.device), devices.blocked_us(self.device)
        yield
        waited = devices.blocked_us(self.device) - blocked
        if self.iterations:
            self.iterations[-1].waited_us[kind] += devices.now_us(self.device) - start if math.isnan(waited) else waited


def section(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a method of an object that has a `meter`: each call is a section of that name."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self.meter.section(name):
                return method(self, *args, **kwargs)

        return measured

    return decorate
