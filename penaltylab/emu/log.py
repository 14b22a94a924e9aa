"""What a profiler of a real device would see: runtime calls of the host and operations of the device."""

import threading
from dataclasses import dataclass, field

from penaltylab.emu.machine import Machine
from penaltylab.emu.sites import Site, format_site


@dataclass(slots=True)
class RuntimeCall:
    """A call of the CUDA runtime. Times are us of the virtual clock; `blocked_us` is how long the host stood still."""

    name: str
    start_us: float
    dur_us: float
    thread: int
    correlation: int
    stream: int
    site: str
    blocked_us: float = 0.0


@dataclass(slots=True)
class DeviceOp:
    """An operation on a stream: `kind` is kernel, gpu_memcpy or gpu_memset. Those of one stream never overlap."""

    kind: str
    name: str
    stream: int
    start_us: float
    dur_us: float
    correlation: int
    bytes: int


@dataclass(slots=True)
class Log:
    """A recording. `breaks` pairs real time (`time.perf_counter_ns`) with virtual us at each entry to and exit from
    the emulator, so that a profiler's own host slices can be re-timed.
    """

    calls: list[RuntimeCall] = field(default_factory=list)
    device_ops: list[DeviceOp] = field(default_factory=list)
    breaks: list[tuple[int, float]] = field(default_factory=list)
    stream_names: dict[int, str] = field(default_factory=dict)
    machine: Machine | None = None
    host_time: str = "modelled"


class Recorder:
    """Collects a `Log` while `log` is set; numbers calls and operations either way."""

    def __init__(self) -> None:
        self.log: Log | None = None
        self.correlation = 0
        self._sites: list[Site] = []

    def start(self) -> Log:
        """A fresh log, filled from here on."""
        self.log, self._sites = Log(), []
        return self.log

    def stop(self) -> Log:
        """End the recording: what was collected, its call sites in words."""
        log, self.log = self.log, None
        if log is None:
            raise RuntimeError("emu: no recording to stop; start_log() begins one")
        words: dict[Site, str] = {}
        for call, site in zip(log.calls, self._sites, strict=True):
            if site not in words:
                words[site] = format_site(site)
            call.site = words[site]
        return log

    def call(self, name: str, start_us: float, dur_us: float, stream: int, site: Site, blocked_us: float = 0.0) -> int:
        """A runtime call; returns its correlation, which the operation it starts shares."""
        self.correlation += 1
        if self.log is not None:
            thread = threading.get_native_id()
            self.log.calls.append(RuntimeCall(name, start_us, dur_us, thread, self.correlation, stream, "", blocked_us))
            self._sites.append(site)
        return self.correlation

    def operation(self, kind: str, name: str, stream: int, start_us: float, dur_us: float, nbytes: int) -> None:
        """The operation that the last call put on `stream`."""
        if self.log is not None:
            self.log.device_ops.append(DeviceOp(kind, name, stream, start_us, dur_us, self.correlation, nbytes))
