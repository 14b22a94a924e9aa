from pathlib import Path

import msgspec
import pytest

from penaltylab.commands.upstream import upstream
from penaltylab.errors import InputError
from penaltylab.upstream import Row, compare
from tests.upstream.made import (
    EAGLE_UTILS,
    PENALTYLIB,
    SCHEDULE_BATCH,
    SHARED_EAGLE,
    SHARED_NORMAL,
    SOURCES,
    write_wheel,
)

SHORT = {"device": "emu", "steps": 12, "warmup": 4, "vocab_size": 64, "batch_size": 2}
SHORT_VALUES = [f"{name}={value}" for name, value in SHORT.items()]


def test_a_version_and_a_path_give_a_row_of_sglang_and_one_of_ours(index: Path) -> None:
    write_wheel(index, "0.5.14", SOURCES | {SCHEDULE_BATCH: SHARED_NORMAL, EAGLE_UTILS: SHARED_EAGLE})
    rows = compare(["0.5.13", "0.5.14"], **SHORT)
    assert [(row.version, row.path, row.arm, row.revision) for row in rows] == [
        (version, path, arm, f"sglang-{version}")
        for version in ("0.5.13", "0.5.14")
        for path in ("normal", "eagle")
        for arm in ("sglang", "ours")
    ]
    assert all(row.tokens_equal and row.simulated and row.device.startswith("SIMULATED") for row in rows)


def test_a_copy_that_blocks_stalls_and_one_that_does_not_does_not(index: Path) -> None:
    write_wheel(index, "0.5.14", SOURCES | {SCHEDULE_BATCH: SHARED_NORMAL, EAGLE_UTILS: SHARED_EAGLE})
    before, ours_before, after, _ours_after = compare(["0.5.13", "0.5.14"], path="normal", forward_ms=2.5, **SHORT)
    assert before.stall_us > 2000
    assert after.stall_us == 0
    assert ours_before.difference_percent == pytest.approx(100 * (ours_before.step_us / before.step_us - 1))


@pytest.mark.parametrize("name", ["revision", "h2d", "min_tokens_mask", "accounting", "apply"])
def test_what_the_version_decides_cannot_be_given(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: the version decides it$"):
        compare(["0.5.13"], **{name: "x"})


def test_parameters_are_refused_before_anything_is_fetched(index: Path) -> None:
    with pytest.raises(InputError, match="path='sideways'"):
        compare(["0.5.99"], path="sideways")
    with pytest.raises(InputError, match="forward_ms"):
        compare(["0.5.99"], forward_ms="soon")


def test_an_error_in_the_release_s_own_code_is_one_line(index: Path) -> None:
    broken = SOURCES[f"{PENALTYLIB}/orchestrator.py"] + "        batch.unheard_of\n"
    write_wheel(index, "0.5.14", SOURCES | {f"{PENALTYLIB}/orchestrator.py": broken})
    with pytest.raises(InputError, match=r"^sglang 0\.5\.14: another .*: orchestrator\.py\(9\): .*unheard_of"):
        compare(["0.5.14"], **SHORT)


def test_the_command_prints_a_table_that_says_simulated(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream(["0.5.13"], "eagle", SHORT_VALUES) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("SIMULATED h100")
    assert lines[-2].split()[:3] == ["0.5.13", "eagle", "eagle_info_v2.py(3-6):"]
    assert lines[-1].split()[:5] == ["0.5.13", "eagle", "ours", "as", "sglang-0.5.13"]
    assert lines[-1].endswith("%")


def test_the_command_prints_markdown_and_json(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upstream(["0.5.13"], "normal", SHORT_VALUES, "markdown")
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert set(table[1]) == set("|-: ")
    upstream(["0.5.13"], "normal", SHORT_VALUES, "json")
    rows = msgspec.json.decode(capsys.readouterr().out, type=list[Row])
    assert [row.arm for row in rows] == ["sglang", "ours"]
    assert all(row.simulated for row in rows)


def test_the_path_is_given_once() -> None:
    with pytest.raises(InputError, match="the path is given twice"):
        upstream(["0.5.13"], "eagle", ["path=normal"])
