"""A program gives on `emu` the values that it gives on `cpu`: PyTorch's own modules, forward and backward."""

import copy
import io
import math
import pickle
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from penaltylab import emu

pytestmark = pytest.mark.usefixtures("module")

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(8, 4), (3, 8)),
    "LayerNorm": (lambda: nn.LayerNorm(8), (3, 8)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (3, 8)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 8)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 8, 8)),
    "Conv1d, grouped": (lambda: nn.Conv1d(3, 6, 3, groups=3), (2, 3, 8)),
    "Conv2d": (lambda: nn.Conv2d(3, 6, 3, padding=1), (2, 3, 8, 8)),
    "Conv2d without bias": (lambda: nn.Conv2d(3, 6, 3, stride=2, bias=False), (2, 3, 8, 8)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 6, 3, stride=2), (2, 3, 8, 8)),
    "LSTM": (lambda: nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True), (2, 5, 8)),
    "LSTM without bias": (lambda: nn.LSTM(8, 6, bias=False), (5, 2, 8)),
    "GRU": (lambda: nn.GRU(8, 6, 2), (5, 2, 8)),
    "RNN": (lambda: nn.RNN(8, 6), (5, 2, 8)),
    "LSTMCell": (lambda: nn.LSTMCell(8, 6), (5, 8)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(16, 4, batch_first=True), (2, 5, 16)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (1, 2, 4, 4)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 4, 4)),
    "MLP with Dropout": (lambda: nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Dropout(0.5), nn.Softmax(-1)), (3, 8)),
}


def tensors(out: Any) -> list[torch.Tensor]:
    return [out] if isinstance(out, torch.Tensor) else [tensor for item in out for tensor in tensors(item)]


def close(expected: list[torch.Tensor], got: list[torch.Tensor]) -> None:
    assert all(x.device.type == "emu" for x in got)
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other.detach().cpu(), one.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_and_its_gradients(name: str, train: bool) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    host = make().train(train)
    device = copy.deepcopy(host).to("emu")
    x = torch.randn(shape)
    x_host, x_device = x.clone().requires_grad_(), x.to("emu").requires_grad_()
    torch.manual_seed(1)
    expected = tensors(host(x_host))
    torch.manual_seed(1)
    got = tensors(device(x_device))
    close(expected, got)
    sum(out.sin().sum() for out in expected).backward()
    sum(out.sin().sum() for out in got).backward()
    close([x_host.grad], [x_device.grad])
    close([p.grad for p in host.parameters()], [p.grad for p in device.parameters()])
    with torch.no_grad():
        close(tensors(host.eval()(x)), tensors(device.eval()(x.to("emu"))))
    assert emu.hazards() == []


def close_parameters(host: nn.Module, device: nn.Module) -> None:
    close([p.data for p in host.parameters()], [p.data for p in device.parameters()])


@pytest.mark.parametrize("need_weights", [False, True])
def test_multi_head_attention(need_weights: bool) -> None:
    host = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    device = copy.deepcopy(host).to("emu")
    x, mask = torch.randn(2, 5, 16), nn.Transformer.generate_square_subsequent_mask(5)
    y = x.to("emu")
    close([host(x, x, x, attn_mask=mask)[0]], [device(y, y, y, attn_mask=mask.to("emu"), need_weights=need_weights)[0]])


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}])
def test_scaled_dot_product_attention(options: dict[str, Any]) -> None:
    q, kv = torch.randn(2, 4, 5, 8), torch.randn(2, 2 if "enable_gqa" in options else 4, 5, 8)
    expected = F.scaled_dot_product_attention(q, kv, kv, **options)
    close([expected], [F.scaled_dot_product_attention(q.to("emu"), kv.to("emu"), kv.to("emu"), **options)])
    leaf = q.to("emu").requires_grad_()
    with_grad = F.scaled_dot_product_attention(leaf, kv.to("emu"), kv.to("emu"), **options)
    close([expected], [with_grad])
    with_grad.sum().backward()
    assert leaf.grad is not None


def test_embedding_and_its_sparse_rows() -> None:
    host = nn.Embedding(10, 4, padding_idx=0)
    device, ids = copy.deepcopy(host).to("emu"), torch.randint(0, 10, (3, 5))
    close([host(ids)], [device(ids.to("emu"))])
    host(ids).sum().backward()
    device(ids.to("emu")).sum().backward()
    close([host.weight.grad], [device.weight.grad])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("foreach", [False, True])
def test_training_steps(optimizer: Any, foreach: bool) -> None:
    host = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    device = copy.deepcopy(host).to("emu")
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    for module, where in ((host, "cpu"), (device, "emu")):
        steps = optimizer(module.parameters(), lr=0.1, foreach=foreach)
        for _ in range(3):
            steps.zero_grad()
            F.cross_entropy(module(x.to(where)), y.to(where)).backward()
            steps.step()
    close_parameters(host, device)


def test_state_dict_goes_through_a_file_and_back() -> None:
    file = io.BytesIO()
    source = nn.Linear(3, 2).to("emu")
    torch.save(source.state_dict(), file)
    file.seek(0)
    there = torch.load(file)
    file.seek(0)
    here = torch.load(file, map_location="cpu", weights_only=True)
    assert (there["weight"].device.type, here["weight"].device.type) == ("emu", "cpu")
    target = nn.Linear(3, 2).to("emu")
    target.load_state_dict(here)
    assert torch.equal(target.weight, source.weight)
    assert torch.equal(there["bias"], source.bias)


def test_copies_and_pickles() -> None:
    x = torch.arange(6, device="emu").view(2, 3).t()
    for twin in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert twin.device.type == "emu"
        assert twin.tolist() == [[0, 3], [1, 4], [2, 5]]
    both = copy.deepcopy([x, x[0]])
    both[1].zero_()
    assert both[0][0].tolist() == [0, 0]
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    parameter = copy.deepcopy(nn.Parameter(torch.ones(2, device="emu")))
    assert isinstance(parameter, nn.Parameter)


def test_in_place_views_change_the_tensor_itself() -> None:
    x = torch.arange(6.0, device="emu").view(2, 3)
    base = x.view(-1)
    assert x.unsqueeze_(0).shape == (1, 2, 3)
    assert x.squeeze_(0).t_().shape == (3, 2)
    x.add_(1)
    assert x.transpose_(0, 1).tolist() == [[1, 2, 3], [4, 5, 6]]
    square = torch.arange(4.0, device="emu").view(2, 2)
    assert (square + 0).tolist() == [[0, 1], [2, 3]]
    square.t_()
    assert (square + 0).tolist() == [[0, 2], [1, 3]]
    assert base.tolist() == [1, 2, 3, 4, 5, 6]


def test_views_share_memory_with_their_base() -> None:
    x = torch.zeros(4, 4, device="emu")
    x[1:3, ::2].add_(1)
    x.diagonal().fill_(7)
    x.view(torch.int32)[3, 0] = 5
    assert x[1].tolist() == [1, 7, 1, 0]
    assert x.view(torch.int32)[3, 0].item() == 5
    assert [part.tolist() for part in x[1].split(2)] == [[1, 7], [1, 0]]
    z = torch.tensor([1 + 2j], device="emu")
    torch.view_as_real(z)[0, 0] = 5
    assert (z.conj() * 2).item() == 10 - 4j
    assert z.conj().imag.tolist() == [-2]


def test_overlapping_writes_are_refused_as_on_cpu() -> None:
    x = torch.zeros(6, device="emu")
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:1].expand(3).add_(1)


def test_out_arguments_of_right_wrong_and_strided_shape() -> None:
    x = torch.ones(2, 3, device="emu")
    right, wrong = torch.empty(2, 3, device="emu"), torch.empty(0, device="emu")
    strided = torch.empty(2, 6, device="emu")[:, ::2]
    for out in (right, wrong, strided):
        assert torch.add(x, 2, out=out) is out
        assert out.tolist() == [[3, 3, 3]] * 2
    values, indices = torch.empty(0, device="emu"), torch.empty(0, dtype=torch.int64, device="emu")
    torch.max(x, 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1, 1], [0, 0])


def test_a_tensor_can_grow() -> None:
    x = torch.arange(4, device="emu")
    x.resize_(2)
    assert x.tolist() == [0, 1]
    x.resize_(8)
    assert x[:4].tolist() == [0, 1, 2, 3]
    x.data = torch.ones(2, device="emu").to(torch.int64)
    assert (x + 1).tolist() == [2, 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.uint16])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype)
    y = x.to("emu")
    assert torch.equal(y.cpu(), x)
    assert torch.equal(y.to(torch.float32).cpu(), x.to(torch.float32))
    if dtype.is_floating_point:
        assert torch.equal((y @ y).cpu(), x @ x)


def test_random_numbers_are_the_cpus() -> None:
    for draw in (lambda d: torch.rand(4, device=d), lambda d: torch.ones(4, device=d).bernoulli_(0.5)):
        torch.manual_seed(3)
        expected = draw("cpu")
        torch.manual_seed(3)
        assert torch.equal(draw("emu").cpu(), expected)
    on_emu, on_cpu = torch.Generator("emu"), torch.Generator("cpu")
    assert on_emu.device.type == "emu"
    assert isinstance(on_emu, torch.Generator)
    assert on_cpu.device.type == "cpu"
    expected = torch.randn(3, generator=on_cpu.manual_seed(5))
    assert torch.equal(torch.randn(3, generator=on_emu.manual_seed(5), device="emu").cpu(), expected)
    state = torch.get_device_module("emu").get_rng_state()
    first = torch.rand(2, device="emu")
    torch.get_device_module("emu").set_rng_state(state)
    assert torch.equal(torch.rand(2, device="emu"), first)


def test_autocast_has_cudas_lists() -> None:
    linear, x = nn.Linear(4, 4).to("emu"), torch.ones(2, 4, device="emu")
    with torch.autocast("emu", dtype=torch.bfloat16):
        low = linear(x)
        assert low.dtype is torch.bfloat16
        assert low.softmax(-1).dtype is torch.float32
        assert (low + x).dtype is torch.float32
        assert torch.cat([low, x]).dtype is torch.float32
        assert F.scaled_dot_product_attention(x[None], x[None], x[None]).dtype is torch.bfloat16
    assert linear(x).dtype is torch.float32
    expected = F.linear(torch.ones(2, 4).bfloat16(), linear.weight.cpu().bfloat16(), linear.bias.cpu().bfloat16())
    assert torch.equal(low.cpu(), expected)


def test_default_device_and_like_and_new() -> None:
    with torch.device("emu"):
        assert torch.zeros(2).device.type == "emu"
        assert torch.tensor([1]).device.type == "emu"
    x = torch.ones(2, device="emu")
    assert {t.device.type for t in (torch.zeros_like(x), x.new_zeros(3), x.new_tensor([1]), x.emu())} == {"emu"}
    assert x.is_emu
    assert str(x.device) == "emu:0"
    assert repr(x) == "tensor([1., 1.], device='emu:0')"


def test_inference_mode() -> None:
    linear = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with torch.inference_mode():
        expected = linear(x)
        device = copy.deepcopy(linear).to("emu")
        y = device(x.to("emu"))
        y.add_(1).unsqueeze_(0)
    close([expected + 1], [y[0]])


def test_nothing_leaks(module: types.ModuleType) -> None:
    def rss() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def work() -> None:
        for _ in range(20):
            x = torch.ones(250_000, device="emu")
            y = (x * 2).view(500, 500).t()[3:]
            y.add_(1)
            torch.mm(y, y.t()).sum()

    work()
    before = rss()
    for _ in range(10):
        work()
    assert rss() - before < 20e6


def test_numbers_that_are_not_finite() -> None:
    x = torch.tensor([math.inf, math.nan, -math.inf], device="emu")
    assert torch.nan_to_num(x, 1.0, 2.0, 3.0).tolist() == [2, 1, 3]
    assert x.isnan().tolist() == [False, True, False]
