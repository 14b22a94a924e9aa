"""One event of a Kineto trace as it stands in the file, and the categories that PyTorch's releases have used."""

from typing import Any, Final

import msgspec

Scalar = int | float | str | bool | None
NOTHING: Final = msgspec.Raw(b"null")


class Args(msgspec.Struct, gc=False):
    """The arguments that analysis needs; msgspec skips the others without building them.

    ROCm writes call arguments as strings, hence the wide types. `size` is what ROCm 6.2 calls `bytes`.
    """

    external_id: Scalar = msgspec.field(default=-1, name="External id")
    concrete_inputs: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    stream: Scalar = -1
    correlation: Scalar = -1
    kind: Scalar = None
    bytes: Scalar = -1
    size: Scalar = -1
    call_stack: Scalar = msgspec.field(default=None, name="Call stack")
    name: msgspec.Raw = NOTHING


class Event(msgspec.Struct, gc=False):
    """One trace event. `ts` and `dur` are microseconds; fields stand in the order in which Kineto writes them."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float = 0.0
    dur: float = 0.0
    args: Args | None = None


class WholeEvent(Event, gc=False):
    """One trace event with all that a viewer shows of it."""

    id: Scalar = None
    s: Scalar = None
    bp: Scalar = None
    args: Any = None


KERNEL, MEMCPY, MEMSET = 1, 2, 3
"""Kinds of GPU operation."""

GPU_CATEGORIES: Final = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Kernel": KERNEL,
    "Memcpy": MEMCPY,
    "Memset": MEMSET,
}
RUNTIME_CATEGORIES: Final = {"cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime", "Runtime"}
OPERATOR_CATEGORIES: Final = {"cpu_op", "Operator"}
ANNOTATION_CATEGORIES: Final = {"user_annotation"}
FRAME_CATEGORIES: Final = {"python_function"}
SYNC_CATEGORIES: Final = {"cuda_sync"}
OVERHEAD_CATEGORIES: Final = {"overhead"}
_MTIA = "an MTIA trace: its device rows are not GPU operations and its waits are not analysed"
_FIRST_PLUGIN = "a trace of PyTorch's first profiler plug-in (Kernel, Memcpy, Runtime): read as far as it goes"
PARTLY_UNDERSTOOD: Final = {
    "xpu_runtime": "an Intel XPU trace: copies are counted, their waits are not analysed",
    "mtia_runtime": _MTIA,
    "mtia_ccp_events": _MTIA,
    "Runtime": _FIRST_PLUGIN,
    "Kernel": _FIRST_PLUGIN,
}
"""Categories of formats that are recognised but not known in full, with what a reader should be told."""
