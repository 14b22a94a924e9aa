"""What reading and inspecting a trace costs, against other ways to do the same, on one large trace made for it.

The trace is a real one (a shared trace where `PENALTYLAB_TRACES` names their folder) or a made-up decode loop, repeated
with shifted times and ids. Each way runs in a process of its own, in turn, three times; the lowest time counts.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

LARGE_MB: Final = 290
_RUNS = 3
_SEED_TRACE = "a100-trace-diff-control.json.gz"
_SEED_STEPS = 2000
_ID_STRIDE = 10**7

_OURS = "from penaltylab.traces.findings import inspect_trace; inspect_trace(sys.argv[1])"
_READ = "from penaltylab.traces.read import read_trace; read_trace(sys.argv[1])"
_SAME_ANALYSIS = "from penaltylab.bench.traces import analyse_document; analyse_document({})"
WAYS: Final = {
    "inspect": ("penaltylab", _OURS),
    "read only": ("penaltylab", _READ),
    "json and the same analysis": ("json", "import json; " + _SAME_ANALYSIS.format("json.load(open(sys.argv[1]))")),
    "orjson and the same analysis": (
        "orjson",
        "import orjson; " + _SAME_ANALYSIS.format("orjson.loads(open(sys.argv[1], 'rb').read())"),
    ),
    "HolisticTraceAnalysis, load only": (
        "hta",
        "from hta.common.trace_parser import parse_trace_dataframe as parse; "
        "from hta.configs.parser_config import ParserConfig; parse(sys.argv[1], ParserConfig.get_default_cfg())",
    ),
    "Perfetto trace_processor, load only": (
        "perfetto",
        "from perfetto.trace_processor import TraceProcessor; TraceProcessor(trace=sys.argv[1]).close()",
    ),
}
# VmHWM is the peak of this program; ru_maxrss would count what the parent held when it forked.
_TIMED = (
    "import re, sys, time; import penaltylab.traces.findings; begin = time.perf_counter(); {}; "
    "print(time.perf_counter() - begin, int(re.search('VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]) / 1024)"
)


def run(megabytes: int = LARGE_MB) -> list[dict[str, Any]]:
    """One row a way: seconds, MB/s, peak memory and how many times longer than `inspect` it takes."""
    with tempfile.TemporaryDirectory() as folder:
        large, quarter, packed = (Path(folder, name) for name in ("large.json", "quarter.json", "large.json.gz"))
        events = write_large(large, megabytes << 20)
        write_large(quarter, megabytes << 18)
        with gzip.open(packed, "wb", compresslevel=1) as file, large.open("rb") as text:
            shutil.copyfileobj(text, file, 1 << 20)
        present = {name: program for name, (package, program) in WAYS.items() if find_spec(package)}
        jobs = [(name, program, large) for name, program in present.items()]
        jobs += [("inspect, from .gz", _OURS, packed), ("inspect, a quarter of it", _OURS, quarter)]
        rows = _interleaved(jobs, events, large.stat().st_size)
    base = next(row["seconds"] for row in rows if row["way"] == "inspect")
    return [row | {"times_inspect": round(row["seconds"] / base, 2)} for row in rows]


def _interleaved(jobs: list[tuple[str, str, Path]], events: int, size: int) -> list[dict[str, Any]]:
    """Every job in turn, round by round, so that a busy moment of the machine hits all alike."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(_RUNS):
        for name, program, path in jobs:
            command = [sys.executable, "-c", _TIMED.format(program), str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
            seconds, peak = (float(word) for word in done.stdout.split()[-2:])
            best[name] = min(best.get(name, (seconds, peak)), (seconds, peak))
    rows = []
    for name, (seconds, peak) in best.items():
        part = 0.25 if "quarter" in name else 1.0
        row = {"way": name, "events": int(events * part), "seconds": round(seconds, 3)}
        rows.append(row | {"MB_per_s": round(size * part / 1e6 / seconds, 1), "peak_MiB": round(peak, 1)})
    return rows


def analyse_document(document: dict[str, Any]) -> None:
    """Our own analysis on a document that another parser has read whole."""
    import msgspec

    from penaltylab.traces.columns import Columns
    from penaltylab.traces.findings import findings
    from penaltylab.traces.read import assemble
    from penaltylab.traces.schema import Event
    from penaltylab.traces.stalls import analyse

    columns = Columns()
    columns.add(msgspec.convert(document.pop("traceEvents"), list[Event], strict=False))
    findings(analyse(assemble("document", columns, document, [])))


def write_large(path: Path, size: int) -> int:
    """Write a trace of at least `size` bytes; return how many events it has."""
    document = _seed()
    seed = [event for event in document.pop("traceEvents") if event.get("ph") != "M"]
    times = [event["ts"] for event in seed if event["ph"] == "X"]
    period = int(max(times) - min(times)) + 1_000_000
    template = _template(seed)
    written = events = 0
    with path.open("w") as file:
        written += file.write(json.dumps(document).removesuffix("}") + ', "traceEvents": [\n')
        while written < size:
            pieces = [
                text if shift is None else repr(shift + events // len(seed) * (period if is_time else _ID_STRIDE))
                for text, shift, is_time in template
            ]
            written += file.write((",\n" if events else "") + "".join(pieces))
            events += len(seed)
        file.write("\n]}")
    return events


def _template(seed: list[dict[str, Any]]) -> list[tuple[str, float | None, bool]]:
    """The text of a block of events, cut at the numbers that differ from repetition to repetition."""
    number = re.compile(r'"(ts|correlation|External id|id)": (-?\d+(?:\.\d+)?)(?=[,}])')
    cut: list[tuple[str, float | None, bool]] = []
    at = 0
    text = ",\n".join(json.dumps(event) for event in seed)
    for match in number.finditer(text):
        value = match.group(2)
        cut.append((text[at : match.start(2)], None, False))
        cut.append(("", float(value) if "." in value else int(value), match.group(1) == "ts"))
        at = match.end(2)
    return [*cut, (text[at:], None, False)]


def _seed() -> dict[str, Any]:
    shared = Path(os.environ.get("PENALTYLAB_TRACES", ""), _SEED_TRACE)
    if shared.is_file():
        document: dict[str, Any] = json.loads(gzip.decompress(shared.read_bytes()))
        return document
    return {"schemaVersion": 1, "traceEvents": list(_decode_loop(_SEED_STEPS))}


def _decode_loop(steps: int) -> Iterator[dict[str, Any]]:
    """A made-up loop: per step a blocking copy, operators with kernels and Python frames, as Kineto writes them."""
    for step in range(steps):
        at, ids = 3000.0 * step, 100 * step
        host = {"pid": 77, "tid": 77}
        yield {"ph": "X", "cat": "user_annotation", "name": f"step {step}", **host, "ts": at, "dur": 2990.0}
        for index in range(20):
            begin = at + 100 * index + 0.125
            stream = {"device": 0, "stream": 7, "correlation": ids + index}
            copies = index == 0
            call = "cudaMemcpyAsync" if copies else "cudaLaunchKernel"
            name = "Memcpy HtoD (Pageable -> Device)" if copies else "void at::native::elementwise_kernel<512, 1>(int)"
            yield {
                "ph": "X",
                "cat": "python_function",
                "name": f"model.py({index}): layer",
                **host,
                "ts": begin,
                "dur": 90.0,
            }
            yield {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", **host, "ts": begin + 1, "dur": 80.0,
                   "args": {"External id": ids + index, "Ev Idx": index}}  # fmt: skip
            yield {"ph": "X", "cat": "cuda_runtime", "name": call, **host, "ts": begin + 2, "dur": 5.0,
                   "args": {"External id": ids + index, "cbid": 211, "correlation": ids + index}}  # fmt: skip
            yield {"ph": "s", "id": ids + index, **host, "ts": begin + 2, "cat": "ac2g", "name": "ac2g"}
            yield {"ph": "X", "cat": "gpu_memcpy" if copies else "kernel", "name": name, "pid": 0, "tid": 7,
                   "ts": begin + 40, "dur": 30.0, "args": stream}  # fmt: skip
            yield {
                "ph": "f",
                "id": ids + index,
                "pid": 0,
                "tid": 7,
                "ts": begin + 40,
                "cat": "ac2g",
                "name": "ac2g",
                "bp": "e",
            }
        yield {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", **host, "ts": at + 8, "dur": 70.0,
               "args": {"External id": ids, "cbid": 131, "correlation": ids + 50}}  # fmt: skip
