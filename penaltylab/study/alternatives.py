"""What there is beyond #28500: the steps of each alternative, and what handing over and applying cost by themselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penaltylab.bench import apply, host
from penaltylab.bench.apply import Case
from penaltylab.emu.machine import load_machine
from penaltylab.engine.run import decode
from penaltylab.study.collect import Collector
from penaltylab.study.metrics import mean, median

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image

PATHS = ("normal", "eagle")
CHURN = {"scenario": "churn", "batch_size": 4}
COPIES = ("blocking", "pageable_async", "pinned_async", "pinned_ring", "device_resident")
EXACT = "exact, resident"
ARMS: dict[str, dict[str, Any]] = {h2d: {"h2d": h2d} for h2d in COPIES} | {
    EXACT: {"accounting": "exact", "h2d": "device_resident", "apply": "auto"}
}
AT = 512  # the history at which sizes are compared
CASES = (
    *(Case("additive", 64, 32_000, history) for history in (16, AT, 2_048, 8_192)),
    *(Case("additive", batch, vocab, AT) for batch, vocab in ((1, 151_936), (8, 128_256), (256, 128_256))),
    *(Case("repetition", batch, vocab, AT) for batch, vocab in ((8, 128_256), (64, 32_000))),
)


def same_tokens(study: Collector) -> "pd.DataFrame":
    """Whether all ways to bring the tokens, and to apply the penalties, give the same tokens. Raises where they do not.

    Requests join and leave four slots meanwhile. Exact accounting counts other tokens, by design: it is compared with
    itself.
    """
    import pandas as pd

    upstream = {f"h2d {h2d}": ARMS[h2d] for h2d in COPIES} | {"apply sparse": {"apply": "sparse"}}
    exact = {f"{EXACT}, apply {how}": {**ARMS[EXACT], "apply": how} for how in ("dense", "sparse")}
    rows = []
    for path in PATHS:
        for accounting, ways in {"upstream": upstream, "exact": exact}.items():
            runs = [decode(**study.with_changes(path=path, **CHURN, **changes)) for changes in ways.values()]
            for name, run in zip(ways, runs, strict=True):
                if run.tokens != runs[0].tokens:
                    raise RuntimeError(f"{path} path: {name} gives other tokens than {next(iter(ways))}")
            tokens = sum(map(len, runs[0].tokens.values()))
            rows.append({"path": path, "accounting": accounting, "ways": len(ways), "tokens": tokens, "same": True})
    return pd.DataFrame(rows).set_index(["path", "accounting"])


def step_times(study: Collector, path: str) -> "pd.DataFrame":
    """Medians a step in us of each alternative on `path`, profiler off; each run is kept with the study."""
    import pandas as pd

    arms = {f"{path} {name}": {"path": path, **changes} for name, changes in ARMS.items()}
    runs, measurement = study.compare(arms)
    rows = []
    for name, arm in zip(ARMS, arms, strict=True):
        after = slice(study.params.warmup, None)
        numbers = {
            "step": median([run.median("step_us") for run in runs[arm]]),
            "prepare": median([run.median("prepare_us") for run in runs[arm]]),
            "stall": median([run.median("stall_us") for run in runs[arm]]),
            "waits": median([median(sum(values[after] for values in run.wait_us.values())) for run in runs[arm]]),
            "copies": mean([mean(run.copies[after]) for run in runs[arm]]),
            "forward %": median([run.fwd_occupancy for run in runs[arm]]),
        }
        change = "" if arm == measurement.baseline else measurement.against_baseline(arm).text()
        rows.append({path: name, **numbers, "step, against the first": change})
    whole = dict.fromkeys(["step", "prepare", "stall", "waits"], "Int64")
    frame = pd.DataFrame(rows).set_index(path).rename_axis(columns=f"us a step, {study.label}")
    return frame.round(dict.fromkeys(whole, 0) | {"copies": 1, "forward %": 1}).astype(whole)


def host_costs(study: Collector, batches: Sequence[int] = host.BATCHES) -> "pd.DataFrame":
    """What preparing the copy costs the host, by batch: upstream's list and tensor, and the ring's gather by slot."""
    import pandas as pd

    rows = host.run(batches)
    for row in rows:
        _keep(study, f"host, batch {row['case']['batch']}", row, "upstream_us", "ours_us", "ratio", "bytes")
    frame = pd.DataFrame([{"batch": row["case"]["batch"], **row} for row in rows]).set_index("batch")
    frame = frame.rename(columns={"upstream_us": "upstream", "ours_us": "ours"})[["upstream", "ours", "ratio", "bytes"]]
    frame = frame.round({"upstream": 2, "ours": 2, "ratio": 0}).astype({"ratio": int})
    return frame.rename_axis(columns=_measured_on(rows))


def apply_costs(study: Collector, cases: Sequence[Case] = CASES) -> "pd.DataFrame":
    """What a step's penalties cost by themselves: the dense passes, and ours, which chooses; bit-equal is asserted.

    `launch` is what a launch does, materialise and apply; `count` is what it takes to count a token, and `step ratio`
    is of both together.
    """
    import pandas as pd

    rows = apply.run(cases, rounds=7, at_least_us=2_000)
    shown = []
    for row in rows:
        case = _case(row)
        numbers = [name for name, value in row.items() if isinstance(value, int | float)]
        _keep(study, f"apply {' '.join(map(str, case.values()))}", row, *numbers)
        shown.append(
            {
                **case,
                "dense, launch": row["upstream_us"],
                "ours, launch": row["ours_us"],
                "ratio": row["ratio"],
                "dense, count": row["upstream_count_us"],
                "ours, count": row["ours_count_us"],
                "step ratio": row["step_ratio"],
                "chosen": row["chosen"],
            }
        )
    frame = pd.DataFrame(shown).set_index(["kind", "batch", "vocab", "history"]).round(1)
    frame.attrs["rows"] = rows
    return frame.rename_axis(columns=_measured_on(rows))


def on_a_gpu(study: Collector, costs: "pd.DataFrame") -> "pd.DataFrame":
    """The cases of `apply_costs` on the GPU that `machine` describes, launch and count together. Not a measurement.

    `bytes` is what the operators read and write over the memory's bandwidth, `launches` how many they are times what
    one costs the host: a step takes at least the larger of both.
    """
    import pandas as pd

    machine = load_machine(study.params.machine)
    shown = []
    for row in costs.attrs["rows"]:
        numbers: dict[str, Any] = {}
        for name, side in (("dense", "upstream"), ("ours", "ours")):
            moved, operators = (row[f"{side}_{of}"] + row[f"{side}_count_{of}"] for of in ("bytes", "operators"))
            numbers[f"{name}, MB"] = moved / 1e6
            numbers[f"{name}, peak MB"] = row[f"{side}_peak"] / 1e6
            numbers[f"{name}, bytes"] = moved / machine.memory_bytes_per_us
            numbers[f"{name}, launches"] = operators * machine.launch_us
        shown.append({**_case(row), **numbers})
    title = f"us, not a measurement: {machine.memory_bytes_per_us / 1e6:g} TB/s, {machine.launch_us:g} us a launch"
    frame = pd.DataFrame(shown).set_index(["kind", "batch", "vocab", "history"]).round(1)
    return frame.rename_axis(columns=title)


def plot_steps(study: Collector, tables: "list[pd.DataFrame]") -> "Image":
    """The tables of `step_times`: the step of each alternative, and how much of it the host is stalled in the copy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for panel, table in zip(panels, tables, strict=True):
        places = range(len(table))
        bars = panel.barh(places, table["step"].astype(float), color="lightsteelblue", label="step")
        panel.barh(places, table["stall"].astype(float).fillna(0), 0.35, color="tab:red", label="stalled in the copy")
        panel.bar_label(bars, fmt="%.0f us", fontsize=8, padding=3)
        panel.set(xlim=(0, 1.18 * float(table["step"].max())), xlabel="us a step", title=f"{table.index.name} path")
        panel.set_yticks(places, table.index)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(f"A decode step by how the last tokens reach the penalties  ({study.label})")
    caption = "The median step of each alternative, and how long the host stalls in its copy."
    return study.figure("steps", figure, f"{caption} {study.label}.")


def plot_apply(study: Collector, costs: "pd.DataFrame") -> "Image":
    """The table of `apply_costs`: additive penalties by history length, and by batch and vocabulary."""
    from matplotlib.figure import Figure

    rows = costs.reset_index()
    rows = rows[rows["kind"] == "additive"]
    for side in ("dense", "ours"):
        rows[side] = rows[f"{side}, launch"] + rows[f"{side}, count"]
    batch, vocab = int(rows["batch"].iloc[0]), int(rows["vocab"].iloc[0])
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    lengths = rows[(rows["batch"] == batch) & (rows["vocab"] == vocab)].set_index("history").sort_index()
    left.plot(lengths.index, lengths["dense"], "o-", color="tab:red", label="dense")
    left.plot(lengths.index, lengths["ours"], "s-", color="tab:green", label="ours")
    left.plot(lengths.index, lengths["ours, launch"], "s:", color="tab:green", label="ours, without counting")
    left.set(xscale="log", yscale="log", xlabel="history (tokens)", title=f"batch {batch}, vocabulary {vocab:,}")
    left.set_xticks(lengths.index, [f"{length:,}" for length in lengths.index])
    left.set(ylabel="us a step", ylim=(None, 3 * rows["dense"].max()))
    sizes = rows[rows["history"] == AT].sort_values("dense")
    for shift, side, colour in ((-0.2, "dense", "tab:red"), (0.2, "ours", "tab:green")):
        bars = right.bar([place + shift for place in range(len(sizes))], sizes[side], 0.38, color=colour, label=side)
        right.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    names = [f"{rows} x {columns:,}" for rows, columns in zip(sizes["batch"], sizes["vocab"], strict=True)]
    right.set_xticks(range(len(sizes)), names, fontsize=8)
    right.set(xlabel="batch x vocabulary", title=f"history {AT}")
    for panel in (left, right):
        panel.minorticks_off()
        panel.grid(axis="y", alpha=0.25)
        panel.legend(fontsize=8)
    on = str(costs.columns.name).removeprefix("us, ")
    figure.suptitle(f"Additive penalties of one step, counted, materialised and applied\n{on}", fontsize=11)
    caption = "What a step's additive penalties cost: dense passes over the vocabulary, and the history's ids alone."
    return study.figure("apply", figure, f"{caption} {on}.")


def _case(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row["case"][name] for name in ("kind", "batch", "vocab", "history")}


def _keep(study: Collector, arm: str, row: dict[str, Any], *names: str) -> None:
    """A row of a bench beside the study's runs; its numbers say on what they were measured."""
    study.keep(arm, study.params, metrics={f"{name}, {row['case']['on']}": row[name] for name in names})


def _measured_on(rows: list[dict[str, Any]]) -> str:
    return f"us, {rows[0]['case']['on']}, one thread; against {rows[0]['against']}"
