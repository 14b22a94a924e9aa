"""Worker: what a launch does on the forward stream, from input ids to the copy of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from penaltylab import devices
from penaltylab.engine.batch import ForwardMode, ScheduleBatch
from penaltylab.engine.eagle import EagleDraftInput, Penalise
from penaltylab.engine.llama import SHAPES, Llama
from penaltylab.engine.meter import Meter
from penaltylab.engine.models import Draft, ForwardBatch, MarkovDraft, MarkovModel, Target
from penaltylab.engine.relay import FutureMap
from penaltylab.engine.request import Req
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
        longest: int,
    ) -> None:
        self.params = params
        self.device = device
        self.future_map = future_map
        self.meter = meter
        self.slot_penalties = slot_penalties
        self.module = torch.get_device_module(device)
        self.target, self.draft = self._models(longest)
        self.copy_stream = self.module.Stream(device)
        self.read_done: Any = None

    def _models(self, longest: int) -> tuple[Target, Draft]:
        params, device = self.params, self.device
        if params.model == "llama":
            shape = SHAPES[params.model_shape]
            llama = Llama(shape, params.vocab_size, params.seed, params.batch_size, longest, device)
            return llama, llama
        markov = MarkovModel(params.vocab_size, params.seed, device)
        return markov, MarkovDraft(markov, params.accept_rate)

    def forward_batch_generation(self, batch: ScheduleBatch) -> GenerationBatchResult:
        """Launch `batch` on the current stream, which is the forward stream."""
        future_map, slots = self.future_map, batch.req_pool_indices
        future_map.advance()
        # A paged attention reads where the tokens' cache entries are. No model here pages its cache; the read stays.
        page_table = batch.req_to_token_pool.req_to_token[slots]
        with self.meter.section("copy_for_forward"):
            info = batch.sampling_info.copy_for_forward()
        started = self._timing_event()
        if batch.forward_mode is ForwardMode.EXTEND:
            tokens, accept_lens = self._extend(batch, info), None
        elif batch.spec_info is None:
            tokens, accept_lens = self._decode(batch, info), None
        else:
            tokens, accept_lens = self._round(batch, info, batch.spec_info)
        self.meter.iterations[-1].forward = (started, self._timing_event())
        return self._copy_to_cpu(tokens, accept_lens, [page_table, info, *batch.tensors()])

    def _extend(self, batch: ScheduleBatch, info: SamplingBatchInfo) -> torch.Tensor:
        self._busy(1.0, "prefill")
        slots, last = batch.req_pool_indices, batch.seq_lens - 1
        if self.slot_penalties is not None and batch.penalty_settings is not None:
            self.slot_penalties.reset(slots, batch.penalty_settings)
        positions = torch.arange(batch.input_ids.shape[1], device=self.device).expand_as(batch.input_ids)
        logits = self.target.logits(self._forward_batch(batch, batch.input_ids, positions), at=last)
        tokens = self._sample(batch, logits, info)
        self.future_map.seed(slots, batch.input_ids.gather(1, last.unsqueeze(1)).squeeze(1))
        self.future_map.store(slots, tokens)
        if batch.spec_info is not None:
            self.future_map.publish(slots, batch.seq_lens + 1)
        return tokens.unsqueeze(1)

    def _decode(self, batch: ScheduleBatch, info: SamplingBatchInfo) -> torch.Tensor:
        input_ids = self.future_map.gather(batch.req_pool_indices).unsqueeze(1)
        self._record_read_done()
        self._busy(1.0, "forward")
        logits = self.target.logits(self._forward_batch(batch, input_ids, batch.seq_lens.unsqueeze(1) - 1))
        tokens = self._sample(batch, logits, info)
        self.future_map.store(batch.req_pool_indices, tokens)
        return tokens.unsqueeze(1)

    def _round(
        self, batch: ScheduleBatch, info: SamplingBatchInfo, spec_info: EagleDraftInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        params, slots = self.params, batch.req_pool_indices
        input_ids = self.future_map.gather(slots).unsqueeze(1)
        seq_lens = self.future_map.new_seq_lens_buf[slots]
        forward_batch = self._forward_batch(batch, input_ids, seq_lens.unsqueeze(1) - 1)
        self._busy(params.draft_share, "draft")
        drafts = spec_info.draft(self.draft, forward_batch)
        self._busy(1 - params.draft_share - params.extend_share, "verify")
        tokens, accept_lens = spec_info.verify(self.target, forward_batch, drafts, self._penalise(batch, info), info)
        self._count(batch, tokens, accept_lens)
        self.future_map.publish(slots, seq_lens + accept_lens)
        self._record_read_done()
        self._busy(params.extend_share, "draft_extend")
        self.future_map.store(slots, tokens.gather(1, accept_lens.unsqueeze(1) - 1).squeeze(1))
        return tokens, accept_lens

    def _forward_batch(self, batch: ScheduleBatch, input_ids: torch.Tensor, positions: torch.Tensor) -> ForwardBatch:
        ahead = 0 if batch.spec_info is None else batch.spec_info.draft_tokens
        longest = max(len(req.origin_input_ids) + self._most_generated(batch, req) for req in batch.reqs)
        context = min(longest + ahead, batch.req_to_token_pool.req_to_token.shape[1])
        return ForwardBatch(input_ids, positions, batch.req_pool_indices, batch.noise_keys, context)

    def _most_generated(self, batch: ScheduleBatch, req: Req) -> int:
        """The most tokens that `req` can have generated before this launch, as far as the host can know."""
        a_round = 1 if batch.spec_info is None else batch.spec_info.draft_tokens + 1
        return 0 if req.decode_batch_idx == 0 else 1 + (req.decode_batch_idx - 1) * a_round

    def _busy(self, share: float, name: str) -> None:
        """Stand in for the part `share` of a forward that the Markov model, of a few small kernels, does not do."""
        if self.params.model == "markov":
            devices.busy(self.device, self.params.forward_ms * share, name)

    def _sample(self, batch: ScheduleBatch, logits: torch.Tensor, info: SamplingBatchInfo) -> torch.Tensor:
        self._penalise(batch, info)(logits, None)
        tokens = sample(logits.squeeze(1), info, batch.noise_keys, batch.seq_lens)
        self._count(batch, tokens.unsqueeze(1), None)
        return tokens

    def _penalise(self, batch: ScheduleBatch, info: SamplingBatchInfo) -> Penalise:
        exact = self.slot_penalties
        if exact is None:
            return lambda logits, _: info.apply_logits_bias(logits.flatten(0, 1), repeat=logits.shape[1])
        if not exact.wanted(batch.reqs):
            return lambda logits, _: None
        seen = max(self._most_generated(batch, req) for req in batch.reqs)
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
