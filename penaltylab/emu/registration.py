"""Registers the emulator's kernels with PyTorch's dispatcher."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from penaltylab.emu import special
from penaltylab.emu.alias import memory_of
from penaltylab.emu.device import Device
from penaltylab.emu.dispatch import Kernel, make_kernel
from penaltylab.emu.pinned import pinned_block
from penaltylab.emu.transfers import Transfers
from penaltylab.emu.views import NATIVE, native_kernel, overload, resize_

_NOT_DIRECT = frozenset([
    "copy_", "set_", "is_pinned", "_pin_memory", "record_stream", "lift", "lift_fresh", "is_same_size",
    "resize_as_", "_resize_output_", "to_dense", "_to_dense", "to_sparse", "_to_sparse", "_to_sparse_csr",
    "to_mkldnn", "_copy_from", "_conj_physical", "segment_reduce", "_has_compatible_shallow_copy_type",
    "_nested_tensor_from_tensor_list",
])  # fmt: skip
"""Operators that PyTorch's own composite kernels bring to ours, or that are about layouts the device has not."""

_THROUGH = ("_copy_from", "as_strided", "view", "_reshape_alias", "_copy_from_and_resize")
"""Operators that see conjugate and negative bits as they are: resolving them copies, which would recurse."""


def register_kernels(device: Device) -> list[torch.library.Library]:
    """Everything on the PrivateUse1 key. The registrations live as long as what is returned."""
    transfers = Transfers(device)
    every = torch.library.Library("_", "IMPL")
    aten = torch.library.Library("aten", "IMPL")
    libraries = [every, aten, *_bits_fall_through()]

    def add(name: str, kernel: Callable[..., Any], key: str = "PrivateUse1") -> None:
        aten.impl(name, kernel, key)

    for name in filter(_has_cpu_kernel, NATIVE):
        add(name, native_kernel(device, overload(name)))
    add("resize_", resize_)
    add("_copy_from", transfers.copy_from)
    add("_copy_from_and_resize", transfers.copy_from_and_resize)
    add("_to_copy", transfers.to_copy)
    add("_local_scalar_dense", transfers.item)
    add("record_stream", _record_stream(device))
    add("is_pinned", lambda tensor, device=None: pinned_block(tensor) is not None, "CPU")
    add("_pin_memory", lambda tensor, device_=None: device.pinned.copy(tensor), "CPU")
    for name, kernel in _special(transfers):
        add(name, kernel)
    for name, with_gradient in (("scaled_dot_product_attention", special.attention), ("linear", special.linear)):
        kernel = _whole(make_kernel(transfers, overload(name)), with_gradient)
        for key in ("PrivateUse1", "AutogradPrivateUse1"):
            add(name, kernel, key)

    kernels: dict[Any, Kernel] = {}

    def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
        if op not in kernels:
            kernels[op] = make_kernel(transfers, op)
        return kernels[op](*args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every.fallback(fallback, "PrivateUse1")
    for name in _direct():
        add(name, make_kernel(transfers, overload(name)))
    return libraries


def _record_stream(device: Device) -> Kernel:
    def kernel(tensor: torch.Tensor, stream: torch.Stream) -> None:
        device.freed.record(memory_of(tensor), device.queue_of(stream))

    return kernel


def _special(transfers: Transfers) -> Iterator[tuple[str, Kernel]]:
    yield "clone", make_kernel(transfers, overload("clone"))
    yield "convolution_overrideable", make_kernel(transfers, overload("convolution"))
    backward = overload("convolution_backward_overrideable")
    yield "convolution_backward_overrideable", make_kernel(transfers, backward, special.convolution_backward)
    for name, run in (
        ("_thnn_fused_lstm_cell", special.lstm_cell),
        ("_thnn_fused_lstm_cell_backward_impl", special.lstm_cell_backward),
        ("_thnn_fused_gru_cell", special.gru_cell),
        ("_thnn_fused_gru_cell_backward", special.gru_cell_backward),
    ):
        yield name, make_kernel(transfers, overload(name), run)


def _whole(kernel_of_whole: Kernel, with_gradient: Kernel) -> Kernel:
    """A composite operator as one kernel, unless autograd is to see its steps."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return with_gradient(*args, **kwargs) if special.wants_gradient(args) else kernel_of_whole(*args, **kwargs)

    return kernel


def _bits_fall_through() -> list[torch.library.Library]:
    libraries = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in ("Conjugate", "Negative"):
            library = torch.library.Library("aten", "IMPL")
            for name in _THROUGH:
                library.impl(name, torch.library.fallthrough_kernel, key)
            libraries.append(library)
    return libraries


def _has_cpu_kernel(name: str) -> bool:
    """Whether `name` may be run at the CPU key: PyTorch ends the process where it has no kernel there."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU")


def _direct() -> Iterator[str]:
    """Operators that PyTorch would take apart into allocation and `.out`, or compose, though the CPU has them whole."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace != "aten" or name.partition(".")[0] in _NOT_DIRECT:
            continue
        if has(full, "PrivateUse1") or has(full, "CompositeImplicitAutograd") or not has(full, "CPU"):
            continue
        try:
            returns = overload(name)._schema.returns
        except AttributeError:
            continue
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        if not views and any("Tensor" in str(r.type) for r in returns):
            yield name
