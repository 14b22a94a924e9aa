"""Missing happens-before edges that the emulated device must catch in this engine, and those that must not be there."""

import pytest

from penaltylab.engine.run import Decode, decode

STEPS = 12


def run(**given) -> Decode:
    return decode(device="emu", forward_ms=1.0, batch_size=4, vocab_size=512, steps=STEPS, warmup=2, **given)


@pytest.mark.parametrize("barrier", ["coarse", "read_done"])
@pytest.mark.parametrize("accounting", ["upstream", "exact"])
@pytest.mark.parametrize("scenario", ["steady", "churn"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_a_correct_loop_has_none(path, scenario, accounting, barrier):
    result = run(path=path, scenario=scenario, accounting=accounting, barrier=barrier)
    assert [str(hazard) for hazard in result.hazards] == []


@pytest.mark.parametrize("h2d", ["blocking", "pageable_async", "pinned_blocking", "pinned_ring", "device_resident"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_no_strategy_but_the_unsafe_one_has_any(path, h2d):
    assert run(path=path, h2d=h2d, scenario="churn").hazards == []


@pytest.mark.parametrize("accounting", ["upstream", "exact"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_a_sparse_apply_reads_nothing_after_read_done(path, accounting):
    given = {"path": path, "accounting": accounting, "apply": "sparse", "barrier": "read_done", "scenario": "churn"}
    assert run(**given).hazards == []


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_overwriting_one_pinned_buffer_is_caught_once_a_step_from_the_second(path):
    hazards = run(path=path, h2d="pinned_reuse_unsafe").hazards
    assert [hazard.kind for hazard in hazards] == ["host-write"] * (STEPS - 1)
    assert all("h2d.py" in hazard.first_site and "h2d.py" in hazard.second_site for hazard in hazards)


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_without_overlap_the_reuse_is_safe(path):
    assert run(path=path, h2d="pinned_reuse_unsafe", overlap=False).hazards == []


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_without_the_barrier_the_schedule_stream_writes_what_the_forward_still_reads(path):
    hazards = [h for h in run(path=path, barrier="none").hazards if h.kind == "write-after-read"]
    cache = [h for h in hazards if "batch.py" in h.second_site]
    state = [h for h in hazards if "penalties" in h.second_site or "frequency.py" in h.second_site]
    assert len(cache) >= STEPS - 1
    assert len(state) >= STEPS - 1
