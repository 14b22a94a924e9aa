"""What may be said of two sets of runs: the ratio of their step times, its interval, and a verdict in words.

The unit is a run, one number each. Intervals are percentile bootstrap intervals over pairs of runs, never over steps,
which are correlated; BCa intervals, SciPy's default, are NaN for the median of tied data.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_PAIRS = 20
CONFIDENCE = 0.95
SMALLEST = 0.01
"""The smallest difference that matters: what lies wholly within it is called no difference."""
RESAMPLES = 2000

Verdict = Literal["faster", "slower", "no difference", "cannot tell"]


@dataclass(frozen=True)
class Comparison:
    """B against A: `ratio` is the median of time(B) / time(A), so that above 1 is slower.

    `low` and `high` bound it; both are NaN where there is no interval, as for modelled runs. `pairs` is the number of
    runs on the smaller side, `outliers` how many ratios lie far out; they are kept.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    outliers: int
    verdict: Verdict
    reason: str
    """What to do about a verdict of `cannot tell`, else what the verdict rests on."""

    @property
    def percent(self) -> float:
        """The change of the time in percent: negative is faster."""
        return 100 * (self.ratio - 1)

    def text(self) -> str:
        """`slower: +3.1 % [+2.9, +3.3]`."""
        known = np.isfinite(self.low) and np.isfinite(self.high)
        interval = f" [{100 * (self.low - 1):+.1f}, {100 * (self.high - 1):+.1f}]" if known else ""
        return f"{self.verdict}: {self.percent:+.1f} %{interval}" if np.isfinite(self.ratio) else self.verdict


def compare_pairs(a: ArrayLike, b: ArrayLike, smallest: float = SMALLEST, seed: int = 0) -> Comparison:
    """Compare runs that were taken in pairs: `a[i]` and `b[i]` are the times of pair i."""
    before, after = _floats(a), _floats(b)
    if before.shape != after.shape:
        raise ValueError(f"{len(before)} and {len(after)} runs make no pairs")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = after / before
    usable = _usable(before) & _usable(after)
    if not usable.all() or not len(ratios):
        return _unusable(int((~usable).sum()), len(ratios))
    picks = np.random.default_rng(seed).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    medians = np.median(ratios[picks], axis=1)
    return _judge(float(np.median(ratios)), medians, len(ratios), _far_out(ratios), smallest)


def compare_groups(a: ArrayLike, b: ArrayLike, smallest: float = SMALLEST, seed: int = 0) -> Comparison:
    """Compare runs that were taken apart, as in two runs of the study: the ratio of the two medians."""
    before, after = _floats(a), _floats(b)
    usable = np.concatenate([_usable(before), _usable(after)])
    fewer = min(len(before), len(after))
    if not usable.all() or not fewer:
        return _unusable(int((~usable).sum()), fewer)
    random = np.random.default_rng(seed)
    medians = _resampled(after, random) / _resampled(before, random)
    ratio = float(np.median(after) / np.median(before))
    return _judge(ratio, medians, fewer, _far_out(before) + _far_out(after), smallest)


def compare_modelled(a: float, b: float, smallest: float = SMALLEST) -> Comparison:
    """Compare two modelled runs: they are deterministic, so one of each is enough and there is no interval."""
    if not _usable(_floats([a, b])).all():
        return _unusable(1, 1)
    ratio = b / a
    verdict: Verdict = "no difference" if abs(ratio - 1) < smallest else "slower" if ratio > 1 else "faster"
    return Comparison(ratio, np.nan, np.nan, 1, 0, verdict, "modelled time is deterministic: one run, no interval")


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


def _usable(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(times) & (times > 0)


def _resampled(times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    medians: NDArray[np.float64] = np.median(times[random.integers(len(times), size=(RESAMPLES, len(times)))], axis=1)
    return medians


def _far_out(values: NDArray[np.float64]) -> int:
    """How many values lie more than three interquartile ranges outside the quartiles."""
    low, high = np.percentile(values, [25, 75])
    reach = 3 * (high - low)
    return int(((values < low - reach) | (values > high + reach)).sum())


def _unusable(bad: int, of: int) -> Comparison:
    what = f"{bad} of its runs have no step time: look for why they failed" if of else "there are no runs of both"
    return Comparison(np.nan, np.nan, np.nan, of, 0, "cannot tell", what)


def _judge(ratio: float, medians: NDArray[np.float64], pairs: int, outliers: int, smallest: float) -> Comparison:
    tail = 50 * (1 - CONFIDENCE)
    low, high = (float(bound) for bound in np.percentile(medians, [tail, 100 - tail]))
    verdict, reason = _verdict(low, high, pairs, smallest)
    return Comparison(ratio, low, high, pairs, outliers, verdict, reason)


def _verdict(low: float, high: float, pairs: int, smallest: float) -> tuple[Verdict, str]:
    within = f"{CONFIDENCE:.0%} of the resampled medians of {pairs} runs a side"
    if pairs < MIN_PAIRS:
        return "cannot tell", f"{pairs} runs a side: take at least {MIN_PAIRS}"
    if not low < high:
        return "cannot tell", "the ratios are tied, so their interval has no width: take longer runs"
    if low > 1 - smallest and high < 1 + smallest:
        return "no difference", f"{within} lie within {smallest:.0%} of equal"
    if low > 1 or high < 1:
        return "slower" if low > 1 else "faster", f"{within} lie on one side of equal"
    needed = pairs * (max(high - 1, 1 - low) / smallest) ** 2
    return "cannot tell", f"the interval is too wide: about {needed:,.0f} runs a side, or a quieter machine"
