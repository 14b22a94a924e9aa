"""ScheduleBatch: the requests that decode together, and the shared method that this study is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
import torch

from penaltylab.devices import is_pin_memory_available
from penaltylab.engine.eagle import EagleDraftInput
from penaltylab.engine.h2d import H2D
from penaltylab.engine.meter import Meter, section
from penaltylab.engine.noise import request_key
from penaltylab.engine.request import Req
from penaltylab.engine.sampling import SamplingBatchInfo
from penaltylab.penalties.exact import SlotPenalties


class ForwardMode(Enum):
    """What a launch does: EXTEND is a prefill."""

    EXTEND = auto()
    DECODE = auto()


class ReqToTokenPool:
    """The request slots: `req_to_token` (slots, width), int32, says which KV-cache entry holds which token."""

    def __init__(self, slots: int, width: int, device: torch.device) -> None:
        self.req_to_token = torch.zeros((slots, width), dtype=torch.int32, device=device)
        self.free_slots = list(range(slots))
        self.last_tokens = np.zeros(slots, dtype=np.int64)  # what the host knows, kept by result processing

    def write(self, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """Give the tokens at `positions` (batch, n) of `slots` (batch,) their cache entries."""
        width = self.req_to_token.shape[1]
        slots = slots.unsqueeze(1)
        self.req_to_token[slots, positions] = (slots * width + positions).to(torch.int32)


@dataclass(eq=False)
class BatchContext:
    """What all batches of a run share."""

    device: torch.device
    vocab_size: int
    seed: int
    req_to_token_pool: ReqToTokenPool
    h2d: H2D
    apply: str
    make_orchestrator: Callable[[ScheduleBatch], Any]
    meter: Meter
    slot_penalties: SlotPenalties | None  # the state of exact accounting


class ScheduleBatch:
    """A batch, in upstream's attributes.

    All tensors are new ones after each change: a launch that runs may read the old.
    """

    def __init__(self, reqs: list[Req], context: BatchContext, spec_info: EagleDraftInput | None = None) -> None:
        self.reqs = reqs
        self.context = context
        self.device = context.device
        self.meter = context.meter
        self.req_to_token_pool = context.req_to_token_pool
        self.spec_info = spec_info
        self.forward_mode = ForwardMode.EXTEND
        self.input_ids: torch.Tensor
        self.req_pool_indices: torch.Tensor
        self.req_pool_indices_cpu: np.ndarray
        self.seq_lens: torch.Tensor
        self.noise_keys: torch.Tensor
        self.sampling_info: SamplingBatchInfo
        self.penalty_settings: tuple[torch.Tensor, torch.Tensor] | None = None

    def prepare_for_extend(self) -> None:
        """Give the requests slots, bring what a prefill needs to the device, and set up their sampling state."""
        for req in self.reqs:
            req.req_pool_idx = self.req_to_token_pool.free_slots.pop(0)
            req.kv_committed_len = req.kv_allocated_len = len(req.origin_input_ids)
            self.req_to_token_pool.last_tokens[req.req_pool_idx] = req.origin_input_ids[-1]
        self.req_pool_indices_cpu = np.array([req.req_pool_idx for req in self.reqs])
        columns = [
            [req.req_pool_idx, len(req.origin_input_ids), request_key(self.context.seed, req.rid)] for req in self.reqs
        ]
        on_device = self._copy(list(map(list, zip(*columns, strict=True))), torch.int64)
        self.req_pool_indices, self.seq_lens, self.noise_keys = on_device.unbind(0)
        longest = max(len(req.origin_input_ids) for req in self.reqs)
        padded = [req.origin_input_ids + [0] * (longest - len(req.origin_input_ids)) for req in self.reqs]
        self.input_ids = self._copy(padded, torch.int64)
        self.req_to_token_pool.write(self.req_pool_indices, torch.arange(longest, device=self.device).unsqueeze(0))
        temperatures = [[req.sampling_params.temperature] for req in self.reqs]
        self.sampling_info = SamplingBatchInfo(
            temperatures=self._copy(temperatures, torch.float32),
            is_all_greedy=not any(t for [t] in temperatures),
            vocab_size=self.context.vocab_size,
            penalizer_orchestrator=self.context.make_orchestrator(self),
            apply=self.context.apply,
        )
        if self.context.slot_penalties is not None:
            self.penalty_settings = self.context.slot_penalties.settings(self.reqs)

    @section("cumulate_penalty_output_tokens")
    def cumulate_penalty_output_tokens(self) -> None:
        """Count each request's last token in the penalties: the method that both decode paths share since #28500.

        The last token is the one that the host knows. Under overlap the result of the launch that is running is not
        processed yet, so the history is one step late, and the first token counted is the last of the prompt. After a
        prefill between two decode launches the host knows two tokens more, of which only the last is counted; with the
        next launch it knows no other, and that token is counted again.
        """
        latest_output_ids = self.context.h2d(self)
        self.sampling_info.penalizer_orchestrator.cumulate_output_tokens(latest_output_ids)

    @section("prepare_for_decode")
    def prepare_for_decode(self) -> None:
        """On the schedule stream: the penalties, and the cache entries of the tokens that this launch writes."""
        self.forward_mode = ForwardMode.DECODE
        for req in self.reqs:
            req.decode_batch_idx += 1
        if self.spec_info is not None:
            self.spec_info.prepare_for_decode(self)
            return
        if self.sampling_info.penalizer_orchestrator.is_required:
            self.cumulate_penalty_output_tokens()
        self.seq_lens = self.seq_lens + 1
        self.req_to_token_pool.write(self.req_pool_indices, self.seq_lens.unsqueeze(1) - 1)

    def filter_batch(self) -> None:
        """Drop the requests that the host knows to be finished."""
        keep_indices = [i for i, req in enumerate(self.reqs) if not req.finished()]
        if len(keep_indices) == len(self.reqs):
            return
        self.req_to_token_pool.free_slots += [req.req_pool_idx for req in self.reqs if req.finished()]
        self.reqs = [self.reqs[i] for i in keep_indices]
        self.req_pool_indices_cpu = self.req_pool_indices_cpu[keep_indices]
        if not self.reqs:
            return
        keep_indices_device = self._copy(keep_indices, torch.int64)
        self.sampling_info.filter_batch(keep_indices_device)
        for name in ("req_pool_indices", "seq_lens", "noise_keys"):
            setattr(self, name, getattr(self, name)[keep_indices_device])

    def merge_batch(self, other: ScheduleBatch) -> None:
        """Append the requests of `other`. The penalizers first: they prepare from the requests as they are."""
        self.sampling_info.merge_batch(other.sampling_info)
        for name in ("req_pool_indices", "seq_lens", "noise_keys"):
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))
        self.req_pool_indices_cpu = np.concatenate([self.req_pool_indices_cpu, other.req_pool_indices_cpu])
        self.reqs = self.reqs + other.reqs

    def tensors(self) -> list[torch.Tensor]:
        """What a launch of this batch reads, to be kept alive until two launches later."""
        return [self.req_pool_indices, self.seq_lens, self.noise_keys, self.sampling_info.temperatures]

    def _copy(self, values: list[Any], dtype: torch.dtype) -> torch.Tensor:
        pinned = torch.tensor(values, dtype=dtype, pin_memory=is_pin_memory_available(self.device))
        return pinned.to(self.device, non_blocking=True)
