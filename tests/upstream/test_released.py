"""Released sglang on a device: what #28491 and #28500 changed, shown on the code that was released."""

from collections.abc import Callable

import pytest

from penaltylab import emu
from penaltylab.engine.run import run, start
from penaltylab.params import Params
from penaltylab.upstream import Row, Upstream, compare

pytestmark = [pytest.mark.network, pytest.mark.slow]
FORWARD_US = 2500
PATHS = ("normal", "eagle")


@pytest.fixture(scope="module")
def rows(released: Callable[[str], Upstream]) -> list[Row]:
    versions = ["0.5.12", "0.5.13", "0.5.14"]
    for version in versions:
        released(version)
    return compare(versions, device="emu", forward_ms=FORWARD_US / 1e3)


def of(rows: list[Row], arm: str, version: str, path: str) -> Row:
    (row,) = (row for row in rows if (row.arm, row.version, row.path) == (arm, version, path))
    return row


@pytest.mark.parametrize("path", PATHS)
def test_0_5_13_stalls_about_a_forward_in_the_copy(rows: list[Row], path: str) -> None:
    row = of(rows, "sglang", "0.5.13", path)
    assert 0.75 * FORWARD_US < row.stall_us < FORWARD_US
    assert row.simulated
    assert row.device.startswith("SIMULATED")


@pytest.mark.parametrize("path", PATHS)
def test_0_5_14_does_not_stall_in_the_copy(rows: list[Row], path: str) -> None:
    row = of(rows, "sglang", "0.5.14", path)
    assert row.stall_us < 0.01 * row.step_us
    assert row.step_us < of(rows, "sglang", "0.5.13", path).step_us


@pytest.mark.parametrize("path", PATHS)
def test_0_5_12_has_no_barrier_so_its_copy_waits_for_little_and_races(rows: list[Row], path: str) -> None:
    row = of(rows, "sglang", "0.5.12", path)
    assert row.stall_us < 0.01 * row.step_us
    assert row.hazards > 0
    assert of(rows, "sglang", "0.5.13", path).hazards == of(rows, "sglang", "0.5.14", path).hazards == 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", ["0.5.12", "0.5.13", "0.5.14"])
def test_ours_agrees_with_each_under_its_settings(rows: list[Row], version: str, path: str) -> None:
    ours, theirs = of(rows, "ours", version, path), of(rows, "sglang", version, path)
    tenth = 0.1 * theirs.step_us
    assert abs(ours.step_us - theirs.step_us) < tenth
    assert abs(ours.cumulate_us - theirs.cumulate_us) < tenth
    assert abs(ours.stall_us - theirs.stall_us) < tenth
    assert all(abs(ours.wait_us[kind] - theirs.wait_us[kind]) < tenth for kind in theirs.wait_us)
    assert ours.tokens_equal


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", ["0.5.13", "0.5.14", "0.5.23"])
def test_tokens_are_equal_while_requests_join_and_leave(
    released: Callable[[str], Upstream], version: str, path: str
) -> None:
    released(version)
    assert all(row.tokens_equal for row in compare([version], path=path, device="emu", scenario="churn"))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("normal", "schedule_batch.py(2523): prepare_for_decode"),
        ("eagle", "eagle_info_v2.py(136): prepare_for_decode"),
    ],
)
def test_the_stall_is_found_at_sglang_s_own_line(released: Callable[[str], Upstream], path: str, line: str) -> None:
    release = released("0.5.13")
    params = Params.of(path=path, revision="sglang-0.5.13", device="emu", steps=16)
    run(
        params,
        start(params),
        batch_class=release.batch_class(path),
        make_orchestrator=release.make_orchestrator(params.vocab_size),
    )
    stalls = [sync.site for sync in emu.syncs() if sync.kind == "copy-h2d" and sync.blocked_us > FORWARD_US / 2]
    assert set(stalls) == {line}
    assert len(stalls) >= params.steps - 1


@pytest.mark.gpu
@pytest.mark.parametrize("path", PATHS)
def test_on_a_gpu_the_copy_of_0_5_13_takes_most_of_a_forward_and_that_of_0_5_14_little(
    released: Callable[[str], Upstream], path: str
) -> None:
    for version in ("0.5.13", "0.5.14"):
        released(version)
    before, _, after, _ = compare(["0.5.13", "0.5.14"], path=path, device="cuda", forward_ms=10)
    assert before.cumulate_us > 5_000
    assert after.cumulate_us < 1_000
    assert before.tokens_equal
    assert after.tokens_equal
