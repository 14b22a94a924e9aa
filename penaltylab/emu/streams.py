"""`Stream` and `Event` of the emulated device, with the interface of `torch.cuda`'s."""

from typing import Any

import torch

from penaltylab.emu.alias import check_device
from penaltylab.emu.device import Device
from penaltylab.emu.queues import LostRecord, Order, Queue
from penaltylab.emu.sites import Site

_PRIVATE_USE_1 = 20
_LOST_KEPT = 7


class Stream(torch.Stream):
    """A handle of one of the device's streams. `name` is shown in traces and messages."""

    _device: Device
    _queue: Queue

    def __new__(
        cls, device: Any = None, priority: int = 0, *, of: Device | None = None, queue: Queue | None = None
    ) -> "Stream":
        if device is not None:
            check_device(torch.device(device) if not isinstance(device, int) else torch.device("emu", device))
        if of is None:
            from penaltylab.emu import runtime

            of = runtime().device
        queue = queue or of.new_queue(priority)
        self = super().__new__(cls, stream_id=queue.stream_id, device_index=0, device_type=_PRIVATE_USE_1)
        self._device, self._queue = of, queue
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def name(self) -> str:
        """What the stream is for, such as "forward stream"."""
        return self._queue.name

    @name.setter
    def name(self, name: str) -> None:
        self._queue.name = name

    @property
    def priority(self) -> int:
        """-1 (high) or 0."""
        return self._queue.priority

    def wait_stream(self, stream: torch.Stream) -> None:
        """What is enqueued here from now on runs after everything now enqueued on `stream`."""
        event = Event(of=self._device)
        event.record(stream)
        self.wait_event(event)

    def wait_event(self, event: "Event") -> None:  # type: ignore[override]
        """What is enqueued here from now on runs after what `event` recorded; nothing if it has recorded nothing."""
        device, queue = self._device, self._queue
        with device.clock:
            device.call("cudaStreamWaitEvent", device.machine.event_wait_us, queue.stream_id, device.sites.caller())
            if event._order is not None:
                queue.join(event._order)
                queue.lost.extend(event._lost)
                queue.tail_us = max(queue.tail_us, event._done_us)

    def record_event(self, event: "Event | None" = None) -> "Event":  # type: ignore[override]
        """Record `event`, or a new one, behind everything now enqueued."""
        event = event if event is not None else Event(of=self._device)
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether everything enqueued is done; if so the host knows it from here on."""
        device, queue = self._device, self._queue
        with device.clock as clock:
            device.call("cudaStreamQuery", device.machine.event_query_us, queue.stream_id, device.sites.caller())
            done = queue.tail_us <= clock.now_us
            if done:
                device.know(queue.order)
        return done

    def synchronize(self) -> None:
        """The host waits until everything enqueued is done."""
        device, queue = self._device, self._queue
        with device.clock:
            site = device.sites.caller()
            sync = device.planned("stream-synchronize", "Stream.synchronize", queue, site)
            sync.blocked_us = device.wait("cudaStreamSynchronize", queue.stream_id, queue.tail_us, queue.order, site)

    def __enter__(self) -> "Stream":
        current = self._device.current
        current.left.append(current.queue)
        current.queue = self._queue
        return self

    def __exit__(self, *exc: object) -> None:
        current = self._device.current
        current.queue = current.left.pop()

    def __reduce__(self) -> Any:
        raise TypeError("emu: a Stream cannot be pickled or copied")

    def __repr__(self) -> str:
        return f"<emu Stream {self._queue.stream_id}{f' {self._queue.name!r}' if self._queue.name else ''}>"


class Event(torch.Event):
    """A point in a stream. Recorded again it stands for the new point; who waited already is not affected."""

    _device: Device
    _timed: bool
    _order: Order | None
    _done_us: float
    _stream_id: int
    _site: Site
    _lost: list[LostRecord]

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        of: Device | None = None,
    ) -> "Event":
        if interprocess:
            raise RuntimeError("emu: no interprocess events; the device lives in one process")
        if of is None:
            from penaltylab.emu import runtime

            of = runtime().device
        self = super().__new__(cls, device="emu", enable_timing=enable_timing)
        self._device, self._timed = of, enable_timing
        self._order, self._done_us, self._stream_id, self._site, self._lost = None, 0.0, 0, None, []
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record behind everything now enqueued on `stream` (default: the current one)."""
        device = self._device
        with device.clock as clock:
            queue = device.current_queue() if stream is None else device.queue_of(stream)
            site = device.sites.caller()
            device.host_writes.look(site, thorough=True)
            device.stamp(queue, site, "Event.record")
            device.call("cudaEventRecord", device.machine.event_record_us, queue.stream_id, site)
            if self._order is not None and queue.order.get(self._stream_id, 0) < self._order[self._stream_id]:
                self._lost = [*self._lost[-_LOST_KEPT:], LostRecord(self._order, self._site, site)]
            self._order, self._site = dict(queue.order), site
            self._done_us = max(queue.tail_us, clock.now_us)
            self._stream_id = queue.stream_id

    def wait(self, stream: torch.Stream | None = None) -> None:
        """`stream` (default: the current one) waits for this event."""
        device = self._device
        queue = device.current_queue() if stream is None else device.queue_of(stream)
        Stream(of=device, queue=queue).wait_event(self)

    def query(self) -> bool:
        """Whether the recorded point has passed; if so the host knows it from here on."""
        device = self._device
        with device.clock as clock:
            device.call("cudaEventQuery", device.machine.event_query_us, self._stream_id, device.sites.caller())
            done = self._order is None or self._done_us <= clock.now_us
            if done and self._order is not None:
                device.know(self._order)
                device.hazards.host_lost.extend(self._lost)
        return done

    def synchronize(self) -> None:
        """The host waits for the recorded point."""
        device = self._device
        with device.clock as clock:
            site = device.sites.caller()
            order = self._order or {}
            done = self._done_us if self._order is not None else clock.now_us
            sync = device.planned_until("event-synchronize", "Event.synchronize", self._stream_id, done, order, site)
            sync.blocked_us = device.wait("cudaEventSynchronize", self._stream_id, done, order, site)
            device.hazards.host_lost.extend(self._lost)

    def elapsed_time(self, end_event: "Event") -> float:  # type: ignore[override]
        """Milliseconds of virtual time between two recorded points, both of which must have passed."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._order is None or end_event._order is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if max(self._done_us, end_event._done_us) > self._device.clock.read():
            raise RuntimeError("Both events must be completed before calculating elapsed time: device not ready")
        return (end_event._done_us - self._done_us) / 1e3

    def __reduce__(self) -> Any:
        raise TypeError("emu: an Event cannot be pickled or copied")

    def __repr__(self) -> str:
        return f"<emu Event {'unrecorded' if self._order is None else f'on stream {self._stream_id}'}>"
