"""The overlap scheduler.

While one launch runs, the host prepares the next and processes the result of the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from penaltylab.engine.batch import BatchContext, ForwardMode, ReqToTokenPool, ScheduleBatch
from penaltylab.engine.eagle import EagleDraftInput
from penaltylab.engine.h2d import make_h2d
from penaltylab.engine.meter import Meter, section
from penaltylab.engine.relay import FutureMap
from penaltylab.engine.request import Req
from penaltylab.engine.worker import GenerationBatchResult, Worker
from penaltylab.params import Params
from penaltylab.penalties import BatchedPenalizerOrchestrator
from penaltylab.penalties.exact import SlotPenalties


@dataclass
class Launch:
    """A launch whose result is not processed yet. `step` numbers decode launches; None is a prefill."""

    reqs: list[Req]
    result: GenerationBatchResult
    step: int | None


@dataclass
class Counts:
    """What the processed results of decode launches add up to.

    Kept tokens a step, accept lengths by step and request.
    """

    tokens: dict[int, int] = field(default_factory=dict)
    accept_lens: dict[tuple[int, int], int] = field(default_factory=dict)


class Scheduler:
    """Runs `reqs` to their ends or for `params.steps` decode launches, on schedule, forward and copy streams.

    `batch_class` and `make_orchestrator` let somebody else's penalties run in this loop.
    """

    def __init__(
        self,
        params: Params,
        reqs: list[Req],
        device: torch.device,
        meter: Meter,
        batch_class: type[ScheduleBatch] = ScheduleBatch,
        make_orchestrator: Callable[[ScheduleBatch], Any] | None = None,
    ) -> None:
        self.params = params
        self.meter = meter
        self.batch_class = batch_class
        self.module = torch.get_device_module(device)
        self.schedule_stream = self.module.Stream(device)
        self.forward_stream = self.module.Stream(device)
        self.waiting_queue = deque(reqs)
        self.future_map = FutureMap(params.batch_size, device, meter)
        longest = self._longest(reqs)
        exact = params.accounting == "exact"
        slot_penalties = (
            SlotPenalties(params.batch_size, params.vocab_size, longest, device, params.apply) if exact else None
        )
        self.worker = Worker(params, device, self.future_map, meter, slot_penalties, longest)
        self.spec_info = EagleDraftInput(params.draft_tokens) if params.path == "eagle" else None
        self.context = BatchContext(
            device=device,
            vocab_size=params.vocab_size,
            seed=params.seed,
            req_to_token_pool=ReqToTokenPool(params.batch_size, longest, device),
            h2d=make_h2d(params.h2d, device, self.future_map, params.overlap),
            apply=params.apply,
            make_orchestrator=make_orchestrator
            or (
                lambda batch: BatchedPenalizerOrchestrator(
                    params.vocab_size,
                    batch,
                    params.min_tokens_mask,
                    params.apply,
                    params.prepare_h2d,
                    idle=exact,
                )
            ),
            meter=meter,
            slot_penalties=slot_penalties,
        )
        self.running_batch: ScheduleBatch | None = None
        self.last_batch: ScheduleBatch | None = None
        self.result_queue: deque[Launch] = deque()
        self.record_buf: deque[Any] = deque(maxlen=2)  # a launch's tensors, kept until two launches later
        self.counts = Counts()
        self.module.synchronize()  # the buffers above were filled on another stream than those that use them
        self.launches = 0
        self.steps = 0
        for name in ("schedule", "forward", "copy", "lens"):
            owner = {"copy": self.worker, "lens": self.future_map}.get(name, self)
            getattr(owner, f"{name}_stream").name = f"{name} stream"

    def event_loop(self) -> None:
        """The loop; the host returns when every result is processed and the device is idle."""
        with self.module.stream(self.schedule_stream):
            while self.steps < self.params.steps:
                iteration = self.meter.start_iteration()
                label = "prefill" if self._prefill_due() else f"step {self.steps}"
                with torch.profiler.record_function(label) if self.meter.annotate else nullcontext():
                    self._apply_war_barrier()
                    batch = self.get_next_batch_to_run()
                    if batch is None:
                        break
                    iteration.is_decode = batch.forward_mode is ForwardMode.DECODE
                    self.result_queue.append(Launch(batch.reqs, self.run_batch(batch), self._number(batch)))
                    if len(self.result_queue) > int(self.params.overlap):
                        self.process_batch_result(self.result_queue.popleft())
                    self.last_batch = batch
            self.meter.finish()
            while self.result_queue:
                self.process_batch_result(self.result_queue.popleft())
            self.module.synchronize()

    @section("war_barrier")
    def _apply_war_barrier(self) -> None:
        """The schedule stream is about to write what the running forward may still read."""
        if self.params.barrier == "none":
            return
        if self.params.barrier == "read_done" and self.worker.read_done is not None:
            self.schedule_stream.wait_event(self.worker.read_done)
            self.worker.read_done = None  # consumed once; a prefill records none, and then the wait is coarse
        else:
            self.schedule_stream.wait_stream(self.forward_stream)

    def get_next_batch_to_run(self) -> ScheduleBatch | None:
        """A prefill if one is due, else the running batch prepared for decode; None when all requests are finished."""
        if self.last_batch is not None and self.last_batch.forward_mode is ForwardMode.EXTEND:
            if self.running_batch is None or not self.running_batch.reqs:
                self.running_batch = self.last_batch
            else:
                self.running_batch.merge_batch(self.last_batch)
            self.last_batch = None
        if self._prefill_due():
            return self._new_prefill()
        if self.running_batch is not None:
            self.running_batch.filter_batch()
        if self.running_batch is None or not self.running_batch.reqs:
            return self._new_prefill() if self.waiting_queue else None
        self.running_batch.prepare_for_decode()
        return self.running_batch

    @section("run_batch")
    def run_batch(self, batch: ScheduleBatch) -> GenerationBatchResult:
        """Launch `batch` on the forward stream.

        On eagle the host first waits for the lengths that the last round published.
        """
        decode = batch.forward_mode is ForwardMode.DECODE
        if decode and batch.spec_info is not None and self.params.seq_lens_sync:
            self.future_map.resolve_seq_lens_cpu()
        with self.module.stream(self.forward_stream):
            self.forward_stream.wait_stream(self.schedule_stream)
            result = self.worker.forward_batch_generation(batch)
        self.record_buf.append(result.keep_alive)
        self.launches += 1
        return result

    @section("process_batch_result")
    def process_batch_result(self, launch: Launch) -> None:
        """Wait for a result, append its tokens and decide finishes. It never filters or merges."""
        with self.meter.wait("result"):
            launch.result.copy_done.synchronize()
        tokens = launch.result.next_token_ids.tolist()
        lens = [1] * len(tokens) if launch.result.accept_lens is None else launch.result.accept_lens.tolist()
        for req, row, accept_len in zip(launch.reqs, tokens, lens, strict=True):
            if req.finished():
                continue
            before = len(req.output_ids)
            req.append(row[:accept_len])
            self.context.req_to_token_pool.last_tokens[req.req_pool_idx] = req.output_ids[-1]
            req.kv_committed_len += accept_len
            if launch.step is not None:
                self.counts.accept_lens[launch.step, req.rid] = accept_len
                self.counts.tokens[launch.step] = self.counts.tokens.get(launch.step, 0) + len(req.output_ids) - before

    def _number(self, batch: ScheduleBatch) -> int | None:
        if batch.forward_mode is ForwardMode.EXTEND:
            return None
        self.steps += 1
        return self.steps - 1

    def _prefill_due(self) -> bool:
        arrived = bool(self.waiting_queue) and self.waiting_queue[0].arrival <= self.launches
        return arrived and bool(self.context.req_to_token_pool.free_slots)

    def _new_prefill(self) -> ScheduleBatch:
        now = max(self.launches, self.waiting_queue[0].arrival)  # when nothing runs, time is the next arrival
        reqs: list[Req] = []
        free = len(self.context.req_to_token_pool.free_slots)
        while self.waiting_queue and self.waiting_queue[0].arrival <= now and len(reqs) < free:
            reqs.append(self.waiting_queue.popleft())
        batch = self.batch_class(reqs, self.context, self.spec_info)
        batch.prepare_for_extend()
        return batch

    def _longest(self, reqs: list[Req]) -> int:
        """Enough token positions a slot for the longest request, with what a round writes ahead."""
        reserve = self.params.draft_tokens + 1 if self.params.path == "eagle" else 1
        return (
            max(
                len(req.origin_input_ids) + min(req.sampling_params.max_new_tokens, self.params.steps * reserve)
                for req in reqs
            )
            + 4 * reserve
        )
