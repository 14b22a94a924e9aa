"""Operators that PyTorch routes differently on a device of its own kind: convolution, attention, recurrent cells."""

from typing import Any

import torch

from penaltylab.emu.alias import Tensor

aten: Any = torch.ops.aten


def convolution_backward(
    grad: Tensor,
    inputs: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> Any:
    """`convolution_backward_overrideable` by the general operator, which wants to know whether there is a bias."""
    channels = weight.size(1) * groups if transposed else weight.size(0)
    bias = [channels] if output_mask[2] else None
    return aten.convolution_backward.default(
        grad, inputs, weight, bias, stride, padding, dilation, transposed, output_padding, groups, list(output_mask)
    )


def lstm_cell(
    gates_in: Tensor,
    gates_hidden: Tensor,
    cell: Tensor,
    bias_in: Tensor | None = None,
    bias_hidden: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`_thnn_fused_lstm_cell`, which has no CPU kernel: new hidden state, new cell, the gates kept for backward."""
    gates = gates_in + gates_hidden
    for bias in (bias_in, bias_hidden):
        if bias is not None:
            gates = gates + bias
    enter, forget, new, leave = gates.chunk(4, 1)
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    next_cell = forget * cell + enter * new
    return leave * next_cell.tanh(), next_cell, torch.cat([enter, forget, new, leave], 1)


def lstm_cell_backward(
    grad_hidden: Tensor | None, grad_cell: Tensor | None, cell: Tensor, next_cell: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """`_thnn_fused_lstm_cell_backward_impl`: gradients of the gates, of the old cell, of the bias."""
    enter, forget, new, leave = gates.chunk(4, 1)
    squashed = next_cell.tanh()
    hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    carried = hidden * leave * (1 - squashed * squashed)
    if grad_cell is not None:
        carried = carried + grad_cell
    grad_gates = torch.cat(
        [
            carried * new * enter * (1 - enter),
            carried * cell * forget * (1 - forget),
            carried * enter * (1 - new * new),
            hidden * squashed * leave * (1 - leave),
        ],
        1,
    )
    return grad_gates, carried * forget, grad_gates.sum(0) if has_bias else None


def gru_cell(
    gates_in: Tensor,
    gates_hidden: Tensor,
    state: Tensor,
    bias_in: Tensor | None = None,
    bias_hidden: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`_thnn_fused_gru_cell`: new state, and what backward needs (reset, update, new, old state, hidden's new part)."""
    if bias_in is not None:
        gates_in = gates_in + bias_in
    if bias_hidden is not None:
        gates_hidden = gates_hidden + bias_hidden
    reset_in, update_in, new_in = gates_in.chunk(3, 1)
    reset_hidden, update_hidden, new_hidden = gates_hidden.chunk(3, 1)
    reset, update = (reset_in + reset_hidden).sigmoid(), (update_in + update_hidden).sigmoid()
    new = (new_in + reset * new_hidden).tanh()
    return new + update * (state - new), torch.cat([reset, update, new, state, new_hidden], 1)


def gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """`_thnn_fused_gru_cell_backward`: gradients of both gates, of the old state, of both biases."""
    reset, update, new, state, new_hidden = workspace.chunk(5, 1)
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_update = grad * (state - new) * update * (1 - update)
    grad_reset = grad_new * new_hidden * reset * (1 - reset)
    grad_in = torch.cat([grad_reset, grad_update, grad_new], 1)
    grad_hidden = torch.cat([grad_reset, grad_update, grad_new * reset], 1)
    biases = (grad_in.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_in, grad_hidden, grad * update, *biases


def attention(*args: Any, **kwargs: Any) -> Any:
    """`scaled_dot_product_attention` where a gradient is wanted: by its math form, whose steps are differentiable."""
    names = ("attn_mask", "dropout_p", "is_causal")
    options = {**dict(zip(names, args[3:], strict=False)), **kwargs}
    return aten._scaled_dot_product_attention_math.default(*args[:3], **options)[0]


def linear(*args: Any, **kwargs: Any) -> Tensor:
    """`linear` where a gradient is wanted: by the steps that PyTorch composes it of."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return aten.linear.default._op_dk(composite, *args, **kwargs)


def wants_gradient(args: tuple[Any, ...]) -> bool:
    """Whether autograd records what is done to `args`."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in args)
