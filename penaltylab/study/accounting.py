"""What overlap and speculation do to the penalties: what is counted, which tokens differ, which minimum is overshot."""

from typing import TYPE_CHECKING, Any

import numpy as np

from penaltylab.engine.run import Decode, decode
from penaltylab.engine.workload import make_requests
from penaltylab.params import Params
from penaltylab.study.collect import Collector
from penaltylab.study.metrics import metrics
from penaltylab.study.observed import Observed, observe
from penaltylab.study.plain import PlainDecoder

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image

EXACT = {"accounting": "exact"}


def check_against_each_alone(study: Collector, rates: list[float]) -> "pd.DataFrame":
    """Whether exact accounting gives each request the tokens it has when decoded alone, by dictionaries, on the host.

    Requests join and leave four slots meanwhile; on eagle at each acceptance rate, so that speculation is shown to be
    lossless.
    Raises RuntimeError where one token differs.
    """
    import pandas as pd

    arms: dict[str, dict[str, Any]] = {"normal": {"path": "normal"}}
    arms |= {f"eagle, acceptance {rate:g}": {"path": "eagle", "accept_rate": rate} for rate in rates}
    rows = []
    for name, changes in arms.items():
        run = decode(**study.with_changes(scenario="churn", batch_size=4, **EXACT, **changes))
        plain = PlainDecoder(run.params)
        for req in make_requests(run.params):
            tokens = run.tokens[req.rid]
            if tokens != plain.decode(req, len(tokens)):
                raise RuntimeError(f"{name}: request {req.rid} has other tokens than decoded alone")
        rows.append({"exact": name, "requests": len(run.tokens), "tokens": _total(run), "same as alone": True})
    return pd.DataFrame(rows).set_index("exact")


def by_acceptance(study: Collector, rates: list[float]) -> "pd.DataFrame":
    """What upstream's accounting counts of what was generated, and how far its tokens are from the exact ones.

    `counted %` is the effective frequency penalty against the nominal one: the share of a request's tokens before its
    last that the penalizers were told, read from what they were told. Each run is kept with the study.
    """
    import pandas as pd

    exact = _observe(study, "exact", **EXACT)
    arms: list[tuple[str, dict[str, Any]]] = [("normal, no overlap", {"overlap": False}), ("normal", {})]
    arms += [("eagle", {"path": "eagle", "accept_rate": rate}) for rate in rates]
    rows = []
    for name, changes in arms:
        acceptance = changes.get("accept_rate", "")
        seen = _observe(study, f"upstream, {name} {acceptance}".strip(), **changes)
        accepted = seen.run.accept_lens[seen.run.accept_lens > 0]
        rows.append(
            {
                "path": name,
                "acceptance": acceptance,
                "tokens a launch": float(accepted.mean()) if accepted.size else 1.0,
                "counted %": 100 * seen.share_counted(),
                "exact counts %": 100 * exact.share_counted(),
                **_differences(seen.run, exact.run),
            }
        )
    frame = pd.DataFrame(rows).set_index(["path", "acceptance"])
    frame = frame.round({"tokens a launch": 2, "counted %": 1, "exact counts %": 1})
    return frame.rename_axis(columns=f"upstream's accounting, {study.label}")


def minimum_lengths(study: Collector, rates: list[float], scenario: str = "stops") -> "pd.DataFrame":
    """How long requests become that ask for a minimum, where a third of all tokens would end them.

    In a workload without overshoot the shortest has the minimum, plus one for the token that ends it.
    """
    import pandas as pd

    arms: dict[str, dict[str, Any]] = {"upstream, normal": {}}
    arms |= {f"upstream, eagle {rate:g}": {"path": "eagle", "accept_rate": rate} for rate in rates}
    arms |= {f"exact, eagle {rates[-1]:g}": {"path": "eagle", "accept_rate": rates[-1], **EXACT}}
    rows = []
    for name, changes in arms.items():
        run = study.decode(f"minimum, {name}", scenario=scenario, **changes)
        ended = [
            len(run.tokens[req.rid])
            for req in make_requests(run.params)
            if req.is_stop((run.tokens[req.rid] or [-1])[-1])
        ]
        asked = {req.sampling_params.min_new_tokens for req in make_requests(run.params)}
        lengths = {"shortest": min(ended), "median": np.median(ended), "longest": max(ended)} if ended else {}
        rows.append({"accounting, path": name, "asked": max(asked), "ended": len(ended), **lengths})
    return pd.DataFrame(rows).set_index("accounting, path").rename_axis(columns=f"tokens, {study.label}")


def plot_acceptance(study: Collector, table: "pd.DataFrame") -> "Image":
    """The table of `by_acceptance`: the effective penalty by acceptance, and the positions whose token differs."""
    from matplotlib.figure import Figure

    eagle, normal = table.loc["eagle"], table.loc["normal"].iloc[0]
    rates = eagle.index.astype(float)
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(rates, eagle["exact counts %"], "s-", color="tab:green", label="exact, either path")
    left.axhline(normal["counted %"], color="tab:blue", linestyle="--", label="upstream, normal path: one step late")
    left.plot(rates, eagle["counted %"], "o-", color="tab:red", label="upstream, eagle: last token only")
    for x, y, length in zip(rates, eagle["counted %"], eagle["tokens a launch"], strict=True):
        if length > 1.05:
            left.annotate(f"{length:.1f} a round", (x, y), (6, 4), textcoords="offset points", fontsize=8)
    left.set(ylim=(0, 108), ylabel="effective frequency penalty (% of nominal)", title="What is counted")
    left.legend(fontsize=8, loc="lower left")
    right.plot(rates, eagle["tokens that differ %"], "o-", color="tab:red", label="upstream, eagle")
    right.axhline(normal["tokens that differ %"], color="tab:blue", linestyle="--", label="upstream, normal path")
    right.axhline(0, color="tab:green", label="exact, either path")
    right.set(ylim=(-4, 108), ylabel="positions with another token than exact (%)", title="What comes out")
    right.legend(fontsize=8, loc="upper left")
    for panel in (left, right):
        panel.set(xlabel="acceptance rate of the drafts", xlim=(-0.06, 1.28), xticks=rates)
        panel.grid(alpha=0.25)
    figure.suptitle(f"Penalties under overlap and speculation  ({study.label})")
    caption = "Share of generated tokens that the frequency penalty counts, and share of positions whose token differs."
    return study.figure("effective-penalty", figure, f"{caption} {study.label}.")


def plot_minimum(study: Collector, table: "pd.DataFrame") -> "Image":
    """The table of `minimum_lengths`: from the shortest to the longest request of each arm, the median as a dot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 0.45 * len(table) + 1.6), layout="constrained")
    panel = figure.subplots()
    for place, (name, row) in enumerate(table.iterrows()):
        words = str(name).split()
        colour = "tab:green" if words[0] == "exact," else "tab:red" if "eagle" in words else "tab:blue"
        panel.hlines(place, row["shortest"], row["longest"], color=colour, linewidth=6, alpha=0.35)
        panel.plot(row["median"], place, "o", color=colour)
    panel.axvline(table["asked"].iloc[0], color="black", linestyle=(0, (1, 3)))
    panel.annotate("asked", (table["asked"].iloc[0], -0.6), (4, 0), textcoords="offset points", fontsize=8, va="center")
    panel.set_yticks(range(len(table)), table.index)
    panel.set(xlim=(0, None), ylim=(len(table) - 0.4, -0.9), xlabel="tokens of a request that a stop token ended")
    panel.grid(axis="x", alpha=0.25)
    panel.set_title(
        f"min_new_tokens: the shortest to the longest request, and the median  ({study.label})", fontsize=11
    )
    caption = "How long requests became that asked for a minimum length, shortest to longest, with the median."
    return study.figure("minimum-length", figure, f"{caption} {study.label}.")


def _observe(study: Collector, arm: str, **changes: Any) -> Observed:
    seen = observe(Params.of(**study.with_changes(**changes)))
    study.keep(arm, seen.run.params, **metrics(seen.run), metrics={"counted_share": seen.share_counted()})
    return seen


def _differences(run: Decode, exact: Decode) -> dict[str, Any]:
    """Positions with another token, as far as both runs go, and where a request has its first, in the median."""
    positions = different = 0
    firsts = []
    for rid, tokens in run.tokens.items():
        unlike = np.array([a != b for a, b in zip(tokens, exact.tokens[rid], strict=False)])
        positions, different = positions + len(unlike), different + int(unlike.sum())
        firsts += [int(unlike.argmax())] if unlike.any() else []
    return {
        "tokens that differ %": round(100 * different / positions, 1) if positions else float("nan"),
        "first at": float(np.median(firsts)) if firsts else "never",
        "requests that differ": len(firsts),
    }


def _total(run: Decode) -> int:
    return sum(map(len, run.tokens.values()))
