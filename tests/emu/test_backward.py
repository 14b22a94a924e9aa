import types
from collections.abc import Callable

import torch

from penaltylab import emu

Logged = Callable[[Callable[[], object]], emu.Log]


def test_each_node_runs_on_the_stream_of_its_forward(module: types.ModuleType, logged: Logged) -> None:
    side = module.Stream()
    weight = torch.ones(4, 4, device="emu", requires_grad=True)
    here = weight * 2
    side.wait_stream(module.current_stream())
    with side:
        there = (here @ here).sin()
    module.current_stream().wait_stream(side)
    loss = there.sum()
    log = logged(loss.backward)
    streams = {op.name: op.stream for op in log.device_ops}
    assert streams["at::native::cos"] == streams["at::native::mm"] == side.stream_id
    assert log.device_ops[-1].stream == 7  # the gradient of the first product
    weight.grad.add_(1)
    assert emu.hazards() == []


def test_the_sites_of_a_backward_pass_are_the_line_that_asked_for_it(module: types.ModuleType, logged: Logged) -> None:
    x = torch.ones(2, device="emu", requires_grad=True)
    loss = (x * x).sum()
    log = logged(loss.backward)
    assert {call.site.partition(": ")[2] for call in log.calls} == {"run"}


def test_a_gradient_made_on_a_side_stream_is_waited_for_by_the_caller(module: types.ModuleType) -> None:
    side = module.Stream()
    x = torch.ones(2, device="emu", requires_grad=True)
    side.wait_stream(module.current_stream())
    with side:
        (x * x).sum().backward()
    assert emu.hazards() == []
    x.grad.add_(1)  # the caller of backward was on the side stream; the default stream has not waited
    assert [hazard.kind for hazard in emu.hazards()] == ["write-after-write"]


def test_grad_of_grad(module: types.ModuleType) -> None:
    x = torch.tensor([3.0], device="emu", requires_grad=True)
    (first,) = torch.autograd.grad(x**3, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert (first.tolist(), second.tolist()) == ([27], [18])


def test_work_without_a_gradient_on_a_side_stream_takes_no_node_along(module: types.ModuleType, logged: Logged) -> None:
    x = torch.ones(2, device="emu", requires_grad=True)
    loss = (x * x).sum()
    with module.Stream():
        torch.zeros(2, device="emu") + 1
    assert {op.stream for op in logged(loss.backward).device_ops} == {7}
