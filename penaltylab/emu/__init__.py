"""The emulated accelerator: a PyTorch device named "emu" with a virtual clock, for machines without a GPU.

Registered on first use; changes nothing for other devices. It claims ordering, blocking, hazards and values under a
stated cost model (`data/machines/`), never the speed of a GPU.

Modelled: streams and events, launch latency and gaps, two copy engines beside the kernels, pageable and pinned copies
(`transfers`), the caching allocator of pinned memory (`pinned`), hidden synchronizations (`operators`), backward passes
on their forward's streams (`backward`), happens-before between streams and host (`hazards`, `hostwrites`).

Not modelled: contention between kernels of different streams, which overlap freely; caches and occupancy; the memory
allocator of the device, so that nothing runs out and freed memory is never really given out again (`freed` says where
it might be); random numbers of the device's own, which come from the CPU's generator; more than one device; CUDA graphs
and `torch.compile`, which are refused; the legacy default stream's implicit order, which PyTorch's streams do not have
either. docs/emulator.md has each rule with its source and its test.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

from penaltylab.emu.clock import HOST_TIMES as HOST_TIMES
from penaltylab.emu.hazards import Hazard as Hazard
from penaltylab.emu.log import DeviceOp as DeviceOp
from penaltylab.emu.log import Log as Log
from penaltylab.emu.log import RuntimeCall as RuntimeCall
from penaltylab.emu.machine import Machine as Machine
from penaltylab.emu.machine import load_machine as load_machine
from penaltylab.emu.machine import machine_names as machine_names
from penaltylab.emu.observe import Observed as Observed
from penaltylab.emu.observe import observe as observe
from penaltylab.emu.pinned import PinnedStats as PinnedStats
from penaltylab.emu.runtime import runtime as runtime
from penaltylab.emu.synchronize import Guard
from penaltylab.emu.synchronize import HiddenSyncError as HiddenSyncError
from penaltylab.emu.synchronize import Sync as Sync


def register() -> None:
    """Make `torch.device("emu")` usable. Does nothing the second time.

    Raises:
        InputError: PyTorch is older than 2.10, or CUDA is available and PENALTYLAB_EMU is not 1.
    """
    runtime()


def configure(machine: str | Path | Machine = "h100", host_time: str = "modelled") -> None:
    """Start afresh on `machine` (a name, a path to a TOML file, or a model): clock, streams, hazards, log, pinned pool.

    Raises:
        InputError: no such machine, or `host_time` is neither modelled nor measured.
    """
    runtime().device.configure(machine, host_time)


def machine() -> Machine:
    """The cost model in force."""
    return runtime().device.machine


def now_us() -> float:
    """The host's virtual clock."""
    return runtime().device.clock.read()


def blocked_us() -> float:
    """For how long the host has stood still since `configure`."""
    return runtime().device.clock.blocked_us


def busy(ms: float, name: str = "busy") -> None:
    """Occupy the current stream for `ms` milliseconds, as one kernel called `name`."""
    device = runtime().device
    with device.clock:
        queue = device.current_queue()
        device.launch(queue, device.stamp(queue, device.sites.caller(), name), ms * 1e3)


def hazards() -> list[Hazard]:
    """The hazards caught since `configure`, oldest first."""
    return list(runtime().device.hazards.found)


def syncs() -> list[Sync]:
    """Every host synchronization since `configure`, oldest first."""
    return list(runtime().device.syncs.found)


def copies() -> int:
    """How many copies between host and device, or on the device, were enqueued since `configure`."""
    return runtime().device.copies


def pinned_stats() -> PinnedStats:
    """Hits and misses of the pinned allocator since `configure`."""
    return runtime().device.pinned.stats()


def forbid_sync(allow: str | Collection[str] = ()) -> AbstractContextManager[list[Sync]]:
    """Inside, in every thread, a hidden host synchronization raises `HiddenSyncError` instead.

    What `allow` names passes: a kind (`synchronize.HIDDEN_KINDS`), the line that makes it (`sampler.py:12`), or a file
    or function that makes it or calls what does. Guards nest: a synchronization has to pass all of them. One that the
    program asks for by name is not hidden.

    Raises:
        InputError: an entry of `allow` is none of these.
    """
    return runtime().device.syncs.guard(Guard.forbidding(allow))


def record_syncs() -> AbstractContextManager[list[Sync]]:
    """Yields a list that fills with the synchronizations made inside, in every thread, explicit ones too."""
    return runtime().device.syncs.guard(Guard(None))


def start_log() -> Log:
    """Record runtime calls and device operations from here on."""
    return runtime().device.start_log()


def stop_log() -> Log:
    """End the recording and return it."""
    return runtime().device.stop_log()
