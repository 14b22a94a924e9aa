"""The reader: every container, every order of keys, and malformed files read as far as they go."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest

from penaltylab.errors import InputError
from penaltylab.traces import chunks, sources
from penaltylab.traces.read import read_trace
from penaltylab.traces.trace import Trace

from .build import HOST, call, document, frame, kernel, memcpy, note, op, thread, written

EVENTS = [call("cudaLaunchKernel", 100 + i, 1, i) for i in range(100)]
GOOD = json.dumps(document(EVENTS, traceName="x.json"))


def read(data: bytes | str) -> Trace:
    return read_trace(io.BytesIO(data.encode() if isinstance(data, str) else data))


def test_columns_hold_what_the_file_says() -> None:
    trace = read(
        written(
            call("cudaMemcpyAsync", 1000.5, 5, 7, ext=42),
            memcpy("HtoD (Pinned -> Device)", 1010, 2, 7, size=96, stream=20),
            kernel("gemm", 1020, 30, 8),
            op("aten::copy_", 1000, 9, 42, **{"Concrete Inputs": ["", "", "True"]}),
            frame("model.py(3): forward", 990, 100),
            note("step 4", 980, 200),
            thread(0, 20, "stream 20 forward stream"),
        )
    )
    assert (trace.events, trace.device.name, trace.device.vendor) == (7, "NVIDIA H100 80GB HBM3", "nvidia")
    assert trace.origin_us == 980
    assert trace.runtime.start.tolist() == [20.5]
    assert trace.runtime.correlation.tolist() == [7]
    assert trace.runtime.external_id.tolist() == [42]
    assert trace.gpu.bytes.tolist() == [96, -1]
    assert [trace.stream_of(lane) for lane in trace.gpu.lane] == [20, 7]
    assert trace.lane_names[int(trace.gpu.lane[0])] == "stream 20 forward stream"
    assert trace.operators.kind.tolist() == [1]
    assert trace.names[trace.frames.name[0]] == "model.py(3): forward"
    assert trace.span_us == pytest.approx(49.5)
    assert trace.notes == []


def test_slices_are_sorted_whatever_the_order_in_the_file() -> None:
    trace = read(written(call("b", 30, 1, 2), call("outer", 10, 9, 0), call("inner", 10, 2, 1)))
    assert [trace.names[code] for code in trace.runtime.name] == ["outer", "inner", "b"]


def test_plain_gzip_and_concatenated_gzip(tmp_path: Path) -> None:
    data = GOOD.encode()
    for packed in (data, gzip.compress(data), gzip.compress(data[:99]) + gzip.compress(data[99:])):
        path = tmp_path / "trace.json"
        path.write_bytes(packed)
        assert read_trace(path).events == read_trace(str(path)).events == read(packed).events == 100
        assert read(packed).notes == []


def test_zip_holds_a_trace_packed_or_not() -> None:
    for name, data in (("a.json", GOOD.encode()), ("a.json.gz", gzip.compress(GOOD.encode()))):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("readme.txt", "no trace")
            archive.writestr(name, data)
        assert read(packed.getvalue()).events == 100


def test_metadata_stands_before_behind_or_around_the_events() -> None:
    events = json.dumps(EVENTS)
    assert read(f'{{"traceEvents": {events}, "a": {{"b": [1]}}, "traceName": "y"}}').metadata == {
        "a": {"b": [1]},
        "traceName": "y",
    }
    assert read(f'{{"text": "\\"traceEvents\\": [", "traceEvents": {events}}}').metadata == {"text": '"traceEvents": ['}
    assert read(events).events == 100


def test_pieces_are_cut_between_events_wherever_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tricky = [call("}, { tricky", i, 1, i, grid=[{"a": 1}, {"b": "},{"}, {"ph": [2]}]) for i in range(60)]
    data = written(tricky, traceName="z")
    for size in (1, 7, 64, 333):
        monkeypatch.setattr(sources, "BLOCK", size)
        trace = read(data)
        assert (trace.events, trace.notes, trace.metadata["traceName"]) == (60, [], "z")
        assert trace.runtime.correlation.tolist() == list(range(60))


def test_old_files_with_integer_times_since_the_epoch_keep_their_distances() -> None:
    trace = read(written(call("a", 1695835542514261, 5, 1), kernel("k", 1695835542514300, 7, 1)))
    assert (trace.origin_us, trace.gpu.start.tolist(), trace.span_us) == (1695835542514261, [39], 46)


SPOILT = {
    "NaN": (GOOD.replace('"correlation": 5}', '"correlation": 5, "bandwidth": NaN}'), 100, "NaN"),
    "a time that is no number": (GOOD.replace('"ts": 107', '"ts": NaN'), 99, "1 unreadable event"),
    "invalid UTF-8": (GOOD.encode().replace(b"cudaLaunchKernel", b"cuda\xff", 1), 100, "invalid UTF-8"),
    "raw control characters": (GOOD.encode().replace(b"cudaLaunchKernel", b"cuda\x01", 1), 100, "control character"),
    "a raw line break": (GOOD.encode().replace(b"cudaLaunchKernel", b"cuda\n", 1), 100, "control character"),
    "a lone surrogate": (GOOD.replace("cudaLaunchKernel", r"cuda\ud800", 1), 100, "lone surrogate"),
    "unescaped quotes": (GOOD.replace("cudaLaunchKernel", 'cuda"Launch"', 3), 97, "3 unreadable event"),
    "Windows backslashes": (GOOD.replace("cudaLaunchKernel", r"C:\Users\q", 1), 100, "backslash"),
    "truncation": (GOOD[:5000], 30, "ends inside its list"),
    "a trailing comma": (GOOD.replace("}],", "}},],".replace("}}", "}")), 100, "trailing comma"),
    "concatenated documents": (GOOD * 2, 100, "second document"),
    "a byte order mark": ("\ufeff" + GOOD, 100, "byte order mark"),
    "integers over 64 bits": (
        GOOD.replace('"correlation": 7}', '"correlation": 7, "x": 1' + "0" * 40 + "}"),
        100,
        None,
    ),
    "times as strings": (GOOD.replace('"ts": 107', '"ts": "107.5"'), 100, "unexpected types"),
    "arguments that are no object": (
        GOOD.replace('"args": {"cbid": 1, "correlation": 9}', '"args": "x"'),
        100,
        "unexpected types",
    ),
    "a missing comma": (GOOD.replace("}}, {", "}} {", 3), 100, "missing comma"),
    "an end in the midst": (GOOD.replace("}}, {", "}}], {", 1), 100, "in the midst"),
    "10,000-deep nesting": (
        GOOD.replace('"correlation": 9}', '"correlation": 9, "x": ' + "[" * 10**4 + "]" * 10**4 + "}"),
        99,
        "1 unreadable",
    ),
    "entries that are no events": (
        GOOD.replace('"traceEvents": [', '"traceEvents": [1, "x", '),
        99,
        "unreadable event",
    ),
    "a cut gzip stream": (gzip.compress(GOOD.encode())[:-200], 30, "gzip stream is cut off"),
    "a damaged gzip stream": (gzip.compress(GOOD.encode() * 9)[:900] + b"\0" * 99, 30, "gzip stream"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_malformed_file_is_read_as_far_as_it_goes_and_says_what_is_wrong(what: str) -> None:
    data, at_least, word = SPOILT[what]
    trace = read(data)
    assert at_least <= trace.events <= 100
    assert (not trace.notes) if word is None else any(word in line for line in trace.notes), trace.notes
    if "stream" not in what and what != "truncation":
        assert trace.metadata["traceName"] == "x.json"


NO_TRACE = [
    b"",
    b" \n",
    b"<html></html>",
    b'{"a": 1}',
    b"[1, 2, 3]",
    b"[]",
    b"\x89PNG\r\n\x1a\n" + b"\0" * 99,
    b'[{"a": 1}]',
    b"PK\x03\x04xx",
]


@pytest.mark.parametrize("data", NO_TRACE)
def test_what_holds_no_trace_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(InputError, match="not a profiler trace") as refusal:
        read(data)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            read_trace(path)


def test_an_empty_list_of_events_is_a_trace() -> None:
    assert read(b'{"traceEvents": []}').events == 0


def test_a_giant_event_is_skipped_and_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LARGEST_EVENT", 20_000)
    monkeypatch.setattr(sources, "BLOCK", 4_000)
    trace = read(written(EVENTS, call("x" * 100_000, 300, 1, 300), EVENTS))
    assert (trace.events, trace.notes) == (200, ["skipped: one event of more than 0 MiB"])


def test_a_bomb_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BOMB_FROM", 1 << 20)
    trace = read(gzip.compress(GOOD.encode()[:-30] + b" " * (30 << 20)))
    assert any("compressed more than" in line for line in trace.notes)


def test_amd_and_simulated_devices_are_recognised() -> None:
    amd = read(written(call("hipLaunchKernel", 1, 1, 1), device=None))
    assert (amd.device.vendor, amd.simulated) == ("amd", False)
    ours = {"id": 0, "name": "SIMULATED H100"}
    simulated = read(written(EVENTS, device=ours, penaltylab={"simulated": True, "params": {"batch_size": 8}}))
    assert (simulated.device.vendor, simulated.simulated) == ("simulated", True)
    assert simulated.penaltylab["params"] == {"batch_size": 8}
    assert read(written(op("aten::add", 1, 1, 1), device=None)).device.vendor == "cpu"


def test_a_file_object_is_read_where_it_stands() -> None:
    stream = io.BytesIO(b"junk" + GOOD.encode())
    stream.seek(4)
    assert read_trace(stream).events == 100


def test_names_of_host_and_device() -> None:
    trace = read(written(EVENTS))
    assert trace.lanes == [(HOST, HOST)]
