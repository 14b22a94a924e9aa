"""Record a trace: `torch.profiler` around a piece of work, on whichever device."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from penaltylab import devices
from penaltylab.traces.write import check_writable, copy_trace

T = TypeVar("T")

_NAME_LINE = re.compile(r'^(\s*"name": )"(.*)"(,?)$', re.MULTILINE)


def record_trace(
    body: Callable[[], T],
    device: torch.device,
    path: str | Path,
    metadata: dict[str, Any] | None = None,
    with_stack: bool = False,
) -> T:
    """Run `body` under the profiler of `device` and write its trace to `path` (`.json` or `.json.gz`).

    With `with_stack`, the trace has Python frames, at a cost. `metadata` lands under the file's top-level key
    `penaltylab`, beside `simulated`. Returns what `body` returns. Where `path` cannot be written, InputError is
    raised before `body` runs. What `body` raises passes through, and leaves no file.
    """
    path = check_writable(path)
    profiler = devices.profiler(device, with_stack)
    with profiler:
        result = body()
    profiler.export(path, metadata or {})
    return result


class TorchProfiler:
    """A context manager: `torch.profiler` around the body, the host's threads all and the GPU where there is one.

    Once the body is done, the trace can be had once, as `document()` or by `export()`.
    """

    def __init__(self, with_stack: bool = False) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            with_stack=with_stack,
            experimental_config=_ExperimentalConfig(profile_all_threads=True),
        )

    def __enter__(self) -> Self:
        with _without_usdt_lines():
            self._profile.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _without_usdt_lines():
            self._profile.__exit__(kind, error, traceback)

    def document(self) -> dict[str, Any]:
        """The trace as Kineto's exporter writes it, decoded."""
        with self._exported() as file:
            return _decode(file.read_text(encoding="utf-8", errors="replace"))

    def export(self, path: str | Path, metadata: dict[str, Any]) -> None:
        """Write the trace to `path`, with `metadata` under the top-level key `penaltylab`."""
        with self._exported() as file:
            copy_trace(path, file, {"penaltylab": {"simulated": False, **metadata}})

    @contextmanager
    def _exported(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "trace.json")
            self._profile.export_chrome_trace(str(file))
            yield file


def _decode(document: str) -> dict[str, Any]:
    try:
        return json.loads(document)
    except json.JSONDecodeError:  # Kineto copies the quotes in an annotation's name as they are
        return json.loads(_NAME_LINE.sub(_quoted_name, document), strict=False)


def _quoted_name(line: re.Match[str]) -> str:
    start, name, end = line.groups()
    with suppress(json.JSONDecodeError):
        json.loads(f'"{name}"')
        return line[0]
    return f"{start}{json.dumps(name)}{end}"


@contextmanager
def _without_usdt_lines() -> Iterator[None]:
    """Drop the `USDT:` lines that Kineto prints on standard error at any log level; pass on all else."""
    try:
        stderr = os.dup(2)
    except OSError:  # closed: nothing is printed
        yield
        return
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            printed.seek(0)
            for line in printed:
                if not line.startswith(b"USDT:"):
                    os.write(2, line)
