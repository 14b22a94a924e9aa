"""penaltylab: when does moving a few bytes to the GPU stop the CPU?

Names are resolved on first use, so that `import penaltylab` imports neither torch nor the emulated device.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penaltylab.engine.run import decode as decode
    from penaltylab.params import Params as Params
    from penaltylab.study.recording import record as record
    from penaltylab.traces.perfetto import export_for_perfetto as export_for_perfetto
    from penaltylab.traces.read import read_trace as read_trace
    from penaltylab.traces.stalls import find_stalls as find_stalls
    from penaltylab.traces.timeline import plot_timelines as plot_timelines
    from penaltylab.widgets.notebook import timeline as timeline

__version__ = "0.1.0"

_WHERE = {
    "Params": "penaltylab.params",
    "decode": "penaltylab.engine.run",
    "record": "penaltylab.study.recording",
    "export_for_perfetto": "penaltylab.traces.perfetto",
    "read_trace": "penaltylab.traces.read",
    "find_stalls": "penaltylab.traces.stalls",
    "plot_timelines": "penaltylab.traces.timeline",
    "timeline": "penaltylab.widgets.notebook",
}
_MODULES = {"emu", "devices"}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _MODULES:
        return import_module(f"penaltylab.{name}")
    raise AttributeError(f"module 'penaltylab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_MODULES])
