"""Paired measurement: every round runs each arm once, in an order drawn anew, the baseline twice.

The baseline's second run is the A/A control: what compares it with the first must find no difference, or nothing that
was found in the same rounds can be believed.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penaltylab.study.stats import MIN_PAIRS, Comparison, compare_modelled, compare_pairs

CONTROL = "control (the same again)"


def rounds(arms: Sequence[str], pairs: int = MIN_PAIRS, seed: int = 0) -> list[list[str]]:
    """The order in which to run `arms`, a list a round. The first is the baseline, and each round has its control."""
    order = random.Random(seed)
    return [order.sample([*arms, CONTROL], len(arms) + 1) for _ in range(pairs)]


@dataclass
class Measurement:
    """Step times by arm and round. `modelled` ones are deterministic, so that a single round without control is all."""

    baseline: str
    modelled: bool = False
    times: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, arm: str, pair: int, step_us: float) -> None:
        """The run of `arm` in round `pair` took `step_us` a step."""
        self.times.setdefault(arm, {})[pair] = step_us

    def against_baseline(self, arm: str) -> Comparison:
        """`arm` against the baseline, over the rounds that hold both."""
        before, after = self.times.get(self.baseline, {}), self.times.get(arm, {})
        both = sorted(before.keys() & after.keys())
        a, b = [before[pair] for pair in both], [after[pair] for pair in both]
        return compare_modelled(a[0], b[0]) if self.modelled and both else compare_pairs(a, b)

    @property
    def control(self) -> Comparison | None:
        """The A/A control; None where the time is modelled, in which it could not differ."""
        return None if self.modelled else self.against_baseline(CONTROL)

    @property
    def doubt(self) -> str | None:
        """What every figure and table of this measurement must say, when its control did not come out as it must."""
        control = self.control
        if control is None or control.verdict == "no difference":
            return None
        if control.verdict == "cannot tell":
            return f"CONTROL CANNOT TELL whether the same run twice is the same: {control.reason}"
        return f"CONTROL FAILED, do not rely on this: the same run twice came out as {control.text()}"


def measure(
    arms: Iterable[str], run: Callable[[str, int], float], pairs: int = MIN_PAIRS, modelled: bool = False, seed: int = 0
) -> Measurement:
    """Run `arms`, the baseline first, in interleaved rounds; modelled ones once. `run(arm, pair)` returns a run's step
    time in us; for `CONTROL` it runs the baseline again. Each arm is run once before, and not counted, since what runs
    first pays for what is set up once.
    """
    names = list(arms)
    result = Measurement(names[0], modelled)
    if modelled:
        for arm in names:
            result.add(arm, 0, run(arm, 0))
        return result
    for arm in names:
        run(arm, -1)
    for pair, order in enumerate(rounds(names, pairs, seed)):
        for arm in order:
            result.add(arm, pair, run(arm, pair))
    return result
