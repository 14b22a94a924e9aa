"""The interactive timeline of a notebook: runs on one time axis, to zoom and to ask; a PNG where widgets are dead."""

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from penaltylab.errors import InputError
from penaltylab.traces.read import read_trace
from penaltylab.traces.trace import Trace
from penaltylab.widgets import pages
from penaltylab.widgets.assets import script, style
from penaltylab.widgets.perfetto import PUBLIC_UI, local_ui, trace_bytes
from penaltylab.widgets.runs import scene_of
from penaltylab.widgets.slices import pack

_PNG_WIDTH: Final = 960
_TOO_LARGE: Final = "This trace is too large for a tab: `penaltylab view` serves it."


def timeline(
    *runs: Any,
    labels: Sequence[str] | None = None,
    steps: tuple[int, int] | None = None,
    out: str | Path | None = None,
) -> "Timeline":
    """Show runs below one another on one time axis, each from the start of its own first step shown.

    The wheel, or w and s, zooms; dragging, or a and d, pans; f fits all, or the slice that was clicked; n and p go to
    the next and the previous stall. Pointing at a slice says what it is, and which line of Python called it.

    Args:
        runs: traces (a path, or what `read_trace` returns), folders of a study's run (all traces in it), or a `Decode`
            or `Params`, which is recorded again. Lists of these are taken apart.
        labels: a title for each; by default the file's name.
        steps: the first and the last step that it opens on; by default up to four from the middle of each run.
        out: where to write the timeline too: a page (.html) or a picture (.png).

    Returns:
        A widget. Where widgets are dead (an untrusted notebook, GitHub, a PDF) its output is a PNG of the same. In a
        trusted notebook that is opened again after its kernel has ended, JupyterLab shows neither: run the cell again.

    Raises:
        InputError: nothing to show, labels that do not match, steps that a run does not have, or `out` of another kind.
    """
    sources = [source for run in runs for source in _sources(run)]
    widget = Timeline()
    widget.show(sources, labels, steps)
    if out is not None:
        path = Path(out)
        if path.suffix == ".html":
            path.write_text(pages.page_html(sources, labels, steps), encoding="utf-8")
        elif path.suffix == ".png":
            path.write_bytes(widget.png())
        else:
            raise InputError(f"timeline: {path}: a timeline is written as .html or .png")
    return widget


class Timeline(anywidget.AnyWidget):
    """The widget that `timeline` returns; `show` puts other runs in its place."""

    _esm = script("widget.js")
    _css = style()
    scene = traitlets.Bytes().tag(sync=True)
    titles = traitlets.List(traitlets.Unicode()).tag(sync=True)
    public_ui = traitlets.Unicode(PUBLIC_UI).tag(sync=True)
    local_ui = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[list[Any], Sequence[str] | None, tuple[int, int] | None] = ([], None, None)
        self.on_msg(self._answer)

    def show(
        self,
        traces: Iterable[str | Path | Trace],
        labels: Sequence[str] | None = None,
        steps: tuple[int, int] | None = None,
    ) -> None:
        """Show these traces instead; arguments and errors as of `timeline`."""
        given = list(traces)
        loaded = [trace if isinstance(trace, Trace) else read_trace(trace) for trace in given]
        built = scene_of(loaded, labels, steps)
        self._shown = (loaded, labels, steps)
        with self.hold_sync():
            self.titles = [run.label for run in built.runs]
            self.scene = pack(built)

    def png(self) -> bytes:
        """The same runs as a picture."""
        return pages.picture(*self._shown)

    def _answer(self, _: Any, content: dict[str, Any], __: Any) -> None:
        """The page asks where Perfetto is, when it comes up, or for the trace of a run, whose button was clicked."""
        if content.get("ask") == "ui":
            self.local_ui = local_ui()
        elif content.get("ask") == "trace":
            self._hand_over(int(content["run"]))

    def _hand_over(self, run: int) -> None:
        try:
            found = trace_bytes(self._shown[0][run].path, self._shown[2])
        except InputError as error:
            self.send({"run": run, "error": str(error)})
            return
        if found is None:
            self.send({"run": run, "error": _TOO_LARGE})
        else:
            self.send({"run": run, "name": found[0]}, buffers=[found[1]])

    def __repr__(self) -> str:
        return f"Timeline of {', '.join(self.titles)}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return with_picture(super()._repr_mimebundle_(**kwargs), self.png())


def with_picture(bundle: Any, png: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a widget displays, and beside it the picture that is shown where widgets are dead."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
    picture = base64.b64encode(png).decode()
    return {**data, "image/png": picture}, {**metadata, "image/png": {"width": _PNG_WIDTH}}


def _sources(run: Any) -> list[str | Path | Trace]:
    """The traces that something stands for."""
    from penaltylab.params import Params

    if isinstance(run, list | tuple):
        return [source for one in run for source in _sources(one)]
    if isinstance(run, Trace):
        return [run]
    params = run if isinstance(run, Params) else getattr(run, "params", None)
    if isinstance(params, Params):
        from penaltylab.study.recording import record

        return [record(**params.asdict())]
    if not isinstance(run, str | Path):
        raise InputError(f"timeline: a {type(run).__name__} is not a trace, a folder of traces, or a Decode")
    if not Path(run).is_dir():
        return [run]
    folder = Path(run, "traces") if Path(run, "traces").is_dir() else Path(run)
    found: list[str | Path | Trace] = [*sorted([*folder.glob("*.json.gz"), *folder.glob("*.json")])]
    if not found:
        raise InputError(f"timeline: {run}: no trace (.json.gz or .json) in this folder")
    return found
