"""`torch.Stream`, `torch.Event` and `torch.Generator` for this device, which in C++ would do nothing or fail."""

from typing import Any

import torch

from penaltylab.emu.alias import check_device
from penaltylab.emu.streams import Event, Stream


class _Routed(type):
    """The type of a stand-in for a class of PyTorch's: it makes ours for device emu and the original for any other,
    and whatever is an instance of the original is one of it.
    """

    _original: type
    _ours: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_original" not in cls.__dict__:
            return super().__call__(*args, **kwargs)
        device = kwargs.get("device", args[0] if args else None)
        if _is_emu(device, cls.__name__):
            return cls._ours(*args, **kwargs)
        return cls._original(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, cls._original) if "_original" in cls.__dict__ else super().__instancecheck__(instance)
        )

    def __subclasscheck__(cls, subclass: type) -> bool:
        return (
            issubclass(subclass, cls._original) if "_original" in cls.__dict__ else super().__subclasscheck__(subclass)
        )


def _is_emu(device: Any, name: str) -> bool:
    if device is None:
        return name != "Generator"  # PyTorch's default: the accelerator for streams and events, else the CPU
    if isinstance(device, int):
        return name != "Generator"
    return torch.device(device).type == "emu"


def _stream(device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
    if kwargs:
        raise RuntimeError("emu: torch.Stream takes `device` and `priority`; a stream is not made from an id")
    return Stream(device, priority)


def _event(
    device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
) -> Event:
    if device is not None and not isinstance(device, int):
        check_device(torch.device(device))
    return Event(enable_timing, blocking, interprocess)


class Generator(torch.Generator):
    """A generator of random numbers for device emu: the CPU's, so that the numbers equal the CPU's."""

    def __new__(cls, device: Any = "emu") -> "Generator":
        check_device(torch.device(device))
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """emu:0."""
        return torch.device("emu", 0)


def route_classes() -> None:
    """Put the stand-ins in place."""
    ours: dict[str, Any] = {"Stream": _stream, "Event": _event, "Generator": Generator}
    for name, maker in ours.items():
        original = getattr(torch, name)
        kind = _Routed if type(original) is type else type("_Routed", (_Routed, type(original)), {})
        stand_in = kind(name, (original,), {"_original": original, "_ours": staticmethod(maker), "__module__": "torch"})
        setattr(torch, name, stand_in)
