"""The one emulated device of a process, and how PyTorch comes to know it."""

import functools
import os
from dataclasses import dataclass

import torch

from penaltylab.emu.device import Device
from penaltylab.errors import InputError

_OLDEST = (2, 10)


@dataclass(frozen=True)
class Runtime:
    """The device, and the registrations that keep it known."""

    device: Device
    libraries: tuple[torch.library.Library, ...]


def check_possible() -> None:
    """Refuse where the device cannot be.

    Raises:
        InputError: PyTorch is too old, sees CUDA, or has another renamed backend.
    """
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST:
        raise InputError(f"device 'emu' needs torch 2.10 or newer; this is {torch.__version__}")
    if torch.cuda.is_available() and os.environ.get("PENALTYLAB_EMU") != "1":
        raise InputError("device 'emu': CUDA is available here; use --device cuda, or set PENALTYLAB_EMU=1")
    if (name := torch._C._get_privateuse1_backend_name()) != "privateuseone":
        raise InputError(f"device 'emu': this process has a device {name!r} already; one process uses one such device")


@functools.cache
def runtime() -> Runtime:
    """The runtime, made and registered on first use."""
    from penaltylab.emu.autocast import register_autocast
    from penaltylab.emu.device_module import make_device_module
    from penaltylab.emu.patches import patch_torch
    from penaltylab.emu.registration import register_kernels

    check_possible()
    device = Device()
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("emu", backend_module=make_device_module(device))
    libraries = [*register_kernels(device), *register_autocast()]
    patch_torch(device)
    return Runtime(device, tuple(libraries))
