"""record: a run of the engine under `torch.profiler`, as a trace file."""

import tempfile
from pathlib import Path
from typing import Any

from penaltylab import devices
from penaltylab.engine.request import Req
from penaltylab.engine.run import run, start
from penaltylab.params import Params
from penaltylab.traces.record import record_trace


def record(
    out: str | Path | None = None, requests: list[Req] | None = None, with_stack: bool = False, **given: Any
) -> str:
    """Decode as `pl.decode` does, with the profiler on, and return the path of the trace, a .json.gz.

    `out` names the file, or a folder to put it in (default: a new temporary one). Time with `pl.decode`: the profiler
    itself costs tens of us a step. Raises InputError for bad parameters or a path that cannot be written.
    """
    params = Params.of(**given)
    device = start(params)
    path = _path(out, params)
    metadata = {"params": params.asdict(), "params_hash": params.hash(), "device": devices.describe(device)}
    record_trace(lambda: run(params, device, requests, annotate=True), device, path, metadata, with_stack)
    return str(path)


def _path(out: str | Path | None, params: Params) -> Path:
    if out is not None and str(out).endswith((".json", ".json.gz")):
        return Path(out)
    folder = Path(tempfile.mkdtemp(prefix="penaltylab-")) if out is None else Path(out)
    return folder / f"{params.path}-{params.revision or params.h2d}-{params.barrier}-{params.hash()[:8]}.json.gz"
