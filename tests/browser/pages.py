"""What the tests of the timeline do to a page: open it and listen, ask the timeline, point, zoom, press."""

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

SIZE = {"width": 1400, "height": 900}
_TIMELINE = "document.querySelectorAll('.penaltylab-root')[{at}].parentElement.penaltylab"


@dataclass
class Opened:
    """A page with what it complained of and what it asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, expression: str, at: int = 0) -> Any:
        """The value of an expression in which `timeline` is the timeline number `at` of the page."""
        return self.page.evaluate(f"() => {{ const timeline = {_TIMELINE.format(at=at)}; return {expression}; }}")

    def range(self) -> tuple[float, float]:
        """The stretch of time on screen, us."""
        begin, end = self.ask("[timeline.view.from, timeline.view.to]")
        return begin, end

    def place(self, run: int, lane: str, time: float, row: int = 0) -> tuple[float, float]:
        """Where on the page a time of a lane is."""
        canvas = self.page.query_selector(".penaltylab-canvas").bounding_box()
        x, y = self.ask(
            f"(({{bands}}) => {{ const band = bands.find((one) => one.lane.label === {lane!r});"
            f" return [timeline.view.x({time}), band.y + band.row * ({row} + 0.5)]; }})(timeline.layout.runs[{run}])"
        )
        return canvas["x"] + x, canvas["y"] + y

    def point(self, run: int, lane: str, time: float, row: int = 0) -> str:
        """Points at a time of a lane; what the card says, empty without one."""
        x, y = self.place(run, lane, time, row)
        self.page.mouse.move(x - 7, y)
        self.page.mouse.move(x, y)
        return self.card()

    def card(self) -> str:
        card = self.page.query_selector(".penaltylab-card")
        return str(card.inner_text()) if card.is_visible() else ""

    def settle(self) -> None:
        """Waits until what was asked for is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def colours(self, run: int, lane: str) -> Counter[str]:
        """The pixels of a lane by colour."""
        y, height, left, width = self.ask(
            f"(({{bands}}) => {{ const band = bands.find((one) => one.lane.label === {lane!r});"
            f" return [band.y, band.height, timeline.view.left, timeline.view.width]; }})(timeline.layout.runs[{run}])"
        )
        with Image.open(io.BytesIO(self.page.locator(".penaltylab-canvas").screenshot())) as seen:
            area = seen.convert("RGB").crop((int(left), int(y), int(left + width), int(y + height)))
            return Counter({f"#{r:02x}{g:02x}{b:02x}": count for count, (r, g, b) in area.getcolors(1 << 20)})


@contextmanager
def opened(chromium: Any, address: str | Path, wait: str = ".penaltylab-live", **context: Any) -> Iterator[Opened]:
    """A new page of its own context at an address or a file."""
    made = chromium.new_context(viewport=SIZE, **context)
    try:
        found = Opened(made.new_page())
        listen(found)
        found.page.goto(address.as_uri() if isinstance(address, Path) else address)
        if wait:
            found.page.wait_for_selector(wait, timeout=20_000)
            if context.get("java_script_enabled", True):
                found.settle()
        yield found
    finally:
        made.close()


def listen(found: Opened) -> None:
    """Notes what a page complains of and asks for."""
    page = found.page
    page.on("console", lambda said: found.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (found.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: found.requests.append(request.url[:80]))
