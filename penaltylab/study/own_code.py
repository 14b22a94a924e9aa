"""A decode loop as one writes it at first, and as it is when nothing in it waits in secret or races.

The subject of notebook 07. Both give the same tokens.
"""

import inspect
from typing import TYPE_CHECKING

import torch

from penaltylab import emu

if TYPE_CHECKING:
    from IPython.display import Code

BATCH, VOCAB, END = 4, 64, 7


def _model(device: str) -> torch.Tensor:
    """Logits by last token (vocab, vocab)."""
    table = (torch.arange(VOCAB).view(-1, 1) * 37 + torch.arange(VOCAB) * 11) % 61
    return table.to(device).float()


def decode(steps: int = 8, device: str = "emu") -> list[list[int]]:
    """The tokens of each step, as they come to the host."""
    model, tokens = _model(device), torch.arange(BATCH, device=device)
    finished = torch.zeros(BATCH, dtype=torch.bool, device=device)
    module = torch.get_device_module(device)
    staging, side, output = torch.zeros(BATCH, pin_memory=True), module.Stream(), []
    for step in range(steps):
        emu.busy(2.5, "forward")
        logits = model[tokens]
        logits = logits / torch.tensor([1.0 + row for row in range(BATCH)], device=device).unsqueeze(1)
        logits[finished] -= 100.0
        staging.fill_(step)
        logits += staging.to(device, non_blocking=True).unsqueeze(1)
        tokens = logits.argmax(-1)
        with module.stream(side):
            finished = finished | (tokens == END)
        if finished.all():
            break
        output.append(tokens.tolist())
    return output


def decode_mended(steps: int = 8, device: str = "emu") -> list[list[int]]:
    """`decode`: inputs pinned, a mask instead of an index, streams ordered, results read one step behind."""
    model, tokens = _model(device), torch.arange(BATCH, device=device)
    finished = torch.zeros(BATCH, dtype=torch.bool, device=device)
    module = torch.get_device_module(device)
    temperatures = torch.tensor([1.0 + row for row in range(BATCH)], pin_memory=True).to(device, non_blocking=True)
    output: list[list[int]] = []
    behind = None
    for step in range(steps):
        emu.busy(2.5, "forward")
        logits = model[tokens] / temperatures.unsqueeze(1)
        logits = torch.where(finished.unsqueeze(1), logits - 100.0, logits)
        staged = torch.full((BATCH,), float(step), pin_memory=True)  # a block of its own: the allocator keeps it
        logits += staged.to(device, non_blocking=True).unsqueeze(1)
        tokens = logits.argmax(-1)
        finished = finished | (tokens == END)
        ahead = (
            tokens.to("cpu", non_blocking=True),
            finished.all().to("cpu", non_blocking=True),
            module.current_stream().record_event(),
        )
        if behind is not None and _take(behind, output):
            return output
        behind = ahead
    if behind is not None:
        _take(behind, output)
    return output


def _take(result: tuple[torch.Tensor, torch.Tensor, torch.Event], output: list[list[int]]) -> bool:
    """Wait for a step's result; whether every row has come to its end."""
    tokens, all_finished, done = result
    done.synchronize()
    if bool(all_finished):
        return True
    output.append(tokens.tolist())
    return False


def source() -> "Code":
    """What `decode` says."""
    from IPython.display import Code

    return Code(inspect.getsource(decode), language="python")
