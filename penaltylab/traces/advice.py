"""One line on what to change: drop the synchronization first, pin only where size makes it matter."""

from penaltylab.traces.copies import STAGED_BYTES
from penaltylab.traces.waits import THE_COPY

_FREE = "costs nothing here (no bubble); to remove it: "


def advise(kind: str, size: int | None, memory: str, waited_on: object, bubble_us: float, item: bool) -> str:
    """Advice for a stall.

    Args:
        kind: the kind of stall.
        size: bytes of the copy, None where unknown or where there is no copy.
        memory: of the host: pageable, pinned or unknown.
        waited_on: as in the stall.
        bubble_us: what the stall cost the GPU.
        item: whether the copy was made for a Python number (`.item()`, `bool(tensor)`).
    """
    advice = _KINDS[kind](size or 0, memory, waited_on == THE_COPY, item)
    return f"{_FREE}{advice}" if bubble_us < 1 else advice


def _to_device(size: int, memory: str, only_copy: bool, _item: bool) -> str:
    if memory == "pinned":
        return "the source is pinned already: pass non_blocking=True, and do not overwrite it until the copy has run"
    if size > STAGED_BYTES:
        return "pass non_blocking=True from a pinned source; at this size a pageable source would block all the same"
    if only_copy:
        return "pass non_blocking=True, or make the tensor on the device; at this size pinning changes little"
    return "drop the synchronization: pass non_blocking=True; at this size pinning is secondary"


def _to_host(_size: int, _memory: str, _only_copy: bool, item: bool) -> str:
    if item:
        return "keep the number on the device (torch.where, masks), or read it a step later from a pinned buffer"
    return "copy into a pinned buffer with non_blocking=True, record an event, and read it when the event is done"


def _stream(_size: int, _memory: str, _only_copy: bool, _item: bool) -> str:
    return "order streams with an event (wait_event, wait_stream) instead of making the host wait"


def _device(_size: int, _memory: str, _only_copy: bool, _item: bool) -> str:
    return "remove torch.cuda.synchronize() from the loop; where a result is needed, wait for its event alone"


def _event(_size: int, _memory: str, _only_copy: bool, _item: bool) -> str:
    return "wait for the event later, after the next step is launched, or let a stream wait for it (wait_event)"


def _memset(_size: int, _memory: str, _only_copy: bool, _item: bool) -> str:
    return "use the asynchronous memset (tensor.zero_()) on the stream that needs it"


_KINDS = {
    "blocking-h2d": _to_device,
    "blocking-d2h": _to_host,
    "stream-sync": _stream,
    "device-sync": _device,
    "event-sync": _event,
    "memset-sync": _memset,
}
KINDS = tuple(_KINDS)
"""The kinds of stall, in the order in which reports name them."""
