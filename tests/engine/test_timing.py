"""Where the host stalls, as relations in modelled time on the emulated device."""

import numpy as np
import pytest

from penaltylab.engine.run import Decode, decode

FORWARD_US = 2500


def run(**given) -> Decode:
    return decode(**({"device": "emu", "forward_ms": FORWARD_US / 1000, "batch_size": 8, "steps": 32} | given))


def stall(**given) -> float:
    return run(**given).median("stall_us")


def step(**given) -> float:
    return run(**given).median("step_us")


def test_a_blocking_copy_behind_the_coarse_barrier_stalls_about_a_forward():
    result = run(path="normal", h2d="blocking", barrier="coarse")
    assert 0.6 * FORWARD_US < result.median("stall_us") < FORWARD_US


@pytest.mark.parametrize("path", ["normal", "eagle"])
@pytest.mark.parametrize("h2d", ["pageable_async", "pinned_async", "pinned_ring", "device_resident"])
def test_a_copy_that_does_not_synchronize_does_not_stall(h2d, path):
    result = run(path=path, h2d=h2d)
    assert result.median("stall_us") < 0.01 * result.median("step_us")


def test_pinning_alone_gains_nothing():
    assert step(h2d="pinned_blocking") == pytest.approx(step(h2d="blocking"), rel=0.01)


@pytest.mark.parametrize("barrier", ["none", "read_done"])
def test_without_the_coarse_barrier_the_blocking_copy_hardly_waits(barrier):
    assert stall(h2d="blocking", barrier=barrier) < 0.1 * stall(h2d="blocking", barrier="coarse")


def test_the_gain_of_a_step_is_what_the_host_can_do_beside_the_forward():
    blocking, free = step(h2d="blocking"), step(h2d="pinned_async")
    assert FORWARD_US < free < blocking
    assert step(h2d="pinned_async", barrier="read_done") == pytest.approx(free, rel=0.02)


def test_the_gain_shrinks_as_the_forward_grows_and_is_nothing_when_the_host_is_the_bottleneck():
    def ratio(forward_ms: float) -> float:
        return step(h2d="blocking", forward_ms=forward_ms) / step(h2d="pinned_async", forward_ms=forward_ms)

    assert ratio(1.0) > ratio(2.5) > ratio(8) > ratio(20) > 1
    assert ratio(0.01) == pytest.approx(1, abs=0.15)


def test_boolean_indexing_takes_the_stall_that_the_copy_gave_up():
    where, boolean = run(h2d="pinned_async"), run(h2d="pinned_async", min_tokens_mask="boolean_index")
    gain = step(h2d="blocking") - where.median("step_us")
    assert np.median(where.wait_us["mask"]) == 0
    assert np.median(boolean.wait_us["mask"]) > 0.6 * FORWARD_US
    assert boolean.median("stall_us") == 0
    assert boolean.median("step_us") - where.median("step_us") > 0.4 * gain


def test_without_overlap_the_result_is_what_the_host_waits_for():
    result = run(h2d="blocking", overlap=False)
    assert result.median("stall_us") < 0.05 * FORWARD_US
    assert np.median(result.wait_us["result"]) > 0.9 * FORWARD_US


class TestEagle:
    """Its host waits are in series: without the copy's stall, the wait for the accepted lengths is longer."""

    @staticmethod
    def gain(**given) -> float:
        return step(path="eagle", h2d="blocking", **given) - step(path="eagle", h2d="pinned_async", **given)

    def test_the_stall_turns_into_a_longer_length_wait(self):
        blocking, free = run(path="eagle", h2d="blocking"), run(path="eagle", h2d="pinned_async")
        assert blocking.median("stall_us") > 0.6 * FORWARD_US
        given_up = np.median(blocking.wait_us["copy"]) - np.median(free.wait_us["copy"])
        taken_on = np.median(free.wait_us["seq_lens"]) - np.median(blocking.wait_us["seq_lens"])
        assert taken_on > 0.6 * given_up
        assert blocking.median("step_us") - free.median("step_us") < 0.5 * given_up

    def test_the_gain_follows_the_formula(self):
        """E is draft-extend's time, H the host's from the copy to the length wait, X from there to the draft."""
        h = self.gain(extend_share=0.0)
        x = self.gain(extend_share=0.5) - h
        assert h > 0
        assert x > 0
        for extend_share in (0.02, 0.05, 0.1, 0.2, 0.4):
            e = extend_share * FORWARD_US
            assert self.gain(extend_share=extend_share) == pytest.approx(h + min(e, x), abs=25)
            read_done = max(0, h + x - e) - max(0, x - e)
            assert self.gain(extend_share=extend_share, barrier="read_done") == pytest.approx(read_done, abs=40)
        assert self.gain(seq_lens_sync=False) == pytest.approx(h + x, abs=60)


def test_modelled_runs_are_identical_twice_in_a_row():
    for path in ("normal", "eagle"):
        one, two = (run(path=path, scenario="churn", h2d="pinned_reuse_unsafe") for _ in range(2))
        assert one.tokens == two.tokens
        for name in ("step_us", "cumulate_us", "stall_us", "accept_lens"):
            assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
        assert all(one.wait_us[kind].tobytes() == two.wait_us[kind].tobytes() for kind in one.wait_us)
        assert [str(each) for each in one.hazards] == [str(each) for each in two.hazards]


def test_occupancy_and_throughput_are_of_the_steps_after_warm_up():
    result = run(h2d="pinned_async", barrier="read_done")
    wall = result.step_us[result.params.warmup :].sum()
    assert result.tokens_per_s == pytest.approx(8 * 24 / wall * 1e6)
    assert 90 < result.fwd_occupancy <= 100
    assert run(h2d="blocking").fwd_occupancy < result.fwd_occupancy


def test_a_step_tells_its_copies_synchronizations_and_bubble() -> None:
    blocking, pinned = run(h2d="blocking"), run(h2d="pinned_async")
    assert blocking.median("syncs") == pinned.median("syncs") + 1
    assert blocking.median("copies") == pinned.median("copies")
    assert blocking.median("prepare_us") > blocking.median("cumulate_us") > pinned.median("prepare_us")
    grown = blocking.median("bubble_us") - pinned.median("bubble_us")
    assert grown == pytest.approx(blocking.median("step_us") - pinned.median("step_us"), abs=30)
    assert np.isnan(blocking.bubble_us[0])
