"""A sweep over revisions as a picture: upstream's history as a line of step times."""

from pathlib import Path
from typing import Any

from penaltylab.params import revisions
from penaltylab.study.records import Row
from penaltylab.study.summary import Arm, arms, controls

LINES = 8


def draw_history(folder: Path, rows: list[Row], swept: dict[str, Any]) -> None:
    """Write `figures/history.png`, if `swept`, the names that the sweep varied, has the revision among them."""
    if "revision" not in swept:
        return
    from matplotlib.figure import Figure

    lines: dict[str, list[Arm]] = {}
    for arm in arms(row for row in rows if row.status == "ok"):
        others = {name: arm.rows[0].params[name] for name in swept if name != "revision"}
        lines.setdefault(", ".join(f"{name} {value}" for name, value in others.items()) or "step", []).append(arm)
    if not lines:
        return
    names = [name for name in revisions() if any(_revision(arm) == name for found in lines.values() for arm in found)]
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panel = figure.subplots()
    for label, found in list(lines.items())[:LINES]:
        steps = {_revision(arm): arm.median("step_us_median") for arm in found}
        there = [name for name in names if name in steps]
        panel.plot([names.index(name) for name in there], [steps[name] for name in there], "o-", label=label)
    panel.set_xticks(range(len(names)), [f"#{name}" if name.isdigit() else name for name in names], rotation=20)
    panel.set_ylabel("step (us)")
    panel.grid(alpha=0.25)
    if len(lines) > 1:
        panel.legend(fontsize=8)
    device = ", ".join(sorted({row.device for row in rows if row.status == "ok"}))
    failed = "  CONTROL FAILED" if any(control.failed for control in controls(rows)) else ""
    panel.set_title(f"Upstream's history as step times  {device}{failed}", fontsize=11)
    caption = f"The step of each revision of sglang, oldest first. {device}.{failed}"
    figure.savefig(folder / "figures" / "history.png", dpi=144, metadata={"Description": caption})


def _revision(arm: Arm) -> str:
    return str(arm.rows[0].params["revision"])
