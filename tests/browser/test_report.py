"""The report in a browser, opened from disk: light and dark, on paper, by keyboard, with nothing from elsewhere."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small sweep over the revisions."""
    out = tmp_path_factory.mktemp("report") / "<out>"
    sweep = ["--sweep", "revision=28397,28491", "--sweep", "path=all", "-p", "steps=12", "-p", "warmup=4"]
    command = [sys.executable, "-m", "penaltylab.cli", "run", *sweep, "--device", "emu", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return out / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_from_disk(chromium: Any, report: Path, screenshots: Path, scheme: str) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.extend([request.url] if request.url.startswith("http") else []))
    page.goto(report.as_uri())
    assert complaints == []
    assert page.locator(".answer p").count() == 3
    assert "SIMULATED" in page.locator(".answer").inner_text()
    picture = page.locator("figure img").first
    assert picture.evaluate("image => image.naturalWidth") > 800
    assert "oldest first" in picture.get_attribute("alt")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 24, 30)"
    assert dark == (scheme == "dark")
    wide = page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert wide, "the page scrolls sideways"
    page.screenshot(path=screenshots / f"report-{scheme}.png", full_page=True)
    context.close()


def test_it_prints(chromium: Any, report: Path, tmp_path: Path) -> None:
    page = chromium.new_page()
    page.goto(report.as_uri())
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
    page.close()


def test_the_first_stop_of_the_keyboard_skips_to_the_answer(chromium: Any, report: Path) -> None:
    page = chromium.new_page()
    page.goto(report.as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    headings = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(one => +one.tagName[1])")
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))
    assert page.evaluate("[...document.images].every(image => image.alt)")
    page.close()
