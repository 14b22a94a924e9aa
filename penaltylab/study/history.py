"""Upstream's history, measured: what the revisions of sglang changed on each decode path."""

from typing import TYPE_CHECKING, Any

from penaltylab.engine.run import decode
from penaltylab.params import revisions as known_revisions
from penaltylab.study.collect import Collector, median

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image

PATHS = ("normal", "eagle")
TRACED_STEPS = 16


def same_tokens(study: Collector, revisions: list[str], scenario: str = "churn") -> "pd.DataFrame":
    """Whether the revisions give the same tokens on each path while requests join and leave. Raises where they do not.

    A copy that is faster and wrong is not faster: this comes before any timing.
    """
    import pandas as pd

    rows = []
    for path in PATHS:
        runs = [decode(**study.with_changes(path=path, revision=name, scenario=scenario)) for name in revisions]
        for name, run in zip(revisions, runs, strict=True):
            if run.tokens != runs[0].tokens:
                raise RuntimeError(f"{path} path: {name} gives other tokens than {revisions[0]}")
            tokens = sum(map(len, run.tokens.values()))
            rows.append({"path": path, "revision": name, "requests": len(run.tokens), "tokens": tokens, "same": True})
    return pd.DataFrame(rows).set_index(["path", "revision"])


def step_times(study: Collector, path: str, revisions: list[str]) -> "pd.DataFrame":
    """Medians a step in us, profiler off, one row a revision; each run is kept with the study.

    The host's waits are in series: `waits` is their sum, and what is gained is `step`, not `stall`.
    """
    import pandas as pd

    rows = []
    for name in revisions:
        run = study.decode(f"{path} {name}", path=path, revision=name)
        waits = sum(values[run.params.warmup :] for values in run.wait_us.values())
        rows.append(
            {
                "revision": name,
                "step": run.median("step_us"),
                "in cumulate": run.median("cumulate_us"),
                "stall": run.median("stall_us"),
                "waits": median(waits),
                "tokens/s": run.tokens_per_s,
                "forward %": run.fwd_occupancy,
                "what it is": known_revisions()[name]["note"],
            }
        )
    frame = pd.DataFrame(rows).set_index("revision").rename_axis(columns=f"us a step, {study.device['name']}")
    return frame.round({"step": 0, "in cumulate": 0, "stall": 0, "waits": 0, "tokens/s": 0, "forward %": 1})


def timelines(study: Collector, path: str, revisions: list[str]) -> "Image":
    """A few steps of each revision on stacked stream timelines, from traces that are kept with the study."""
    from penaltylab.traces.timeline import plot_timelines

    steps: dict[str, Any] = {"steps": min(TRACED_STEPS, study.params.steps), "warmup": min(4, study.params.warmup)}
    traces = [study.record(f"{path}-{name}", path=path, revision=name, **steps) for name in revisions]
    figure = plot_timelines(traces)
    caption = f"The {path} path at {', '.join(revisions)}: where the host stalls. {study.device['name']}."
    return study.figure(f"{path}-timelines", figure, caption)
