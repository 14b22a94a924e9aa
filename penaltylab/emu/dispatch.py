"""Every aten operator on the emulated device: computed on the CPU at once, placed on the current stream's timeline."""

from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.alias import (
    Tensor,
    adopt,
    check_device,
    extent_of,
    fixed_alias,
    is_whole,
    memory_of,
    set_to,
    to_cpu,
)
from penaltylab.emu.costs import is_half, kernel_us
from penaltylab.emu.device import Device
from penaltylab.emu.hazards import WHOLE
from penaltylab.emu.operators import COUNTED, SENT, Traits, traits_of
from penaltylab.emu.transfers import Transfers

Kernel = Callable[..., Any]

CPU = torch.device("cpu")
_PLAIN = frozenset({int, float, bool, str, complex, type(None), torch.dtype, torch.layout, torch.memory_format})


class Call:
    """One operator on its way through: what it touches and how much it moves."""

    __slots__ = ("device", "moved", "pairs", "queue", "stamp", "traits")

    def __init__(self, device: Device, traits: Traits) -> None:
        self.device = device
        self.traits = traits
        self.queue = queue = device.current_queue()
        if torch.is_grad_enabled():
            device.backward.note(queue)
        self.stamp = device.stamp(queue, device.sites.caller() or device.backward.site, traits.kernel_name)
        self.moved = 0
        self.pairs: list[tuple[Tensor, Tensor]] = []

    def tensor(self, x: Tensor, write: bool, indirect: bool = False, fixed: bool = False) -> Tensor:
        """The CPU alias of an argument, its access noted."""
        try:
            memory = x.untyped_storage()._emu  # type: ignore[attr-defined]
        except AttributeError:
            if x.is_cpu:
                return self._host(x)
            memory = memory_of(x)
        if is_whole(x, memory) and not fixed:
            alias, extent, nbytes = memory.alias, WHOLE, memory.nbytes
        else:
            alias = fixed_alias(x) if fixed else to_cpu(x)
            extent, nbytes = extent_of(x), x.nbytes
        if not indirect:
            self.moved += nbytes
        queue = self.queue
        if memory.queue is queue and not memory.shared and extent is WHOLE:
            (memory.writes if write else memory.reads)[queue.stream_id, *WHOLE] = self.stamp
        else:
            device = self.device
            device.hazards.touch(memory, extent, write, queue, self.stamp, device.clock.now_us)
        self.pairs.append((x, alias))
        return alias

    def _host(self, x: Tensor) -> Tensor:
        """A host tensor among the arguments: only a scalar will do, but for the operators that take others."""
        if x.dim() and not self.traits.takes_cpu:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, emu:0 and cpu! "
                f"({self.traits.name})"
            )
        return x

    def argument(self, x: Any, write: bool, indirect: bool = False, fixed: bool = False) -> Any:
        """`x` with its tensors and devices replaced by those of the CPU."""
        kind = type(x)
        if kind in _PLAIN:
            return x
        if kind is list or kind is tuple:
            return kind([self.argument(item, write) for item in x])
        if kind is torch.device:
            check_device(x)
            return CPU
        return self.tensor(x, write, indirect, fixed) if isinstance(x, Tensor) else x

    def result(self, out: Any) -> Any:
        """`out` with CPU tensors replaced by device tensors: an argument itself, or a new one."""
        kind = type(out)
        if kind is Tensor or isinstance(out, Tensor):
            for mine, alias in self.pairs:
                if alias is out:
                    return mine
            return self.fresh(out)
        if kind is list or kind is tuple:
            return kind([self.result(item) for item in out])
        return out

    def fresh(self, out: Tensor) -> Tensor:
        """A new device tensor, written by this operator."""
        result, memory = adopt(out)
        memory.queue = queue = self.queue
        if queue.freed:
            self.device.freed.give_out(memory, queue)
        if (nbytes := memory.nbytes) and self.traits.computes:
            self.moved += nbytes
            memory.writes[queue.stream_id, *WHOLE] = self.stamp
            if memory.inherits:
                device = self.device
                device.hazards.found += device.freed.overwrite(memory, queue, self.stamp, device.clock.now_us)
        return result

    def launch(self, args: tuple[Any, ...], out: Any) -> None:
        """Put the kernel on the stream. PyTorch launches none where there is nothing to move."""
        device, traits, moved = self.device, self.traits, self.moved
        machine = device.machine
        if not moved or not traits.computes or type(out) in _PLAIN:
            device.clock.now_us += machine.dispatch_us if traits.computes else machine.alloc_us
            return
        flops = traits.flops(args, out) if traits.flops is not None else 0.0
        half = traits.flops is not None and is_half(args[0])
        device.launch(self.queue, self.stamp, kernel_us(machine, moved, flops, half), moved)


def make_kernel(transfers: Transfers, op: Any, run: Callable[..., Any] | None = None) -> Kernel:
    """The kernel of overload `op`; `run` computes it on the CPU (default: the operator itself)."""
    traits = traits_of(op)
    raw = run or op._op
    writes, named, indirect = traits.writes, traits.writes_named, traits.indirect
    check, sync = traits.check, traits.sync
    device = transfers.device
    clock, host_writes = device.clock, device.host_writes

    def compute(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if check is not None:
            check(args)
        on_cpu = [
            call.tensor(x, i in writes, i in indirect)
            if type(x) is Tensor
            else call.argument(x, i in writes, i in indirect)
            for i, x in enumerate(args)
        ]
        named_on_cpu = _named(call, kwargs, named) if kwargs else kwargs
        if sync is not None and (kind := sync(args, kwargs)) is not None:
            _synchronize(transfers, call, kind)
        try:
            out = raw(*on_cpu, **named_on_cpu)
        except RuntimeError as error:
            out = _retry(op, raw, error, call, kwargs, (on_cpu, named_on_cpu))
        for name in named:
            mine = kwargs.get(name)
            if isinstance(mine, Tensor) and mine.shape != named_on_cpu[name].shape:
                set_to(mine, named_on_cpu[name])
        return call.result(out)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        clock.enter()
        try:
            call = Call(device, traits)
            if host_writes.pending:
                host_writes.look(call.stamp[1])
            out = compute(call, args, kwargs)
            call.launch(args, out)
            return out
        finally:
            clock.leave()

    return kernel


def _synchronize(transfers: Transfers, call: Call, kind: str) -> None:
    """The hidden synchronization of this operator: the host waits for a count or value, or sends it over and waits."""
    device = call.device
    if kind in SENT:
        transfers.send(call.queue, call.stamp, kind)
        return
    sync = device.planned(kind, call.traits.kernel_name, call.queue, call.stamp[1])
    if kind in COUNTED:
        device.launch(call.queue, call.stamp, kernel_us(device.machine, call.moved, 0.0, False), call.moved)
    transfers.read_back(call.queue, call.stamp, sync)


def _named(call: Call, kwargs: dict[str, Any], written: frozenset[str]) -> dict[str, Any]:
    if kwargs.get("pin_memory"):
        raise RuntimeError("Cannot pin 'emu' tensor: only dense CPU tensors can be pinned")
    return {
        name: call.argument(x, name in written, fixed=name in written)
        for name, x in kwargs.items()
        if name != "pin_memory"
    }


def _retry(
    op: Any,
    raw: Callable[..., Any],
    error: RuntimeError,
    call: Call,
    given: dict[str, Any],
    on_cpu: tuple[list[Any], dict[str, Any]],
) -> Any:
    """Run again what a CPU alias could not: a Python number where a tensor is declared, an `out=` that has to grow."""
    text = str(error)
    args, kwargs = on_cpu
    if "of type 'Tensor" in text or "to Tensor" in text:
        return op.overloadpacket(*args, **kwargs)
    if "resiz" not in text:
        raise error
    fresh = {name: torch.empty(0, dtype=kwargs[name].dtype) for name in call.traits.writes_named if name in kwargs}
    out = raw(*args, **{**kwargs, **fresh})
    kwargs.update(fresh)
    for name, grown in fresh.items():
        set_to(given[name], grown)
        call.pairs.append((given[name], grown))
    return out
