"""The timeline in a page without a kernel: a report, or a file of its own. Nothing is fetched, nothing can be injected.

All that comes from a trace stands in the page as base64, and is shown as text on a canvas or as `textContent`.
"""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penaltylab.traces.names import clean
from penaltylab.traces.timeline import plot_timelines
from penaltylab.traces.trace import Trace
from penaltylab.widgets.assets import script, style
from penaltylab.widgets.perfetto import PUBLIC_UI, trace_bytes
from penaltylab.widgets.runs import scene_of
from penaltylab.widgets.slices import pack

MOST_SLICES: Final = 60_000
MOST_TRACE_BYTES: Final = 400_000
"""Of a trace that travels in the page for its button "Open in Perfetto"; a larger one is cropped or has no button."""


def figure_html(
    scene: bytes, picture: bytes, caption: str = "", traces: Sequence[tuple[str, bytes] | None] = ()
) -> str:
    """A timeline as a `figure` element; the page needs `runtime_html()` once, anywhere.

    Args:
        scene: as `slices.pack` makes it.
        picture: a PNG of the same, shown in print, and where scripts do not run.
        caption: plain text.
        traces: for each run the name and the bytes of its trace (.json or .json.gz), None for no button.
    """
    parts = [f'<figure class="penaltylab-timeline" data-perfetto="{PUBLIC_UI}">']
    parts.append(f'<script type="text/plain" data-scene>{_base64(scene)}</script>')
    for run, trace in enumerate(traces):
        if trace is not None:
            name, content = trace
            named = html.escape(clean(name), quote=True)
            parts.append(f'<script type="text/plain" data-trace="{named}" data-run="{run}">{_base64(content)}</script>')
    told = html.escape(clean(caption, 1000), quote=True)
    parts.append(f'<img src="data:image/png;base64,{_base64(picture)}" alt="{told}">')
    parts.append(f"<figcaption>{told}</figcaption></figure>" if caption else "</figure>")
    return "\n".join(parts)


def runtime_html() -> str:
    """The style and the script that bring every timeline of a page to life."""
    return f'<style>\n{style()}</style>\n<script type="module">\n{script("page.js")}</script>'


def timeline_html(
    traces: Sequence[str | Path | Trace],
    labels: Sequence[str] | None = None,
    steps: tuple[int, int] | None = None,
    caption: str = "",
    png: bytes | None = None,
) -> str:
    """A timeline of these traces as a `figure`, arguments as of `timeline`; the page needs `runtime_html()` once.

    `png` is a picture of the same, if there is one already.

    Each run whose trace is a file has a button "Open in Perfetto", with the trace in the page; a large one is cropped
    to the stretch that the timeline opens on.
    """
    scene = pack(scene_of(traces, labels, steps, MOST_SLICES))
    given = [None if isinstance(trace, Trace) else trace_bytes(trace, steps, MOST_TRACE_BYTES) for trace in traces]
    return figure_html(scene, png or picture(traces, labels, steps), caption, given)


def standalone_html(
    traces: Sequence[str | Path | Trace],
    labels: Sequence[str] | None = None,
    steps: tuple[int, int] | None = None,
    caption: str = "",
) -> str:
    """`timeline_html` that is whole by itself, to put anywhere in a page."""
    return f"{timeline_html(traces, labels, steps, caption)}\n{runtime_html()}"


def page_html(
    traces: Sequence[str | Path | Trace], labels: Sequence[str] | None = None, steps: tuple[int, int] | None = None
) -> str:
    """A whole document with one timeline."""
    title = html.escape(clean(", ".join(labels) if labels else "Stream timelines"), quote=True)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        "<style>body { margin: 1rem auto; max-width: 1400px; padding: 0 1rem; } img { max-width: 100%; }</style>\n"
        f"{standalone_html(traces, labels, steps)}\n</html>\n"
    )


def picture(traces: Sequence[str | Path | Trace], labels: Sequence[str] | None, steps: tuple[int, int] | None) -> bytes:
    """The same runs as a PNG."""
    file = io.BytesIO()
    plot_timelines(traces, labels, steps).savefig(file, format="png", dpi=144)
    return file.getvalue()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
