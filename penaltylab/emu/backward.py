"""Which stream a backward pass runs on.

Autograd runs the nodes of a device on a thread of its own. As on CUDA, a node runs on the stream that was current when
its forward ran, streams are ordered where the pass goes from one to another, and the caller's current stream waits for
all of them at the end. The forward's stream is found by the node's sequence number, which each thread counts for
itself: of two threads that build graphs at once on side streams, one may be taken for the other.
"""

from typing import TYPE_CHECKING, Any

import torch

from penaltylab.emu.queues import Queue
from penaltylab.emu.sites import Site

if TYPE_CHECKING:
    from penaltylab.emu.device import Device

_next_number: Any = torch._C._autograd._get_sequence_nr
_KEPT = 1 << 16


class Backward:
    """The side streams of recorded forwards, and the pass that is running."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self._forward: dict[int, Queue] = {}
        self._caller: Queue | None = None
        self._last: Queue | None = None
        self.site: Site = None

    def reset(self) -> None:
        """No forward is known."""
        self._forward.clear()

    @property
    def running(self) -> bool:
        """Whether a backward pass is under way."""
        return self._caller is not None

    def note(self, queue: Queue) -> None:
        """An operator runs on `queue` with gradients enabled; its node, if it has one, was numbered just before."""
        number, current = _next_number(), self._device.current
        if number != current.node_number:
            current.node_number = number
            if queue is not self._device.default:
                if len(self._forward) >= _KEPT:
                    self._forward.clear()
                self._forward[number - 1] = queue

    def queue(self, node: Any) -> Queue:
        """The stream that the operators of `node` run on."""
        caller = self._caller or self._device.default
        queue = self._forward.get(node._sequence_nr(), caller)
        last, self._last = self._last, queue
        if last is not None and last is not queue:
            _follow(queue, last)
        return queue

    def run(self, engine: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A backward pass, `engine(*args, **kwargs)`."""
        device = self._device
        before = self._caller, self._last, self.site
        self._caller = self._last = caller = device.current_queue()
        self.site = device.sites.caller()
        try:
            return engine(*args, **kwargs)
        finally:
            for queue in {*self._forward.values(), self._last} - {caller, None}:
                _follow(caller, queue)
            self._caller, self._last, self.site = before


def _follow(queue: Queue, earlier: Queue) -> None:
    queue.join(earlier.order)
    queue.tail_us = max(queue.tail_us, earlier.tail_us)


def patch_backward(device: "Device") -> None:
    """Tell `device` of every backward pass."""
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        return device.backward.run(engine, args, kwargs)

    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
