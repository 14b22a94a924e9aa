"""Upstream's history, measured: what the revisions of sglang changed on each decode path."""

from typing import TYPE_CHECKING, Any

import msgspec

from penaltylab.engine.run import Decode, decode
from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.collect import Collector
from penaltylab.study.metrics import median

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

    arms = {f"{path} {name}": {"path": path, "revision": name} for name in revisions}
    runs, measurement = study.compare(arms)
    rows = []
    for arm, changes in arms.items():
        numbers = {
            "step": median([run.median("step_us") for run in runs[arm]]),
            "in cumulate": median([run.median("cumulate_us") for run in runs[arm]]),
            "stall": median([run.median("stall_us") for run in runs[arm]]),
            "waits": median([_waits(run) for run in runs[arm]]),
            "tokens/s": median([run.tokens_per_s for run in runs[arm]]),
            "forward %": median([run.fwd_occupancy for run in runs[arm]]),
        }
        change = "" if arm == measurement.baseline else measurement.against_baseline(arm).text()
        rows.append({"revision": changes["revision"], **numbers, "step, against the first": change})
    frame = pd.DataFrame(rows).set_index("revision").rename_axis(columns=f"us a step, {study.label}")
    whole = dict.fromkeys(["step", "in cumulate", "stall", "waits", "tokens/s"], "Int64")
    return frame.round(dict.fromkeys(whole, 0) | {"forward %": 1}).astype(whole)


def _waits(run: Decode) -> float:
    """The median over steps of all host waits together."""
    return median(sum(values[run.params.warmup :] for values in run.wait_us.values()))


def timelines(study: Collector, path: str, revisions: list[str]) -> "Image":
    """A few steps of each revision on stacked stream timelines, from traces that are kept with the study."""
    steps: dict[str, Any] = {"steps": min(TRACED_STEPS, study.params.steps), "warmup": min(4, study.params.warmup)}
    traces = [study.record(f"{path}-{name}", path=path, revision=name, **steps) for name in revisions]
    labels = [f"{path} path, {_title(name)}" for name in revisions]
    caption = f"The {path} path at {', '.join(revisions)}: where the host stalls. {study.label}."
    return study.timelines(f"{path}-timelines", traces, labels, caption)


def _title(revision: str) -> str:
    """A pull request by its number, a release by its name."""
    return f"sglang after #{revision}" if revision.isdigit() else revision


def released(study: Collector, versions: list[str]) -> "pd.DataFrame":
    """Released sglang code beside ours with that release's settings, in us a step; each run is kept with the study.

    Where the releases cannot be fetched, the table says so instead.
    """
    import pandas as pd

    from penaltylab.upstream import compare

    try:
        rows = compare(versions, **study.with_changes())
    except InputError as error:
        return pd.DataFrame({"not run here": [str(error)]})
    for row in rows:
        params = Params.of(**study.with_changes(path=row.path, revision=row.revision))
        study.keep(
            f"{row.path} sglang {row.version}" if row.arm == "sglang" else f"{row.path} ours as {row.revision}",
            params,
            step_us_median=row.step_us,
            cumulate_us_median=row.cumulate_us,
            stall_us_median=row.stall_us,
            wait_us_median=row.wait_us,
            hazards=row.hazards,
        )
    columns = {
        "step_us": "step",
        "cumulate_us": "in cumulate",
        "stall_us": "stall",
        "difference_percent": "step, % off",
    }
    frame = pd.DataFrame([msgspec.structs.asdict(row) for row in rows]).set_index(["version", "path", "arm"])
    frame = frame[[*columns, "tokens_equal"]].rename(columns=columns).round(1)
    return frame.rename_axis(columns=f"us a step, {study.label}")
