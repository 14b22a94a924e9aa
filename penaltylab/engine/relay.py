"""FutureMap: what one launch leaves on the device for the next, so that the host need not carry it."""

from __future__ import annotations

import torch

from penaltylab.devices import is_pin_memory_available
from penaltylab.engine.meter import Meter


class FutureMap:
    """Buffers indexed by request slot: `current` and `previous` last tokens, and, on eagle, the published lengths."""

    def __init__(self, slots: int, device: torch.device, meter: Meter) -> None:
        self.device = device
        self.meter = meter
        self.current = torch.zeros(slots, dtype=torch.int64, device=device)
        self.previous = torch.zeros(slots, dtype=torch.int64, device=device)
        self.new_seq_lens_buf = torch.zeros(slots, dtype=torch.int64, device=device)
        self.new_seq_lens_cpu = torch.zeros(slots, dtype=torch.int64, pin_memory=is_pin_memory_available(device))
        self._module = torch.get_device_module(device)
        # A stream of its own: behind the result's copy the lengths would arrive after draft-extend, not before it.
        self.lens_stream = self._module.Stream(device)
        self.publish_ready = self._module.Event()

    def advance(self) -> None:
        """At a launch's start: what was current becomes previous, the token that the launch before that produced."""
        self.previous.copy_(self.current)

    def gather(self, slots: torch.Tensor) -> torch.Tensor:
        """The input ids of a decode launch: each slot's current last token, int64 (batch,)."""
        return self.current[slots]

    def store(self, slots: torch.Tensor, tokens: torch.Tensor) -> None:
        """Keep each slot's last token, int64 (batch,), for the next launch."""
        self.current[slots] = tokens

    def seed(self, slots: torch.Tensor, last_prompt_tokens: torch.Tensor) -> None:
        """At a prefill: the token before the first output is the last prompt token."""
        self.previous[slots] = last_prompt_tokens

    def publish(self, slots: torch.Tensor, new_seq_lens: torch.Tensor) -> None:
        """Make the lengths after this launch known, in the middle of the launch: on eagle the host waits for them."""
        self.new_seq_lens_buf[slots] = new_seq_lens
        self.publish_ready.record()

    def resolve_seq_lens_cpu(self) -> torch.Tensor:
        """All slots' published lengths on the host, int64 (slots,).

        The host waits for the verify that publishes them.
        """
        with self.meter.section("resolve_seq_lens_cpu"), self._module.stream(self.lens_stream):
            self.lens_stream.wait_event(self.publish_ready)
            self.new_seq_lens_cpu.copy_(self.new_seq_lens_buf, non_blocking=True)
            with self.meter.wait("seq_lens"):
                self.lens_stream.synchronize()
        return self.new_seq_lens_cpu
