"""Autocast on the emulated device: CUDA's lists of operators that run in 16 bits and in 32."""

from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.views import overload

_LOW = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
    "convolution", "conv_tbc", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv", "linear", "addbmm",
    "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "linalg_vecdot", "prelu",
    "scaled_dot_product_attention", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell",
]  # fmt: skip
_SINGLE = [
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
    "native_layer_norm", "group_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss",
    "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss",
    "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest2d.vec", "upsample_bilinear2d.vec", "softmax.int", "log_softmax.int", "sum",
    "sum.dim_IntList", "prod", "prod.dim_int", "cumprod", "cumsum", "norm.Scalar", "norm.ScalarOpt_dim",
]  # fmt: skip
_WIDEST = [
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "tensordot",
    "scatter_add", "cat", "stack",
]  # fmt: skip


def register_autocast() -> list[torch.library.Library]:
    """Kernels on the autocast key; what is not listed passes through."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for names, dtype_of in ((_LOW, _low), (_SINGLE, _single), (_WIDEST, _widest)):
        for name in filter(torch._C._dispatch_has_kernel, (f"aten::{name}" for name in names)):
            aten.impl(name, _casting(overload(name.removeprefix("aten::")), dtype_of), "AutocastPrivateUse1")
    return [every, aten]


def _casting(op: Any, dtype_of: Callable[[list[torch.Tensor]], torch.dtype]) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            dtype = dtype_of([x for x in _tensors([*args, *kwargs.values()]) if _eligible(x)])
            return op(*[_cast(x, dtype) for x in args], **{name: _cast(x, dtype) for name, x in kwargs.items()})

    return kernel


def _low(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype("emu")


def _single(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    wide = any(x.dtype is torch.float32 for x in tensors)
    return torch.float32 if wide else torch.get_autocast_dtype("emu")


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def _eligible(x: torch.Tensor) -> bool:
    return x.is_floating_point() and x.device.type == "emu" and x.dtype is not torch.float64


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, torch.Tensor):
        return x.to(dtype) if _eligible(x) else x
    if isinstance(x, (list, tuple)):
        return type(x)(_cast(item, dtype) for item in x)
    return x
