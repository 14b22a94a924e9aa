"""What `torch.get_device_module("emu")` gives: the interface of `torch.cuda`, as far as it has a meaning here."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from penaltylab.emu.alias import check_device
from penaltylab.emu.device import Device
from penaltylab.emu.streams import Event, Stream


def make_device_module(device: Device) -> types.ModuleType:
    """A module `torch.emu` bound to `device`."""
    module = types.ModuleType("torch.emu", make_device_module.__doc__)
    functions = _Functions(device)
    for name in dir(functions):
        if not name.startswith("__"):
            setattr(module, name, getattr(functions, name))
    module.Stream, module.Event = Stream, Event  # type: ignore[attr-defined]
    return module


class _Functions:
    """The functions of the module."""

    def __init__(self, device: Device) -> None:
        self.__device = device

    # Streams

    def current_stream(self, device: Any = None) -> Stream:
        """The stream that this thread enqueues on."""
        return self.__handle(self.__device.current_queue())

    def default_stream(self, device: Any = None) -> Stream:
        """The stream that is current where no other was chosen."""
        return self.__handle(self.__device.default)

    def set_stream(self, stream: Stream) -> None:
        """Make `stream` this thread's current stream."""
        self.__device.current.queue = self.__device.queue_of(stream)

    @contextmanager
    def stream(self, stream: Stream | None) -> Iterator[None]:
        """Make `stream` this thread's current stream for a while; None changes nothing."""
        current = self.__device.current
        before = current.queue
        if stream is not None:
            current.queue = self.__device.queue_of(stream)
        try:
            yield
        finally:
            current.queue = before

    def synchronize(self, device: Any = None) -> None:
        """The host waits for all streams."""
        if device is not None and not isinstance(device, int):
            check_device(torch.device(device))
        state = self.__device
        with state.clock as clock:
            site = state.sites.caller()
            done = max(clock.now_us, *(queue.tail_us for queue in state.queues.values()))
            order = {queue.stream_id: queue.order.get(queue.stream_id, 0) for queue in state.queues.values()}
            sync = state.planned_until("device-synchronize", "synchronize", 0, done, order, site)
            sync.blocked_us = state.wait("cudaDeviceSynchronize", 0, done, order, site)

    def __handle(self, queue: Any) -> Stream:
        return Stream(of=self.__device, queue=queue)

    # The device

    def is_available(self) -> bool:
        """It is."""
        return True

    def is_initialized(self) -> bool:
        """It is."""
        return True

    def init(self) -> None:
        """Nothing to do."""

    def _lazy_init(self) -> None:
        """Nothing to do."""

    def device_count(self) -> int:
        """One."""
        return 1

    def current_device(self) -> int:
        """0."""
        return 0

    def set_device(self, device: Any) -> None:
        """Only 0 is there."""
        check_device(torch.device("emu", device) if isinstance(device, int) else torch.device(device))

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """Choose the one device for a while."""
        if device is not None and device != -1:
            self.set_device(device)
        yield

    def get_device_name(self, device: Any = None) -> str:
        """Says that it is simulated."""
        return f"SIMULATED {self.__device.machine.device_name} (penaltylab emu)"

    def _is_in_bad_fork(self) -> bool:
        return self.__device.forked()

    def _is_compiled(self) -> bool:
        return True

    # Graphs

    def is_current_stream_capturing(self) -> bool:
        """Never."""
        return False

    def CUDAGraph(self, *args: Any, **kwargs: Any) -> Any:
        """Refused."""
        raise RuntimeError("emu: graphs are not emulated; run what they would capture as it is")

    graph = make_graphed_callables = CUDAGraph

    # Numbers

    def manual_seed(self, seed: int) -> None:
        """Random numbers on the device come from the CPU's generator, so that they equal the CPU's."""
        torch.default_generator.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """`manual_seed`."""
        self.manual_seed(seed)

    def initial_seed(self) -> int:
        """The seed in force."""
        return torch.initial_seed()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """The CPU generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Set the CPU generator's state."""
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """What autocast may cast to."""
        return [torch.float16, torch.bfloat16]

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """It is."""
        return True

    # Memory

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Free and total bytes, where nothing is ever counted as used."""
        total = self.__device.machine.memory_bytes
        return total, total

    def memory_allocated(self, device: Any = None) -> int:
        """Not modelled: 0."""
        return 0

    def max_memory_allocated(self, device: Any = None) -> int:
        """Not modelled: 0."""
        return 0

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Nothing to reset."""
