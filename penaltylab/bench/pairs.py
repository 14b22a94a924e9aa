"""Does paired measurement keep its word with real runs? How often the same twice is called the same, and 3 % is found.

`python -m penaltylab.bench.pairs [REPETITIONS]` takes seconds a repetition: the emulated device, in measured time.
"""

import sys
from collections.abc import Iterator
from typing import Any

from penaltylab.engine.run import decode
from penaltylab.study.measure import CONTROL, measure

PLANTED = 1.03
SAME: dict[str, Any] = {
    "device": "emu",
    "host_time": "measured",
    "steps": 16,
    "warmup": 6,
    "batch_size": 1,
    "vocab_size": 64,
    "forward_ms": 2.5,
}


def run(repetitions: int = 3) -> list[dict[str, Any]]:
    """A row for the control and one for the planted slowdown, each over `repetitions` of 20 rounds."""
    return list(_rows(repetitions))


def _rows(repetitions: int) -> Iterator[dict[str, Any]]:
    step_ms = decode(**SAME).median("step_us") / 1e3
    slower = SAME | {"forward_ms": SAME["forward_ms"] + (PLANTED - 1) * step_ms}

    def step_us(arm: str, pair: int) -> float:
        return decode(**slower if arm == "slower" else SAME).median("step_us")

    found = [measure(["same", "slower"], step_us, seed=seed) for seed in range(repetitions)]
    for name, arm in (("the same twice", CONTROL), (f"{PLANTED:g} times as slow", "slower")):
        results = [measurement.against_baseline(arm) for measurement in found]
        yield {
            "what": name,
            "repetitions": repetitions,
            "covers 1": sum(result.low <= 1 <= result.high for result in results),
            "called slower": sum(result.verdict == "slower" for result in results),
            "median ratio": sorted(result.ratio for result in results)[repetitions // 2],
            "widest": max(result.high - result.low for result in results),
            "outliers kept": sum(result.outliers for result in results),
        }


if __name__ == "__main__":
    for line in run(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        print(line)
