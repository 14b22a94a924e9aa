"""The inspect command: what it prints, its exit status, and that nothing in a file can steer a terminal or a page."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penaltylab.commands import inspect as command
from penaltylab.commands.inspect import inspect
from penaltylab.errors import InputError
from penaltylab.traces.findings import inspect_trace
from penaltylab.traces.fold import fold, human_bytes, short_name
from penaltylab.traces.render import escaped, plain

from .build import blocking_copy, call, frame, kernel, memcpy, note, op, written

LOOP = [
    one
    for k in range(37)
    for one in (
        note(f"step {k}", 5000 * k, 5000),
        frame("forward_batch_info.py(443): init_new", 5000 * k + 90, 3000),
        *blocking_copy(5000 * k + 100, 2100, 10 * k + 7),
    )
]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "loop.json.gz"
    path.write_bytes(gzip.compress(written(LOOP)))
    return str(path)


def test_json_has_exactly_the_documented_keys(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect([trace], "json", None, 0.0) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert list(found) == [
        "trace",
        "device",
        "simulated",
        "events",
        "gpu_ops",
        "span_us",
        "copies",
        "stall_us",
        "stalls",
        "warnings",
    ]
    assert list(found["copies"]) == ["h2d", "h2d_blocking", "h2d_bytes", "h2d_pinned", "h2d_pageable", "h2d_unknown"]
    assert list(found["stall_us"]) == [
        "blocking-h2d",
        "blocking-d2h",
        "stream-sync",
        "device-sync",
        "event-sync",
        "memset-sync",
    ]
    assert list(found["stalls"][0]) == [
        "kind", "start_us", "stall_us", "copy_us", "bytes", "memory", "stream", "call", "site", "step", "waited_on",
        "bubble_us", "advice",
    ]  # fmt: skip
    assert (found["trace"], found["device"]) == (trace, {"name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia"})
    assert found["stall_us"]["blocking-h2d"] == pytest.approx(sum(stall["stall_us"] for stall in found["stalls"]))


def test_repeats_are_folded_by_line(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    inspect([trace], "table", None, 0.0)
    printed = capsys.readouterr().out
    assert "forward_batch_info.py(443): init_new  37 x 2.11 ms" in printed
    assert "37 steps (step), 5.00 ms each" in printed
    assert "2.11 ms a step (42%) in 37 of them: blocking-h2d at forward_batch_info.py(443): init_new" in printed


def test_the_gate_fails_for_what_it_forbids_and_lasts_long_enough(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect([trace], "table", "stream-sync,event-sync", 0.0) == 0
    assert inspect([trace], "table", "blocking-h2d,stream-sync", 5000.0) == 0
    assert inspect([trace], "table", "", 0.0) == 0
    capsys.readouterr()
    assert inspect([trace], "table", "blocking-h2d", 50.0) == 1
    assert capsys.readouterr().out.count("forbidden: blocking-h2d of 2.11 ms") == 37
    assert inspect([trace], "json", "blocking-h2d", 50.0) == 1
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == 1
    assert "forbidden: blocking-h2d" in printed.err


def test_stalls_below_the_threshold_are_left_out(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    inspect([trace], "json", None, 5000.0)
    assert json.loads(capsys.readouterr().out)[0]["stalls"] == []
    inspect([trace], "table", None, 5000.0)
    assert "no host stalls" in capsys.readouterr().out


def test_markdown_is_a_table_with_the_same_figures(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    inspect([trace], "markdown", None, 0.0)
    printed = capsys.readouterr().out
    assert f"### `{trace}`" in printed
    assert "| blocking-h2d | `forward_batch_info.py(443): init_new` | 37 x 2.11 ms |" in printed


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("table", "blocking_h2d", 0.0), "the kinds are blocking-h2d"),
        (("yaml", None, 0.0), "table, json, markdown"),
        (("table", None, -1.0), "not a length of time"),
    ],
)
def test_bad_arguments_are_refused(trace: str, arguments: tuple[str, str | None, float], word: str) -> None:
    with pytest.raises(InputError, match=word):
        inspect([trace], *arguments)


def test_one_bad_file_does_not_hide_the_others(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("<html>")
    with pytest.raises(InputError, match=r"bad\.json: not a profiler trace"):
        inspect([str(bad), trace], "table", None, 0.0)
    assert "37 x 2.11 ms" in capsys.readouterr().out


def test_large_traces_are_read_in_parallel_with_the_same_findings(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [command._inspect_one(trace)] * 2
    monkeypatch.setattr(command, "_WORTH_A_PROCESS", 0)
    monkeypatch.setattr(command.os, "cpu_count", lambda: 2)
    assert command._inspect_all([trace, trace]) == alone


HOSTILE = "\x1b]0;owned\x07\x9b31m[bold]<script>alert(1)</script>`|@everyone\u202e![x](http://x)"


def test_names_in_a_file_stay_plain_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hostile.json"
    events = [frame(f"{HOSTILE}.py(3): {HOSTILE}", 0, 5000), *blocking_copy(100, 900, 7), kernel(HOSTILE, 50, 990, 9)]
    path.write_bytes(written(events, device={"id": 0, "name": HOSTILE}))
    for format in ("table", "json", "markdown"):
        inspect([str(path)], format, "blocking-h2d", 0.0)
        printed = capsys.readouterr()
        for text in (printed.out, printed.err):
            assert not [
                char
                for char in text
                if (ord(char) < 32 and char != "\n") or 0x7F <= ord(char) < 0xA0 or char == "\u202e"
            ]
    inspect([str(path)], "markdown", None, 0.0)
    outside = "".join(capsys.readouterr().out.split("`")[0::2])
    assert "<script" not in outside
    assert "@everyone" not in outside
    assert "![x]" not in outside


def test_plain_text_is_short_and_visible() -> None:
    assert plain("a\x1b[2J\u200bb") == "a\ufffd[2J\ufffdb"
    assert len(plain("x" * 10_000)) == 400
    assert escaped("<b>*_|@") == "&lt;b&gt;\\*\\_\\|&commat;"


def test_folding_says_the_longest_where_lengths_differ_much() -> None:
    events = [*blocking_copy(0, 10, 1), *blocking_copy(1000, 90_000, 3)]
    (group,) = fold(inspect_trace(io.BytesIO(written(events))).findings.stalls)
    assert (len(group.stalls), group.total_us, group.memory, group.waited_on) == (
        2,
        90_022,
        "64 B pageable",
        "untraced work",
    )
    assert [human_bytes(size) for size in (60, 82_944, 38_535_168)] == ["60 B", "81.0 KiB", "36.8 MiB"]
    assert short_name("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::Op<2u>, int>(float*)") == (
        "at::native::CatArrayBatchedCopy"
    )


def test_no_heavy_package_is_imported(trace: str) -> None:
    program = (
        "import sys; from penaltylab.cli import run; status = run(['inspect', sys.argv[1]]);"
        "print(status, sorted({name.split('.')[0] for name in sys.modules}"
        " & {'torch', 'pandas', 'matplotlib', 'scipy', 'IPython', 'papermill'}),"
        " [name for name in sys.modules if name.startswith('penaltylab.emu')])"
    )
    done = subprocess.run([sys.executable, "-c", program, trace], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0 [] []", done.stderr


def test_warnings_name_what_is_crooked() -> None:
    crooked = written(
        [op("aten::a", 10.5, 20, 1), op("aten::b", 20.5, 20, 2)],
        [call("cudaLaunchKernel", 50, 5, 7), kernel("early", 40.25, 5, 7)],
        [call("cudaLaunchKernel", 60, 5, 8), call("cudaLaunchKernel", 70, 5, 8), kernel("orphan", 90, 5, 99)],
        [call("hipMemcpyAsync", 100, 5, 11, kind="1"), memcpy("DtoD (Device -> Device)", 110, 5, 11)],
    )
    warnings = "\n".join(inspect_trace(io.BytesIO(crooked)).findings.warnings)
    for word in (
        "1 slices cross",
        "2 of 4 launches have no GPU operation",
        "1 of 3 GPU operations have no runtime call",
        "correlation ids occur more than once",
        "1 GPU operations start before the call",
        "1 copies from pinned memory are called DtoD",
    ):
        assert word in warnings
    coarse = inspect_trace(io.BytesIO(written(call("cudaLaunchKernel", 50, 5, 7)))).findings.warnings
    assert any("whole microseconds" in line for line in coarse)
    assert any("no GPU operations" in line for line in coarse)
    clamped = written([kernel("a", 0, 1.5, 1), kernel("b", 0, 2.5, 2), call("cudaLaunchKernel", 5, 1, 1)])
    assert any("clamped" in line for line in inspect_trace(io.BytesIO(clamped)).findings.warnings)
    negative = written(kernel("a", -5.5, 1, 1))
    assert any("negative" in line for line in inspect_trace(io.BytesIO(negative)).findings.warnings)


def test_findings_survive_a_round_trip() -> None:
    inspected = inspect_trace(io.BytesIO(written(LOOP)))
    assert msgspec.json.decode(msgspec.json.encode(inspected), type=type(inspected)) == inspected
