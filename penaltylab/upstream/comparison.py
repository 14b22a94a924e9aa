"""What a step's copy costs in released sglang, and in ours with that release's settings, in one loop on one device."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penaltylab.engine.run import Decode, run, start
from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.upstream.release import Upstream, load, revision_of

SET_BY_VERSION = ("revision", "h2d", "min_tokens_mask", "accounting", "apply")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run; all times are medians over the decode steps after warm-up, in us, and NaN where a device cannot tell."""

    version: str
    path: str
    arm: str  # "sglang": its own code; "ours": our engine with the settings of `revision`
    revision: str
    code: str  # where the copy is
    device: str
    simulated: bool
    step_us: float
    cumulate_us: float
    stall_us: float
    wait_us: dict[str, float]
    hazards: int
    tokens_equal: bool  # whether both arms generated the same tokens
    difference_percent: float  # step_us against that of sglang's own code


def compare(versions: Sequence[str], **given: Any) -> list[Row]:
    """Two rows, sglang's and ours, for each version and path; `given` are parameters of a run, `path` to run only one.

    Raises InputError for what `load` and `Params.of` refuse, and for a parameter that the version itself decides.
    """
    decided = [name for name in SET_BY_VERSION if name in given]
    if decided:
        raise InputError(f"{decided[0]}: the version decides it")
    paths = [given.pop("path")] if "path" in given else ["normal", "eagle"]
    planned = [
        (version, Params.of(path=path, revision=revision_of(version), **given))
        for version in versions
        for path in paths
    ]
    releases = {version: load(version) for version in versions}
    rows: list[Row] = []
    for version, params in planned:
        release = releases[version]
        theirs = _run_theirs(release, params)
        ours = run(params, start(params))
        rows.append(_row("sglang", version, release.statements[params.path].site, theirs, theirs, ours))
        rows.append(_row("ours", version, f"h2d.py: {params.h2d}", ours, theirs, ours))
    return rows


def _run_theirs(release: Upstream, params: Params) -> Decode:
    try:
        return run(
            params,
            start(params),
            batch_class=release.batch_class(params.path, params.overlap),
            make_orchestrator=release.make_orchestrator(params.vocab_size),
        )
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if Path(last.filename).is_relative_to(release.folder):
            where = f"{Path(last.filename).name}({last.lineno})"
            raise InputError(f"sglang {release.version}: another shape than known ones: {where}: {error}") from None
        raise


def _row(arm: str, version: str, code: str, this: Decode, theirs: Decode, ours: Decode) -> Row:
    params = this.params
    return Row(
        version=version,
        path=params.path,
        arm=arm,
        revision=params.revision,
        code=code,
        device=this.device["name"],
        simulated=this.simulated,
        step_us=this.median("step_us"),
        cumulate_us=this.median("cumulate_us"),
        stall_us=this.median("stall_us"),
        wait_us={kind: float(np.median(values[params.warmup :])) for kind, values in this.wait_us.items()},
        hazards=len(this.hazards),
        tokens_equal=theirs.tokens == ours.tokens,
        difference_percent=100 * (this.median("step_us") / theirs.median("step_us") - 1),
    )
