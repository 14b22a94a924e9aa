"""Small programs that run on a GPU and on the emulated device alike, and tell in which order things happened.

    python -m tests.emu.order emu|cuda

prints, as JSON, which calls the host waited in (`waits`) and in which order the parts of a program ended (`ends`).
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from penaltylab import devices

BUSY_MS = 30.0
Action = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]

WAITS: dict[str, Action] = {
    "launch": lambda x, mask, index: x + 1,
    "item": lambda x, mask, index: x[0].item(),
    "cpu": lambda x, mask, index: x.cpu(),
    "tolist": lambda x, mask, index: x.tolist(),
    "to cpu, non-blocking": lambda x, mask, index: x.to("cpu", non_blocking=True),
    "to pageable, non-blocking": lambda x, mask, index: torch.empty(4).copy_(x, non_blocking=True),
    "tensor": lambda x, mask, index: torch.tensor([1, 2], device=x.device),
    "tensor, pinned": lambda x, mask, index: torch.tensor([1, 2], pin_memory=True, device=x.device),
    "pinned, blocking": lambda x, mask, index: torch.tensor([1, 2], pin_memory=True).to(x.device),
    "pinned, non-blocking": lambda x, mask, index: torch.zeros(3, pin_memory=True).to(x.device, non_blocking=True),
    "small pageable, non-blocking": lambda x, mask, index: torch.zeros(3).to(x.device, non_blocking=True),
    "strided pinned, non-blocking": lambda x, mask, index: torch.zeros(64, 64, pin_memory=True)[:, 0].to(
        x.device, non_blocking=True
    ),
    "boolean index": lambda x, mask, index: x[mask],
    "an index": lambda x, mask, index: x[index],
    "a mask set to a number": lambda x, mask, index: x.__setitem__(mask, 0),
    "an element set to a number": lambda x, mask, index: x.__setitem__(1, 0),
    "a slice set to a number": lambda x, mask, index: x.__setitem__(slice(1), 0),
    "nonzero": lambda x, mask, index: x.nonzero(),
    "masked_fill": lambda x, mask, index: x.masked_fill(mask, 0),
    "where": lambda x, mask, index: torch.where(mask, x, 0),
    "unique": lambda x, mask, index: x.unique(),
    "masked_select": lambda x, mask, index: x.masked_select(mask),
    "repeat_interleave": lambda x, mask, index: index.repeat_interleave(index),
    "repeat_interleave of known size": lambda x, mask, index: index.repeat_interleave(index, output_size=1),
    "sort": lambda x, mask, index: x.sort(),
    "multinomial": lambda x, mask, index: torch.multinomial(x, 1),
    "equal": lambda x, mask, index: torch.equal(x, x),
}


def waits(device: torch.device) -> dict[str, bool]:
    """Of each action, made behind a busy stream: had the stream come to its end when the call returned?"""
    module = torch.get_device_module(device)
    found = {}
    for name, action in WAITS.items():
        for rehearsal in (True, False):  # the first call may load code or allocate, which waits
            x, mask = torch.ones(4, device=device), torch.ones(4, dtype=torch.bool, device=device)
            index = torch.arange(2, device=device)
            module.synchronize()
            if not rehearsal:
                devices.busy(device, BUSY_MS)
            done = module.current_stream().record_event()
            action(x, mask, index)
            found[name] = bool(done.query())
            module.synchronize()
    return found


def _independent(run: Callable[..., None], one: Any, other: Any) -> None:
    run("long", one, 4 * BUSY_MS)
    run("short", other, BUSY_MS)


def _wait_stream(run: Callable[..., None], one: Any, other: Any) -> None:
    run("long", one, 4 * BUSY_MS)
    other.wait_stream(one)
    run("short", other, BUSY_MS)


def _early_event(run: Callable[..., None], one: Any, other: Any) -> None:
    run("first", one, BUSY_MS)
    event = one.record_event()
    run("long", one, 4 * BUSY_MS)
    other.wait_event(event)
    run("short", other, BUSY_MS)


def _recorded_again(run: Callable[..., None], one: Any, other: Any) -> None:
    run("first", one, BUSY_MS)
    event = one.record_event()
    other.wait_event(event)
    run("long", one, 4 * BUSY_MS)
    one.record_event(event)
    run("short", other, BUSY_MS)


def _host_waits(run: Callable[..., None], one: Any, other: Any) -> None:
    run("long", one, 4 * BUSY_MS)
    one.synchronize()
    run("short", other, BUSY_MS)


ENDS = {
    "independent streams": _independent,
    "wait_stream": _wait_stream,
    "an event recorded early": _early_event,
    "an event recorded again": _recorded_again,
    "the host waits": _host_waits,
}


def ends(device: torch.device) -> dict[str, list[str]]:
    """Of each program, the names of its parts in the order in which they ended."""
    module = torch.get_device_module(device)
    found = {}
    for name, program in ENDS.items():
        one, other = module.Stream(), module.Stream()
        marks: dict[str, Any] = {}

        def run(label: str, stream: Any, ms: float, marks: dict[str, Any] = marks) -> None:
            with module.stream(stream):
                devices.busy(device, ms)
                marks[label] = module.Event(enable_timing=True)
                marks[label].record(stream)

        module.synchronize()
        start = module.Event(enable_timing=True)
        start.record()
        one.wait_event(start)
        other.wait_event(start)
        program(run, one, other)
        module.synchronize()
        found[name] = sorted(marks, key=lambda label: start.elapsed_time(marks[label]))
    return found


def observe(name: str) -> dict[str, Any]:
    """Both, on device `name`."""
    device = devices.resolve(name)
    return {"waits": waits(device), "ends": ends(device)}


if __name__ == "__main__":
    print(json.dumps(observe(sys.argv[1])))
