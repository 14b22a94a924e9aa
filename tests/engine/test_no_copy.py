"""Exact accounting makes no copy and no host wait: what a launch's host calls and copies are, line by line."""

import warnings
from pathlib import Path

import pytest
import torch

from penaltylab import emu
from penaltylab.engine.run import run, start
from penaltylab.params import Params

STEPS = 16


def observe(steps: int = STEPS, **given) -> tuple[list[str], list[emu.Sync]]:
    """The lines from which the loop copied to the device, and its host synchronizations; set-up is left out."""
    params = Params.of(device="emu", steps=steps, warmup=2, batch_size=4, vocab_size=256, forward_ms=0.5, **given)
    device = start(params)
    emu.start_log()
    run(params, device)
    log = emu.stop_log()
    callers = {call.correlation: call.site for call in log.calls}
    copies = [callers[op.correlation] for op in log.device_ops if "HtoD" in op.name]
    syncs = emu.syncs()
    ready = next(i for i, sync in enumerate(syncs) if sync.site.endswith("__init__") and not sync.hidden)
    return [site for site in copies if not site.startswith("models.py")], syncs[ready + 1 : -1]


def functions(sites: list[str]) -> set[str]:
    return {site.rpartition(": ")[2] for site in sites}


@pytest.mark.parametrize("temperature", [0.0, 0.75])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_a_step_with_exact_penalties_copies_nothing_to_the_device_and_waits_for_nothing(path, temperature):
    given = {"path": path, "accounting": "exact", "temperature": temperature}
    (copies, syncs), (more, _) = observe(**given), observe(steps=2 * STEPS, **given)
    # Of a round on eagle the host brings the cache entries that it may use; all else is brought by the prefill.
    rounds = [site for site in more if site.endswith(": prepare_for_decode")]
    assert len(rounds) == (2 * STEPS if path == "eagle" else 0)
    assert functions(copies) - {"prepare_for_decode"} == {"_copy", "settings"}
    assert len(more) - len(rounds) == len(copies) - len(rounds) // 2
    assert [str(sync) for sync in syncs if sync.hidden] == []
    waits = {"process_batch_result"} | ({"resolve_seq_lens_cpu"} if path == "eagle" else set())
    assert functions([sync.site for sync in syncs]) == waits


@pytest.mark.parametrize("accounting", ["upstream", "exact"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_no_hidden_wait_while_requests_join_and_leave(path, accounting):
    _, syncs = observe(path=path, accounting=accounting, h2d="device_resident", scenario="churn", apply="sparse")
    assert [str(sync) for sync in syncs if sync.hidden] == []


def test_the_observation_sees_the_copies_and_the_waits_that_upstream_makes():
    copies, syncs = observe(h2d="blocking", min_tokens_mask="boolean_index", scenario="steady")
    assert functions(copies) >= {"blocking"}
    assert {sync.kind for sync in syncs if sync.hidden} == {"copy-h2d", "boolean-index"}


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_on_a_gpu_no_line_of_penalties_or_sampling_synchronizes(path):
    params = Params.of(device="cuda", steps=STEPS, warmup=2, path=path, accounting="exact", temperature=0.75)
    device = start(params)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(params, device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    lines = {Path(warning.filename).name for warning in caught if "synchroniz" in str(warning.message)}
    assert lines & {"exact.py", "sampler.py", "sampling.py", "h2d.py", "worker.py", "batch.py"} == set()
