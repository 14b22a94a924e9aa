"""Which copies block: each way to write a host-to-device copy, by size, behind a busy stream and an idle one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from penaltylab import devices
from penaltylab.study.collect import Collector
from penaltylab.study.metrics import median

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image

SIZES = tuple(8 * 8**exponent for exponent in range(8))  # 8 B to 16 MiB
REPEATS = 9


@dataclass(frozen=True)
class Way:
    """One way to write the copy; `source` makes the host tensor that `copy` then sends."""

    statement: str
    source: Callable[[torch.Tensor], torch.Tensor]
    copy: Callable[[torch.Tensor, torch.device], torch.Tensor]


def _as_it_is(values: torch.Tensor) -> torch.Tensor:
    return values


def _pinned(values: torch.Tensor) -> torch.Tensor:
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)


def _blocking(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    return source.to(device)


def _non_blocking(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    return source.to(device, non_blocking=True)


WAYS = {
    "blocking": Way("t.to(device)", _as_it_is, _blocking),
    "pageable_async": Way("t.to(device, non_blocking=True)", _as_it_is, _non_blocking),
    "pinned_blocking": Way("t.pin_memory().to(device)", _pinned, _blocking),
    "pinned_async": Way("t.pin_memory().to(device, non_blocking=True)", _pinned, _non_blocking),
}


def same_values(study: Collector) -> "pd.DataFrame":
    """Whether each way brings the same bytes, at every size and behind a busy stream. Raises where one does not."""
    import pandas as pd

    rows = []
    for name, way in WAYS.items():
        for size in SIZES:
            values = torch.arange(size // 8, dtype=torch.int64)
            devices.busy(study.torch_device, 0.1)
            arrived = way.copy(way.source(values), study.torch_device)
            if not torch.equal(arrived.cpu(), values):
                raise RuntimeError(f"{name}: {size} bytes arrived changed on {study.device['name']}")
        rows.append({"way": name, "statement": way.statement, "sizes": len(SIZES), "same values": True})
    return pd.DataFrame(rows).set_index("way")


def call_times(study: Collector) -> "pd.DataFrame":
    """Host time inside the copy's statement in us, the median of a few calls: a row a stream and way, a column a size.

    "busy" is a stream with `forward_ms` of work in front of the copy. Each row is kept with the study.
    """
    import pandas as pd

    table = {}
    for stream, busy_ms in (("idle", 0.0), ("busy", study.params.forward_ms)):
        for name, way in WAYS.items():
            times = {label(size): _call_us(study.torch_device, way, size, busy_ms) for size in SIZES}
            metrics = {f"{size}, us": us for size, us in times.items()}
            study.keep(f"{name}, {stream} stream", study.params, metrics=metrics)
            table[stream, name] = times
    frame = pd.DataFrame(table).T.rename_axis(
        index=["stream", "way"], columns=f"us in the call, {study.device['name']}"
    )
    return frame.round(1)


def _call_us(device: torch.device, way: Way, size: int, busy_ms: float) -> float:
    module = torch.get_device_module(device)
    source = way.source(torch.arange(size // 8, dtype=torch.int64))
    kept, times = [], []
    for _ in range(REPEATS):
        module.synchronize()
        devices.busy(device, busy_ms)
        start = devices.now_us(device)
        kept.append(way.copy(source, device))
        times.append(devices.now_us(device) - start)
    module.synchronize()
    return median(times[1:])


def plot(study: Collector, times: "pd.DataFrame") -> "Image":
    """The table of `call_times` as two panels, idle and busy; the line is where a call costs as much as the forward."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    styles = dict(zip(WAYS, ("o-", "s--", "^-", "D:"), strict=True))
    for panel, stream in zip(panels, ("idle", "busy"), strict=True):
        for name, style in styles.items():
            panel.plot(
                SIZES,
                times.loc[stream, name],
                style,
                label=f"{name}: {WAYS[name].statement}",
                markersize=5,
                fillstyle="none",
            )
        panel.set(xscale="log", yscale="log", xlabel="size of the copy", title=f"behind {_behind(study, stream)}")
        panel.set_xticks(SIZES, [label(size) for size in SIZES], fontsize=8)
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[1].axhline(study.params.forward_ms * 1e3, color="black", linewidth=0.8, linestyle=(0, (1, 3)))
    panels[0].set_ylabel("host time in the call (us)")
    panels[0].legend(fontsize=8)
    figure.suptitle(f"Which copies block the host?  {study.device['name']}")
    caption = "Host time inside the statement of one copy, by its size; the dotted line is the work in front of it."
    return study.figure("call-times", figure, f"{caption} {study.device['name']}.")


def _behind(study: Collector, stream: str) -> str:
    return "an idle stream" if stream == "idle" else f"a stream that is busy for {study.params.forward_ms:g} ms"


def label(size: int) -> str:
    """A size in bytes, readable: 64 KiB."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"
