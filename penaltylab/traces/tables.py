"""The findings of a trace as tables for a notebook. Where the trace is simulated, every column of times says so."""

from statistics import median
from typing import TYPE_CHECKING

from penaltylab.traces.fold import fold
from penaltylab.traces.lint import lint
from penaltylab.traces.stalls import analyse
from penaltylab.traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


def check(trace: Trace) -> "pd.DataFrame":
    """What was read, and all that is missing, crooked or repaired in the file: to be seen before any figure from it."""
    import pandas as pd

    facts = {
        "file": trace.path,
        "device": trace.device.name,
        "simulated": trace.simulated,
        "events": trace.events,
        "GPU operations": len(trace.gpu),
        "Python frames": len(trace.frames),
    }
    rows = [*facts.items(), *(("warning", line) for line in lint(analyse(trace)))]
    return pd.DataFrame(rows, columns=["", "what was read"]).set_index("")


def places(trace: Trace, most: int = 12) -> "pd.DataFrame":
    """Where the host stood still: one row a line of the program, what took longest first."""
    import pandas as pd

    us = unit(trace)
    rows = [
        {
            "kind": group.kind,
            "where": group.where,
            "stalls": len(group.stalls),
            f"median {us}": round(group.median_us, 1),
            f"total {us}": round(group.total_us, 1),
            f"bubble {us}": round(group.bubble_us, 1),
            "copy": group.memory,
            "waited on": group.waited_on,
            "advice": group.advice,
        }
        for group in fold(analyse(trace).stalls)[:most]
    ]
    return pd.DataFrame(rows).set_index("kind") if rows else pd.DataFrame(rows)


def steps(trace: Trace, most: int = 12) -> "pd.DataFrame":
    """What a step of the loop loses at each place, the median over the steps in which it loses anything there."""
    import pandas as pd

    analysis = analyse(trace)
    us = unit(trace)
    lengths = (analysis.steps.end - analysis.steps.start).tolist()
    rows = []
    for group in fold(analysis.stalls)[:most]:
        lost = group.per_step()
        if lost and lengths:
            share = f"{median(lost) / median(lengths):.1%}"
            rows.append((group.kind, group.where, len(lost), round(median(lost), 1), share))
    columns = ["kind", "where", f"of {len(lengths)} steps", f"a step {us}", f"of {median(lengths or [0]):.1f} {us}"]
    return pd.DataFrame(rows, columns=columns).set_index("kind")


def unit(trace: Trace) -> str:
    """The unit of time of a trace's figures."""
    return "us, SIMULATED" if trace.simulated else "us"
