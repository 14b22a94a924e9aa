"""Worker: what a launch does on the forward stream, from input ids to the copy of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from penaltylab import devices
from penaltylab.engine.batch import ForwardMode, ScheduleBatch
from penaltylab.engine.eagle import Penalise
from penaltylab.engine.meter import Meter
from penaltylab.engine.models import MarkovDraft, MarkovModel
from penaltylab.engine.relay import FutureMap
from penaltylab.engine.sampler import sample
from penaltylab.engine.sampling import SamplingBatchInfo
from penaltylab.params import Params
from penaltylab.penalties.exact import SlotPenalties


@dataclass
class GenerationBatchResult:
    """Tokens (batch, n) and accept lengths (batch,) on their way to the host; valid once `copy_done` has passed."""

    next_token_ids: torch.Tensor
    accept_lens: torch.Tensor | None
    copy_done: Any
    keep_alive: list[Any]


class Worker:
    """Runs target and draft. `read_done` is the event after which a decode launch no longer reads shared buffers."""

    def __init__(
        self,
        params: Params,
        device: torch.device,
        future_map: FutureMap,
        meter: Meter,
        slot_penalties: SlotPenalties | None,
    ) -> None:
        self.params = params
        self.device = device
        self.future_map = future_map
        self.meter = meter
        self.slot_penalties = slot_penalties
        self.module = torch.get_device_module(device)
        self.target = MarkovModel(params.vocab_size, params.seed, device)
        self.draft = MarkovDraft(self.target, params.accept_rate)
        self.copy_stream = self.module.Stream(device)
        self.read_done: Any = None

    def forward_batch_generation(self, batch: ScheduleBatch) -> GenerationBatchResult:
        """Launch `batch` on the current stream, which is the forward stream."""
        future_map, slots = self.future_map, batch.req_pool_indices
        future_map.advance()
        prefill = batch.forward_mode is ForwardMode.EXTEND
        input_ids = batch.input_ids if prefill else future_map.gather(slots)
        # A paged attention reads where the tokens' cache entries are; the Markov model has no attention, the read
        # stays.
        page_table = batch.req_to_token_pool.req_to_token[slots]
        with self.meter.section("copy_for_forward"):
            info = batch.sampling_info.copy_for_forward()
        started = self._timing_event()
        if prefill:
            tokens, accept_lens = self._prefill(batch, input_ids, info), None
        elif batch.spec_info is None:
            tokens, accept_lens = self._decode(batch, input_ids, info), None
        else:
            tokens, accept_lens = self._round(batch, input_ids, info)
        self.meter.iterations[-1].forward = (started, self._timing_event())
        return self._copy_to_cpu(tokens, accept_lens, [page_table, info, *batch.tensors()])

    def _prefill(self, batch: ScheduleBatch, input_ids: torch.Tensor, info: SamplingBatchInfo) -> torch.Tensor:
        devices.busy(self.device, self.params.forward_ms, "prefill")
        if self.slot_penalties is not None and batch.penalty_settings is not None:
            self.slot_penalties.reset(batch.req_pool_indices, batch.penalty_settings)
        tokens = self._sample(batch, input_ids, info)
        self.future_map.seed(batch.req_pool_indices, input_ids)
        self.future_map.store(batch.req_pool_indices, tokens)
        if batch.spec_info is not None:
            self.future_map.publish(batch.req_pool_indices, batch.seq_lens + 1)
        return tokens.unsqueeze(1)

    def _decode(self, batch: ScheduleBatch, input_ids: torch.Tensor, info: SamplingBatchInfo) -> torch.Tensor:
        self._record_read_done()
        devices.busy(self.device, self.params.forward_ms, "forward")
        tokens = self._sample(batch, input_ids, info)
        self.future_map.store(batch.req_pool_indices, tokens)
        return tokens.unsqueeze(1)

    def _round(
        self, batch: ScheduleBatch, input_ids: torch.Tensor, info: SamplingBatchInfo
    ) -> tuple[torch.Tensor, torch.Tensor]:
        params, spec_info = self.params, batch.spec_info
        assert spec_info is not None
        slots, keys = batch.req_pool_indices, batch.noise_keys
        seq_lens = self.future_map.new_seq_lens_buf[slots]
        devices.busy(self.device, params.forward_ms * params.draft_share, "draft")
        drafts = spec_info.draft(self.draft, input_ids, keys, seq_lens)
        devices.busy(self.device, params.forward_ms * (1 - params.draft_share - params.extend_share), "verify")
        tokens, accept_lens = spec_info.verify(
            self.target, input_ids, drafts, self._penalise(batch, info), info, keys, seq_lens
        )
        self._count(batch, tokens, accept_lens)
        self.future_map.publish(slots, seq_lens + accept_lens)
        self._record_read_done()
        devices.busy(self.device, params.forward_ms * params.extend_share, "draft_extend")
        self.future_map.store(slots, tokens.gather(1, accept_lens.unsqueeze(1) - 1).squeeze(1))
        return tokens, accept_lens

    def _sample(self, batch: ScheduleBatch, input_ids: torch.Tensor, info: SamplingBatchInfo) -> torch.Tensor:
        logits = self.target.forward(input_ids)
        self._penalise(batch, info)(logits.unsqueeze(1), None)
        tokens = sample(logits, info, batch.noise_keys, batch.seq_lens)
        self._count(batch, tokens.unsqueeze(1), None)
        return tokens

    def _penalise(self, batch: ScheduleBatch, info: SamplingBatchInfo) -> Penalise:
        exact = self.slot_penalties
        if exact is None:
            return lambda logits, _: info.apply_logits_bias(logits.flatten(0, 1), repeat=logits.shape[1])
        if not exact.wanted(batch.reqs):
            return lambda logits, _: None
        a_round = 1 if batch.spec_info is None else batch.spec_info.draft_tokens + 1
        launched = max(req.decode_batch_idx for req in batch.reqs)
        seen = 0 if launched == 0 else 1 + (launched - 1) * a_round
        return lambda logits, drafts: exact.penalise(logits, batch.req_pool_indices, seen, drafts)

    def _count(self, batch: ScheduleBatch, tokens: torch.Tensor, accept_lens: torch.Tensor | None) -> None:
        if self.slot_penalties is not None and self.slot_penalties.wanted(batch.reqs):
            self.slot_penalties.count(batch.req_pool_indices, tokens, accept_lens)

    def _copy_to_cpu(
        self, tokens: torch.Tensor, accept_lens: torch.Tensor | None, keep_alive: list[Any]
    ) -> GenerationBatchResult:
        self.copy_stream.wait_stream(self.module.current_stream(self.device))
        with self.module.stream(self.copy_stream):
            next_token_ids = tokens.to("cpu", non_blocking=True)
            lens = None if accept_lens is None else accept_lens.to("cpu", non_blocking=True)
            copy_done = self.module.Event()
            copy_done.record()
        return GenerationBatchResult(next_token_ids, lens, copy_done, [tokens, accept_lens, *keep_alive])

    def _record_read_done(self) -> None:
        self.read_done = self.module.Event()
        self.read_done.record()

    def _timing_event(self) -> Any:
        event = self.module.Event(enable_timing=True)
        event.record()
        return event
