"""The answer of a run in a few sentences, each with its numbers. What was not measured is not answered."""

import math
from collections.abc import Callable

from penaltylab.study.records import Record, Row
from penaltylab.study.stats import SMALLEST, Comparison
from penaltylab.study.summary import Arm, against, arms, baselines, controls, path_of

NORMAL = ("normal 28397", "normal 28491")
EAGLE = ("eagle 28491", "eagle 28500")


def answer(record: Record, rows: list[Row]) -> list[str]:
    """At most three sentences. Those on an emulated device begin with SIMULATED."""
    good = [row for row in rows if row.status == "ok"]
    found = arms(good)
    if not found:
        return []
    sentences = _of_sweep(found) if record.sweep else _of_notebooks(found)
    label = f"{found[0].rows[0].device}: " if all(row.simulated for row in good) else ""
    return [label + sentence for sentence in [*sentences[:2], _of_control(good)]]


def _of_notebooks(found: list[Arm]) -> list[str]:
    by_name = {arm.name: arm for arm in found}
    sentences = []
    if all(name in by_name for name in NORMAL):
        before, after = (by_name[name] for name in NORMAL)
        copies = [_us(arm, "cumulate_us_median") for arm in (before, after)]
        change = _change(before, after)
        sentences.append(
            f"on the normal path #28491 took a step {change}: the host spends {copies} in the copy's section"
        )
    if all(name in by_name for name in EAGLE):
        before, after = (by_name[name] for name in EAGLE)
        saved = before.median("cumulate_us_median") - after.median("cumulate_us_median")
        sentences.append(
            f"on the speculative path #28500 took a step {_change(before, after)}: the host spends "
            f"{saved:,.0f} us less in the copy's section, and instead of {before.wait('seq_lens'):,.0f} us it waits "
            f"{after.wait('seq_lens'):,.0f} us for the accepted lengths"
        )
    return sentences or [_of_any(found)]


def _change(before: Arm, after: Arm) -> str:
    steps = f"from {_us(before, 'step_us_median')} to {_us(after, 'step_us_median')}"
    return f"{steps} ({against(before, after).text()})"


def _of_any(found: list[Arm]) -> str:
    fastest = min(found, key=lambda arm: arm.median("step_us_median"))
    return f"{len(found)} arms were run; the shortest step is {_us(fastest, 'step_us_median')}, of {fastest.name}"


def _of_sweep(found: list[Arm]) -> list[str]:
    first = baselines(found)
    others = {arm.cell: against(first[path_of(arm)], arm) for arm in found if arm is not first[path_of(arm)]}
    baseline = found[0]
    runs = sum(len(arm.rows) for arm in found)
    step = _us(baseline, "step_us_median")
    sentences = [f"{len(found):,} cells in {runs:,} runs; a step of the first, {baseline.cell}, takes {step}"]
    known = {cell: one for cell, one in others.items() if not math.isnan(one.ratio)}
    if known:
        least, most = (f"{cell} ({known[cell].text()})" for cell in (_extreme(known, min), _extreme(known, max)))
        verdicts = [one.verdict for one in others.values()]
        counted = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
        sentences.append(
            f"against the first of its path, {counted}: the least is {least}, the most {most}"
        )
    return sentences


def _extreme(known: dict[str, Comparison], pick: Callable[..., str]) -> str:
    return pick(known, key=lambda cell: known[cell].ratio)


def _of_control(rows: list[Row]) -> str:
    found = controls(rows)
    if not found:
        return (
            "time is modelled and so the same in every run: one run each, no interval, and no control that could fail"
        )
    failed = [control for control in found if control.failed]
    if failed:
        said = "; ".join(f"{control.name}: {control.comparison.text()}" for control in failed)
        return f"THE CONTROL FAILED, so that none of this can be relied on: the same run twice differed ({said})"
    widest = max(found, key=lambda control: control.comparison.high - control.comparison.low)
    passed = sum(control.comparison.verdict == "no difference" for control in found)
    return (
        f"of {len(found)} controls, the same run twice in the same rounds, none found a difference, and {passed} can "
        f"exclude one of {SMALLEST:.0%}; the widest is {widest.comparison.text()}"
    )


def _us(arm: Arm, field: str) -> str:
    return f"{arm.median(field):,.0f} us"
