"""Where not stalling gains something, and where it does not: barrier, forward time, batch, path and strategy."""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from penaltylab.engine.run import Decode, decode
from penaltylab.study.collect import Collector
from penaltylab.study.metrics import median
from penaltylab.study.stats import SMALLEST

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image
    from matplotlib.axes import Axes

PATHS = ("normal", "eagle")
BARRIERS = ("coarse", "read_done", "none")
BATCHES = (1, 16)
FORWARDS_MS = (0.5, 1.0, 2.5, 8.0)
STRATEGIES = ("pinned_async", "device_resident")
BASELINE = "blocking"
STYLES = {"pinned_async": ("#1764ab", "o", 7), "device_resident": ("#c2571a", "D", 3)}
NO_GAIN = 100 * SMALLEST


def same_tokens(study: Collector) -> "pd.DataFrame":
    """Whether every strategy gives the tokens of the blocking copy, at each barrier. Raises where one does not."""
    import pandas as pd

    rows = []
    for path, barrier in itertools.product(PATHS, BARRIERS[:2]):
        given = study.with_changes(path=path, barrier=barrier, scenario="churn", batch_size=2, steps=10, warmup=4)
        tokens = {name: decode(**given | {"h2d": name}).tokens for name in (BASELINE, *STRATEGIES)}
        for name in STRATEGIES:
            if tokens[name] != tokens[BASELINE]:
                raise RuntimeError(f"{path} path, {barrier} barrier: {name} gives other tokens than {BASELINE}")
        count = sum(map(len, tokens[BASELINE].values()))
        rows.append({"path": path, "barrier": barrier, "tokens": count, "same": True})
    return pd.DataFrame(rows).set_index(["path", "barrier"])


def step_times(study: Collector) -> "pd.DataFrame":
    """A row a cell and strategy: step time in us, the gain over the blocking copy in percent and its bound.

    The bound, from the blocking run: a step saves at most the time C it spends in the copy's section, and at most what
    can be done side by side, the lesser of the host's own work H and the device's D; and it cannot become shorter than
    the greater. So the gain is at most min(C, H, D) / max(H, D). Each run is kept with the study.
    """
    import pandas as pd

    rows = []
    for path, barrier, batch in itertools.product(PATHS, BARRIERS, BATCHES):
        cells = {forward: _compare(study, path, barrier, batch, forward) for forward in FORWARDS_MS}
        longest = cells[FORWARDS_MS[-1]]["device_resident"]["step"]
        beside_us = longest - 1e3 * FORWARDS_MS[-1]  # what the device does in a step beside the forward
        for forward, cell in cells.items():
            host, device = cell[BASELINE]["host"], 1e3 * forward + beside_us
            place = {"path": path, "barrier": barrier, "batch": batch, "forward ms": forward}
            bound = 100 * min(cell[BASELINE]["in the copy"], host, device) / max(host, device)
            for strategy in STRATEGIES:
                rows.append(place | {"strategy": strategy, "bound %": bound, **cell[strategy]})
    frame = pd.DataFrame(rows).set_index(["path", "barrier", "batch", "forward ms", "strategy"])
    return frame.rename_axis(columns=f"us a step, {study.label}")


def _compare(study: Collector, path: str, barrier: str, batch: int, forward: float) -> dict[str, dict[str, Any]]:
    steps = {"steps": 9, "warmup": 6} if study.modelled else {"steps": 40, "warmup": 8}
    common: dict[str, Any] = {"path": path, "barrier": barrier, "batch_size": batch, "forward_ms": forward, **steps}
    place = f"{path} {barrier} batch {batch} forward {forward:g} ms"
    arms = {f"{place} {name}": common | {"h2d": name} for name in (BASELINE, *STRATEGIES)}
    runs, measurement = study.compare(arms)
    found = {}
    for arm, changes in arms.items():
        against = measurement.against_baseline(arm) if arm != measurement.baseline else None
        found[changes["h2d"]] = {
            "step": median([run.median("step_us") for run in runs[arm]]),
            "in the copy": median([run.median("cumulate_us") for run in runs[arm]]),
            "host": median([_host_us(run) for run in runs[arm]]),
            "gain %": 100 * (1 / against.ratio - 1) if against else 0.0,
            "verdict": against.verdict if against else "",
        }
    return found


def _host_us(run: Decode) -> float:
    """The host's own work in a step: the step less all its waits."""
    waits = sum(run.wait_us.values(), start=np.zeros_like(run.step_us))
    return median((run.step_us - waits)[run.params.warmup :])


def summary(study: Collector, table: "pd.DataFrame") -> "pd.DataFrame":
    """The largest gain at each path and barrier and where it is, and how many cells gain nothing."""
    import pandas as pd

    rows = []
    for path, barrier in itertools.product(PATHS, BARRIERS):
        cells = _cells(table, path, barrier)
        batch, forward, strategy = cells.index.to_list()[int(cells["gain %"].argmax())]
        where = f"batch {batch}, forward {forward:g} ms, {strategy}"
        nothing = int((cells["gain %"].abs() < NO_GAIN).sum())
        rows.append(
            {
                "path": path,
                "barrier": barrier,
                "largest gain %": cells["gain %"].max(),
                "at": where if cells["gain %"].max() >= NO_GAIN else "nowhere",
                f"cells that gain less than {NO_GAIN:g} %": f"{nothing} of {len(cells)}",
            }
        )
    frame = pd.DataFrame(rows).set_index(["path", "barrier"]).round(1)
    return frame.rename_axis(columns=study.label)


def _cells(table: "pd.DataFrame", path: str, barrier: str) -> "pd.DataFrame":
    levels = table.index.get_level_values
    return table[(levels("path") == path) & (levels("barrier") == barrier)].droplevel(["path", "barrier"])


def plot(study: Collector, table: "pd.DataFrame") -> "Image":
    """Small multiples of `step_times`, a panel a path and barrier, with the bound; what gains nothing is hollow."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(len(PATHS), len(BARRIERS), sharex=True, sharey=True)
    for row, path in zip(panels, PATHS, strict=True):
        for panel, barrier in zip(row, BARRIERS, strict=True):
            _panel(panel, _cells(table, path, barrier))
            racing = " (a race: a control)" if barrier == "none" else ""
            panel.set_title(f"{path} path, barrier {barrier}{racing}", fontsize=10)
        row[0].set_ylabel(f"gain over {BASELINE} (%)")
    for panel in panels[-1]:
        panel.set_xlabel("forward (ms)")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"Where is the gain?  {study.label}")
    caption = "The gain of a step over the blocking copy by forward time; grey: predicted bound, hollow: no gain."
    return study.figure("gain-map", figure, f"{caption} {study.label}.")


def _panel(panel: "Axes", cells: "pd.DataFrame") -> None:
    panel.axhspan(-NO_GAIN, NO_GAIN, color="#8a94a0", alpha=0.35, linewidth=0)
    for batch, style, aside in zip(BATCHES, ("-", "--"), (0.92, 1.08), strict=True):
        bound = _series(cells, "bound %", batch, STRATEGIES[0])
        panel.fill_between(*bound, color="#8a94a0", alpha=0.12, linewidth=0)
        panel.plot(*bound, style, color="#8a94a0", linewidth=1, label=f"predicted bound, batch {batch}")
        for strategy, (colour, marker, size) in STYLES.items():
            x, y = _series(cells, "gain %", batch, strategy)
            panel.plot(x, y, style, color=colour, linewidth=1, zorder=2)
            label = f"{strategy}, batch {batch}"
            for forward, gain in zip(x, y, strict=True):
                fill = colour if abs(gain) >= NO_GAIN else "white"
                shape: dict[str, Any] = {"marker": marker, "markersize": size, "markerfacecolor": fill}
                panel.plot(forward * aside, gain, color=colour, linestyle=style, linewidth=1, label=label, **shape)
                label = "_"
    if cells["gain %"].abs().max() < NO_GAIN:
        panel.text(0.5, 0.6, "no gain anywhere", transform=panel.transAxes, ha="center", color="#56636f")
    panel.set_xscale("log")
    panel.set_xticks(FORWARDS_MS, [f"{forward:g}" for forward in FORWARDS_MS])
    panel.minorticks_off()
    panel.grid(alpha=0.25)


def _series(cells: "pd.DataFrame", column: str, batch: int, strategy: str) -> tuple[list[float], list[float]]:
    found = cells[column].xs((batch, strategy), level=("batch", "strategy"))
    return found.index.to_list(), found.to_list()


def acceptance(study: Collector) -> "pd.DataFrame":
    """The speculative path by accept rate: how long a round takes and how many tokens a second that makes."""
    import pandas as pd

    rows = []
    for rate in (0.3, 0.6, 0.9):
        common: dict[str, Any] = {"path": "eagle", "accept_rate": rate, "barrier": "coarse"}
        common |= {"steps": 16, "warmup": 6} if study.modelled else {}
        arms = {f"eagle accepting {rate:g} {name}": common | {"h2d": name} for name in (BASELINE, STRATEGIES[0])}
        runs, measurement = study.compare(arms)
        before, after = (runs[arm] for arm in arms)
        rows.append(
            {
                "accept rate": rate,
                "tokens a round": float(after[0].accept_lens[after[0].params.warmup :].mean()),
                f"tokens/s, {BASELINE}": median([run.tokens_per_s for run in before]),
                f"tokens/s, {STRATEGIES[0]}": median([run.tokens_per_s for run in after]),
                "step": measurement.against_baseline(list(arms)[1]).text(),
            }
        )
    return pd.DataFrame(rows).set_index("accept rate").round(2).rename_axis(columns=study.label)
