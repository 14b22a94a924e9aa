"""Stacked stream timelines: one panel a run, one time axis, the stalled host drawn so that nobody can miss it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penaltylab.errors import InputError
from penaltylab.traces import rows as kinds
from penaltylab.traces.fold import short_name
from penaltylab.traces.names import clean
from penaltylab.traces.read import read_trace
from penaltylab.traces.rows import Block, Panel, panel, summary
from penaltylab.traces.stalls import analyse
from penaltylab.traces.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 9.5
_LABEL_IN, _RIGHT_IN = 1.25, 0.34
_ROW_IN, _HEAD_IN, _FOOT_IN, _LEGEND_IN = 0.33, 0.56, 0.16, 0.56
_LETTER_IN = 0.075
_MOST_LETTERS = 200
_STALL, _DARK, _TEXT, _GREY = "#D55E00", "#1b1b1b", "#444444", "#8a8a8a"

# Colours of Okabe and Ito, told apart by colour-blind eyes; each differs from its neighbours in lightness or hatch too.
_STYLES: dict[int, dict[str, Any]] = {
    kinds.RUNNING: {"facecolor": "#c9c9c9", "edgecolor": "none"},
    kinds.STALL: {"facecolor": _STALL, "edgecolor": _DARK, "hatch": "////", "linewidth": 1.4},
    kinds.WAIT: {"facecolor": "white", "edgecolor": _GREY, "hatch": "....", "linewidth": 0.8},
    kinds.KERNEL: {"facecolor": "#0072B2", "edgecolor": "white", "linewidth": 0.4},
    kinds.H2D: {"facecolor": "#E69F00", "edgecolor": _DARK, "linewidth": 0.5},
    kinds.D2H: {"facecolor": "#CDEAFA", "edgecolor": _DARK, "linewidth": 0.5},
}
_TALL = {kinds.STALL: 0.9, kinds.H2D: 0.36, kinds.D2H: 0.36}
_SHIFT = {kinds.H2D: -0.2, kinds.D2H: 0.2}
_LEGEND = {
    kinds.RUNNING: "host runs",
    kinds.STALL: "host stalled by a copy",
    kinds.WAIT: "host waits for a result",
    kinds.KERNEL: "kernels",
    kinds.H2D: "copy to device (upper)",
    kinds.D2H: "copy to host (lower)",
}


def plot_timelines(
    traces: Sequence["str | Path | Trace"],
    labels: Sequence[str] | None = None,
    steps: tuple[int, int] | None = None,
    out: str | Path | None = None,
) -> "Figure":
    """Draw runs below one another on one time axis, each from the start of its own first step shown.

    Args:
        traces: paths or traces, one a panel.
        labels: a title for each; by default the file's name.
        steps: the first and the last step shown; by default up to four from the middle of each run. A trace without
            steps is shown around its longest stall.
        out: where to write the figure too (.png, .pdf, .svg).

    Returns:
        The matplotlib figure. It belongs to no window, so it needs no display.

    Raises:
        InputError: no trace, labels that do not match, or steps that a trace does not have.
    """
    from matplotlib.figure import Figure

    if not traces:
        raise InputError("plot_timelines: no trace given")
    if labels is not None and len(labels) != len(traces):
        raise InputError(f"plot_timelines: {len(labels)} labels for {len(traces)} traces")
    loaded = [trace if isinstance(trace, Trace) else read_trace(trace) for trace in traces]
    panels = [panel(analyse(trace), steps) for trace in loaded]
    longest = max(one.length for one in panels)
    heights = [_HEAD_IN + _ROW_IN * len(one.rows) + _FOOT_IN for one in panels]
    height = sum(heights) + _LEGEND_IN
    figure = Figure(figsize=(WIDTH_IN, height), facecolor="white")
    top = height
    for at, (one, tall) in enumerate(zip(panels, heights, strict=True)):
        top -= tall
        wide = 1 - (_LABEL_IN + _RIGHT_IN) / WIDTH_IN
        area = (_LABEL_IN / WIDTH_IN, (top + _FOOT_IN) / height, wide, _ROW_IN * len(one.rows) / height)
        axes = figure.add_axes(area)
        _draw(axes, one, longest, labels[at] if labels else Path(one.trace.path).name)
        axes.tick_params(labelbottom=at == len(panels) - 1)
    figure.axes[-1].set_xlabel(
        "time from the start of the first step shown, ms" if panels[0].marks else "time, ms", fontsize=9
    )
    _legend(figure, panels)
    if out is not None:
        figure.savefig(out, dpi=150)
    return figure


def _draw(axes: "Axes", one: Panel, longest: float, label: str) -> None:
    axes.set_xlim(-0.002 * longest / 1e3, longest * 1.002 / 1e3)
    axes.set_ylim(len(one.rows) - 0.5, -0.5)
    labels = [clean(row.label, _MOST_LETTERS) for row in one.rows]
    axes.set_yticks(range(len(one.rows)), labels, fontsize=8.5, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for at, text in one.marks:
        axes.axvline(at / 1e3, color=_TEXT, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
        _write(axes, at + 0.004 * longest, -0.56, text, fontsize=7, color=_TEXT, va="bottom")
    axes.axvline(one.length / 1e3, color=_TEXT, linewidth=0.8, zorder=0)
    for y, row in enumerate(one.rows):
        for block in row.blocks:
            _block(axes, block, y, longest)
    _write(axes, 0, 26, label, above=True, fontsize=10, fontweight="bold")
    _write(axes, 0, 15, summary(one), above=True, fontsize=8, color=_TEXT)
    if one.trace.simulated:
        box = {"boxstyle": "square,pad=0.25", "facecolor": _DARK, "edgecolor": "none"}
        axes.text(1.008, 0.5, "SIMULATED", transform=axes.transAxes, rotation=270, fontsize=6.5, fontweight="bold",
                  color="white", va="center", bbox=box)  # fmt: skip


def _write(axes: "Axes", x: float, y: float, text: str, above: bool = False, **style: Any) -> None:
    """Text at `x` us and row `y`, or `y` points above the panel; a dollar sign in it never starts mathematics."""
    text = clean(text, _MOST_LETTERS)
    if above:
        axes.annotate(text, (x, 1), (0, y), "axes fraction", "offset points", parse_math=False, **style)
    else:
        axes.text(x / 1e3, y, text, parse_math=False, clip_on=y >= 0, **style)


def _block(axes: "Axes", block: Block, y: float, longest: float) -> None:
    from matplotlib.patches import Rectangle

    tall = _TALL.get(block.sort, 0.62)
    y += _SHIFT.get(block.sort, 0.0)
    wide = max(block.us, longest / (900 if block.sort in (kinds.KERNEL, kinds.RUNNING) else 350))
    style = _STYLES[block.sort] | ({"edgecolor": "none"} if block.sort == kinds.KERNEL and not block.text else {})
    axes.add_patch(Rectangle((block.start / 1e3, y - tall / 2), wide / 1e3, tall, zorder=2 + block.sort % 3, **style))
    inches = wide / longest * (WIDTH_IN - _LABEL_IN - _RIGHT_IN)
    centred: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 9}
    middle = block.start + wide / 2
    if block.sort == kinds.STALL and inches > 0.14:
        text = f"STALLED {block.text}" if inches > 1.2 else block.text
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": _DARK, "linewidth": 0.6}
        _write(axes, middle, y, text, fontsize=8, fontweight="bold", bbox=box, **centred)
    elif block.sort == kinds.WAIT and inches > 0.8:
        box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        _write(axes, middle, y, f"waits {block.text}", fontsize=7.5, color=_TEXT, bbox=box, **centred)
    elif block.sort == kinds.KERNEL and inches > _LETTER_IN * min(len(block.text), 14):
        fits = int(inches / _LETTER_IN)
        name = short_name(block.text)
        text = name if len(name) <= fits else f"{name[: fits - 1]}…"
        _write(axes, middle, y, text, fontsize=7.5, color="white", **centred)


def _legend(figure: "Figure", panels: list[Panel]) -> None:
    from matplotlib.patches import Patch

    seen = {block.sort for one in panels for row in one.rows for block in row.blocks}
    handles = [Patch(**_STYLES[sort], label=text) for sort, text in _LEGEND.items() if sort in seen]
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize=8, frameon=False, handlelength=1.8,
                  columnspacing=1.6, handletextpad=0.5, borderaxespad=0.1)  # fmt: skip
