"""A profile of the emulated device is a CUDA trace: its schema, names, links and rows, and it says SIMULATED."""

import gzip
import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import record_function

from penaltylab import emu
from penaltylab.emu.profile import Profiler
from penaltylab.errors import InputError
from penaltylab.traces.stalls import find_stalls

Event = dict[str, Any]


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    emu.register()
    emu.configure("h100", "modelled")
    yield
    emu.configure("h100", "modelled")


def decode_loop(steps: int = 4) -> None:
    """What an overlap scheduler does to streams: a barrier, a blocking copy, a forward, a result."""
    device = torch.get_device_module("emu")
    schedule, forward = device.Stream(), device.Stream()
    schedule.name, forward.name = "schedule stream", "forward stream"
    state = torch.zeros(8, 64, device="emu")
    with device.stream(schedule):
        for number in range(steps):
            with record_function(f"step {number}"):
                schedule.wait_stream(forward)
                with record_function("prepare_for_decode"):
                    ids = torch.tensor(list(range(8)), dtype=torch.int64, device="emu")
                    state.scatter_add_(1, ids[:, None], torch.ones(8, 1, device="emu"))
                with record_function("run_batch"), device.stream(forward):
                    forward.wait_stream(schedule)
                    emu.busy(2.5, "forward")
                    logits = state.softmax(-1)
                if number % 2:
                    logits.argmax(-1).tolist()
    device.synchronize()


def profiled(folder: Path, body: Callable[[], object], with_stack: bool = False) -> dict[str, Any]:
    path = folder / "trace.json.gz"
    with Profiler(with_stack) as profiler:
        body()
    profiler.export(path, {"params": {"h2d": "blocking"}})
    return json.loads(gzip.decompress(path.read_bytes()))


def of(trace: dict[str, Any], *categories: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event.get("cat") in categories and event["ph"] == "X"]


def span(event: Event) -> tuple[int, int]:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def holds(outer: Event, inner: Event) -> bool:
    (a, b), (c, d) = span(outer), span(inner)
    return a <= c and d <= b and outer["tid"] == inner["tid"]


def crossings(trace: dict[str, Any]) -> list[tuple[Event, Event]]:
    rows, found = defaultdict(list), []
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(event)
    for row in rows.values():
        stack: list[Event] = []
        for event in sorted(row, key=lambda event: (span(event)[0], -span(event)[1])):
            while stack and span(stack[-1])[1] <= span(event)[0]:
                stack.pop()
            if stack and span(stack[-1])[1] < span(event)[1]:
                found.append((stack[-1], event))
            stack.append(event)
    return found


def two_threads() -> None:
    workers = [threading.Thread(target=decode_loop) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("host_time", ["modelled", "measured"])
@pytest.mark.parametrize("with_stack", [False, True])
@pytest.mark.parametrize("body", [decode_loop, two_threads])
def test_nothing_crosses_on_a_row_and_no_time_is_negative(
    tmp_path: Path, body: Callable[[], None], with_stack: bool, host_time: str
) -> None:
    emu.configure("h100", host_time)
    trace = profiled(tmp_path, body, with_stack)
    assert crossings(trace) == []
    assert min(event["ts"] for event in trace["traceEvents"]) >= 0
    assert min(event.get("dur", 0) for event in trace["traceEvents"]) >= 0


def test_a_reader_sees_simulated_wherever_it_looks(tmp_path: Path) -> None:
    trace = profiled(tmp_path, decode_loop)
    assert trace["deviceProperties"][0]["name"] == "SIMULATED H100 (penaltylab emu)"
    labels = [event["args"]["labels"] for event in trace["traceEvents"] if event["name"] == "process_labels"]
    assert labels == ["SIMULATED CPU", "SIMULATED GPU 0"]
    ours = trace["penaltylab"]
    assert (ours["simulated"], ours["host_time"], ours["params"]) == (True, "modelled", {"h2d": "blocking"})
    assert ours["machine"] == emu.machine().asdict()


def test_streams_and_threads_carry_their_names(tmp_path: Path) -> None:
    trace = profiled(tmp_path, decode_loop)
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    device_rows = {event["tid"] for event in of(trace, "kernel", "gpu_memcpy", "gpu_memset")}
    _, schedule, forward = sorted(device_rows)
    assert [names[0, row] for row in sorted(device_rows)] == [
        "stream 7 ",
        f"stream {schedule} schedule stream",
        f"stream {forward} forward stream",
    ]
    assert names[os.getpid(), threading.get_native_id()] == f"thread {threading.get_native_id()} (python)"


def test_a_blocking_copy_is_a_memcpy_and_a_synchronize_of_one_operator(tmp_path: Path) -> None:
    calls = sorted(of(profiled(tmp_path, decode_loop), "cuda_runtime"), key=lambda call: call["ts"])
    stalls = [
        (copy, wait)
        for copy, wait in pairwise(calls)
        if copy["name"] == "cudaMemcpyAsync" and wait["name"] == "cudaStreamSynchronize"
    ]
    assert len(stalls) >= 4
    for copy, wait in stalls:
        assert copy["args"]["External id"] == wait["args"]["External id"]
        assert copy["tid"] == wait["tid"]
        assert (copy["args"]["cbid"], wait["args"]["cbid"]) == (41, 131)
    longest = max(wait["dur"] for _, wait in stalls)
    assert 2000 < longest < 2600  # the barrier put the forward, of 2.5 ms, in front of the copy


def test_the_operator_around_a_call_is_the_one_that_its_external_id_names(tmp_path: Path) -> None:
    trace = profiled(tmp_path, decode_loop)
    operators = {event["args"]["External id"]: event for event in of(trace, "cpu_op")}
    linked = [call for call in of(trace, "cuda_runtime") if "External id" in call["args"]]
    assert len(linked) > 8
    assert all(holds(operators[call["args"]["External id"]], call) for call in linked)
    copies = {operators[call["args"]["External id"]]["name"] for call in linked if call["name"] == "cudaMemcpyAsync"}
    assert copies == {"aten::_copy_from", "aten::_to_copy"}


def test_the_inspector_finds_the_synchronizations_that_the_device_knows_of(tmp_path: Path) -> None:
    profiled(tmp_path, decode_loop)
    known = [(sync.kind, sync.site) for sync in emu.syncs() if sync.hidden]
    found = find_stalls(tmp_path / "trace.json.gz")
    found = found[found.kind.isin(["blocking-h2d", "blocking-d2h"])].sort_values("start_us")
    kinds = {"blocking-h2d": "copy-h2d", "blocking-d2h": "copy-d2h"}
    assert [(kinds[kind], site) for kind, site in zip(found.kind, found.site, strict=True)] == known
    assert len(known) == 6


def test_every_launch_points_at_what_it_launched(tmp_path: Path) -> None:
    trace = profiled(tmp_path, decode_loop)
    calls = {call["args"]["correlation"]: call for call in of(trace, "cuda_runtime")}
    operations = {op["args"]["correlation"]: op for op in of(trace, "kernel", "gpu_memcpy", "gpu_memset")}
    starts = {event["id"]: event for event in trace["traceEvents"] if event.get("cat") == "ac2g" and event["ph"] == "s"}
    ends = {event["id"]: event for event in trace["traceEvents"] if event.get("cat") == "ac2g" and event["ph"] == "f"}
    assert starts.keys() == ends.keys() == operations.keys() & calls.keys()
    assert len(operations) >= 16
    for number, op in operations.items():
        call = calls[number]
        assert (starts[number]["tid"], starts[number]["ts"]) == (call["tid"], call["ts"])
        assert (ends[number]["tid"], ends[number]["ts"], ends[number]["bp"]) == (op["tid"], op["ts"], "e")
        assert call["ts"] <= op["ts"]
        assert op["args"].get("External id") == call["args"].get("External id")


def test_copies_say_how_many_bytes_of_which_memory(tmp_path: Path) -> None:
    copies = [op for op in of(profiled(tmp_path, decode_loop), "gpu_memcpy") if "HtoD" in op["name"]]
    assert Counter(op["name"] for op in copies) == {"Memcpy HtoD (Pageable -> Device)": 4}
    assert {op["args"]["bytes"] for op in copies} == {64}
    for op in copies:
        assert op["args"]["memory bandwidth (GB/s)"] == pytest.approx(64 / (op["dur"] * 1000), rel=1e-3)


def test_an_annotation_takes_as_long_as_the_hosts_clock_says(tmp_path: Path) -> None:
    taken: list[float] = []

    def body() -> None:
        x = torch.zeros(8, device="emu")
        for _ in range(5):
            start = emu.now_us()
            with record_function("stretch"):
                torch.tensor([1.0, 2.0], device="emu").add_(x[:2])
            taken.append(emu.now_us() - start)

    annotated = [event["dur"] for event in of(profiled(tmp_path, body), "user_annotation")]
    assert annotated == pytest.approx(taken, abs=0.5)


def test_an_operators_inner_work_on_the_cpu_does_not_appear(tmp_path: Path) -> None:
    def body() -> None:
        x, host = torch.arange(6.0, device="emu").reshape(2, 3), torch.arange(3.0)
        with record_function("add"):
            x + 1
        with record_function("linear"):
            torch.nn.functional.linear(x, x)
        with record_function("upload"):
            host.to("emu")
        with record_function("download"):
            x.cpu()
        with record_function("item"):
            x[0, 0].item()

    trace = profiled(tmp_path, body)
    annotations = {event["name"]: event for event in of(trace, "user_annotation")}
    inside = {
        name: [op["name"] for op in of(trace, "cpu_op") if holds(annotation, op)]
        for name, annotation in annotations.items()
    }
    assert inside["add"] == ["aten::add"]
    assert Counter(inside["linear"])["aten::linear"] == 1
    assert not {"aten::empty", "aten::copy_"} & set(inside["linear"])
    copy = ["aten::to", "aten::_to_copy"]
    assert inside["upload"] == [*copy, "aten::empty_strided", "aten::copy_", "aten::_copy_from"]
    assert inside["download"] == copy
    assert inside["item"][-2:] == ["aten::item", "aten::_local_scalar_dense"]


def test_device_rows_hold_the_annotation_they_were_launched_in(tmp_path: Path) -> None:
    trace = profiled(tmp_path, decode_loop)
    forwards = [op for op in of(trace, "kernel") if op["name"] == "forward"]
    annotations = [event for event in of(trace, "gpu_user_annotation") if event["name"] == "run_batch"]
    assert len(forwards) == len(annotations) == 4
    assert all(holds(annotation, op) for annotation, op in zip(annotations, forwards, strict=True))


def test_with_stack_python_functions_are_there_and_the_emulators_are_not(tmp_path: Path) -> None:
    trace = profiled(tmp_path, decode_loop, with_stack=True)
    frames = of(trace, "python_function")
    loop = [frame for frame in frames if frame["name"].endswith(": decode_loop")]
    assert len(loop) == 1
    assert not [frame["name"] for frame in frames if "penaltylab/emu/" in frame["name"]]
    assert all(holds(loop[0], call) for call in of(trace, "cuda_runtime"))


def test_each_thread_has_its_own_calls(tmp_path: Path) -> None:
    calls = Counter(call["tid"] for call in of(profiled(tmp_path, two_threads), "cuda_runtime"))
    assert len(calls) == 2
    assert len(set(calls.values())) == 1


def test_two_modelled_runs_give_the_same_calls_and_device_rows_to_the_byte(tmp_path: Path) -> None:
    def emulated() -> bytes:
        emu.configure("h100", "modelled")
        trace = profiled(tmp_path, decode_loop)
        categories = ("cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
        return json.dumps(of(trace, *categories)).encode()

    decode_loop()
    assert emulated() == emulated()


def test_base_time_is_when_the_virtual_clock_stood_at_zero(tmp_path: Path) -> None:
    emu.configure("h100", "measured")
    before = time.time_ns()
    trace = profiled(tmp_path, lambda: torch.zeros(3, device="emu"))
    zero = trace["baseTimeNanoseconds"]
    assert before - 50e6 < zero < time.time_ns()


def test_the_clocks_are_related_within_two_microseconds(tmp_path: Path) -> None:
    assert profiled(tmp_path, decode_loop)["penaltylab"]["clock_error_us"] < 2


def test_a_body_that_raises_ends_the_profile_and_the_next_one_works(tmp_path: Path) -> None:
    def fail() -> None:
        torch.zeros(3, device="emu")
        raise KeyError("fails")

    with pytest.raises(KeyError, match="fails"):
        profiled(tmp_path, fail)
    assert list(tmp_path.iterdir()) == []
    assert of(profiled(tmp_path, decode_loop), "kernel")


def test_a_body_that_configures_the_device_anew_ends_the_profile_too(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no recording"):
        profiled(tmp_path, lambda: emu.configure("h100", "modelled"))
    assert of(profiled(tmp_path, decode_loop), "kernel")


def test_an_unwritable_path_is_one_line_and_does_not_cost_the_profile(tmp_path: Path) -> None:
    with Profiler() as profiler:
        torch.zeros(3, device="emu")
    with pytest.raises(InputError, match="cannot be written"):
        profiler.export(tmp_path / "absent" / "trace.json", {})
    profiler.export(tmp_path / "trace.json", {})
    assert json.loads((tmp_path / "trace.json").read_bytes())["traceName"].endswith("trace.json")


def test_a_profile_that_is_not_over_has_no_trace(tmp_path: Path) -> None:
    with Profiler() as profiler, pytest.raises(RuntimeError, match="not over"):
        profiler.export(tmp_path / "trace.json", {})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_holistic_trace_analysis_reads_it(tmp_path: Path) -> None:
    hta = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is not installed")
    trace = profiled(tmp_path, decode_loop)
    analysis = hta.TraceAnalysis(trace_files={0: str(tmp_path / "trace.json.gz")}, trace_dir=str(tmp_path))
    assert len(analysis.t.get_trace(0)) >= len(of(trace, "cpu_op", "user_annotation", "cuda_runtime", "kernel"))
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
    assert {"COMPUTATION", "MEMORY"} <= set(kinds["kernel_type"])
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    assert len(launches) >= len(of(trace, "kernel"))
