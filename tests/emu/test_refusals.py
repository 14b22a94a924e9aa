"""What the device cannot do it refuses, with PyTorch's kind of error and one clear line."""

import multiprocessing
import os
import subprocess
import sys
import types

import pytest
import torch

from penaltylab import emu

pytestmark = pytest.mark.usefixtures("module")


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, y: x + y,
        lambda x, y: y + x,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.where(x > 0, x, y),
        lambda x, y: torch.nn.functional.linear(x, y.view(1, 3)),
        lambda x, y: torch.add(x, x, out=y),
        lambda x, y: x.add_(y),
        lambda x, y: y.add_(x),
        lambda x, y: x.index_select(0, y.long()),
    ],
)
def test_devices_do_not_mix(mix: object) -> None:
    with pytest.raises(RuntimeError, match="at least two devices, emu:0 and cpu"):
        mix(torch.ones(3, device="emu"), torch.ones(3))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x, y, i: y[i], "on the same device as the indexed tensor"),
        (lambda x, y, i: y.__setitem__(i, 1.0), "on the same device as the indexed tensor"),
        (lambda x, y, i: x.__setitem__(i.repeat(2), y[:2]), "at least two devices"),
        (lambda x, y, i: x.index_put_((i,), y[:1], accumulate=True), "at least two devices"),
    ],
)
def test_indices_may_be_on_the_host_and_what_they_index_not(use: object, message: str) -> None:
    x, y, index = torch.ones(3, device="emu"), torch.ones(3), torch.tensor([1], device="emu")
    with pytest.raises(RuntimeError, match=message):
        use(x, y, index)  # type: ignore[operator]
    x[torch.tensor([1])] = 5
    x[index] = torch.tensor(6.0)
    assert x[torch.tensor([1])].tolist() == [6]


def test_host_scalars_may_be_used_on_the_device() -> None:
    assert (torch.ones(3, device="emu") * torch.tensor(2.0)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.ones(3, device="emu:1"),
        lambda: torch.ones(3).to("emu:1"),
        lambda: torch.ones(3, device="emu").to("emu:1"),
        lambda: torch.tensor([1], device="emu:1"),
        lambda: torch.arange(3, device="emu:1"),
        lambda: torch.get_device_module("emu").set_device(1),
        lambda: torch.Stream(device="emu:1"),
        lambda: torch.Event(device="emu:1"),
        lambda: torch.UntypedStorage(8, device="emu:1"),
    ],
)
def test_there_is_one_device(use: object) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal 1; there is one device, emu:0"):
        use()  # type: ignore[operator]


def test_untyped_storage_on_the_device_does_not_crash() -> None:
    storage = torch.UntypedStorage(8, device="emu")
    assert (storage.device.type, storage.nbytes()) == ("emu", 8)
    assert torch.UntypedStorage(8).device.type == "cpu"
    assert torch.UntypedStorage([1, 2]).nbytes() == 2


def test_layouts_other_than_strided() -> None:
    with pytest.raises(NotImplementedError, match=r"no tensors of layout torch\.sparse_coo"):
        torch.eye(2, device="emu").to_sparse()


def test_dtypes_that_are_quantized() -> None:
    with pytest.raises(NotImplementedError, match=r"emu: no tensors of dtype torch\.qint8"):
        torch.quantize_per_tensor(torch.ones(3, device="emu"), 0.1, 0, torch.qint8)


@pytest.mark.parametrize("name", ["CUDAGraph", "graph", "make_graphed_callables"])
def test_graphs_are_refused_in_words(module: types.ModuleType, name: str) -> None:
    with pytest.raises(RuntimeError, match="emu: graphs are not emulated"):
        getattr(module, name)()


def test_a_second_name_for_the_backend_is_refused_by_pytorch() -> None:
    with pytest.raises(RuntimeError, match="Current backend: emu"):
        torch.utils.rename_privateuse1_backend("npu")
    assert torch.ones(1, device="emu").item() == 1


def test_an_operator_that_has_a_kernel_for_another_device_only() -> None:
    library = torch.library.Library("penaltylab_test", "DEF")
    library.define("only_cuda(Tensor x) -> Tensor")
    library.impl("only_cuda", lambda x: x, "CUDA")
    with pytest.raises(NotImplementedError, match=r"penaltylab_test::only_cuda"):
        torch.ops.penaltylab_test.only_cuda(torch.ones(1, device="emu"))


def test_an_operator_without_a_cpu_kernel_is_not_run_at_a_key_it_has_not() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ops.aten._cudnn_init_dropout_state(0.5, True, 3, dtype=torch.uint8, device=torch.device("emu"))


def test_conjugate_tensors_do_not_recurse() -> None:
    z = torch.tensor([1 + 2j], device="emu").conj()
    assert z.clone().tolist() == [1 - 2j]
    assert torch.empty(1, dtype=torch.complex64, device="emu").copy_(z).tolist() == [1 - 2j]
    assert z.imag.neg().cpu().tolist() == [2]


def test_numpy_wants_a_host_tensor() -> None:
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
        torch.ones(2, device="emu").numpy()


def test_torch_compile_says_that_it_cannot(module: types.ModuleType) -> None:
    import torch._dynamo.exc

    compiled = torch.compile(lambda x: x.sin() + 1)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"emu: torch\.compile has no backend"):
        compiled(torch.ones(2, device="emu"))


def test_copies_to_other_devices() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(2, device="emu").to("meta").cpu()


def test_a_device_tensor_does_not_go_to_another_process() -> None:
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    with pytest.raises(RuntimeError, match=r"emu: a device tensor cannot go to another process; send tensor\.cpu\(\)"):
        queue.put(torch.ones(2, device="emu"))


def test_a_forked_child_cannot_use_the_device() -> None:
    x = torch.ones(2, device="emu")
    child = os.fork()
    if not child:
        try:
            x + x
        except RuntimeError as error:
            os._exit(0 if "Cannot re-initialize emu in forked subprocess" in str(error) else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (x + x).tolist() == [2, 2]


def test_a_data_loader_that_pins_and_forks() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8))
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=1, pin_memory=True, multiprocessing_context="fork"
    )
    batches = [batch.to("emu", non_blocking=True) for (batch,) in loader]
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


def test_registration_is_refused_where_it_cannot_be() -> None:
    lines = [
        "import torch, penaltylab.emu as emu",
        "from penaltylab.errors import InputError",
        "def refused():",
        "    try: emu.register()",
        "    except InputError as error: return str(error)",
        "torch.cuda.is_available = lambda: True",
        "assert 'CUDA is available' in refused(), refused()",
        "torch.cuda.is_available = lambda: False",
        "kept, torch.__version__ = torch.__version__, '2.9.1+cpu'",
        "assert 'needs torch 2.10 or newer; this is 2.9.1' in refused()",
        "torch.__version__ = kept",
        "torch.utils.rename_privateuse1_backend('npu')",
        "assert \"has a device 'npu' already\" in refused()",
    ]
    done = python("\n".join(lines), PENALTYLAB_EMU="")
    assert done.returncode == 0, done.stderr


def test_importing_registers_nothing_and_registering_twice_is_once() -> None:
    lines = [
        "import torch, penaltylab.emu as emu",
        "assert torch._C._get_privateuse1_backend_name() == 'privateuseone'",
        "emu.register(); emu.register()",
        "assert torch.ones(1, device='emu').item() == 1",
    ]
    done = python("\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_other_devices_are_as_before() -> None:
    x = torch.zeros(3)
    x[0] = 1
    x.add_(1)
    before = emu.now_us()
    assert x.tolist() == [2, 1, 1]
    assert torch.compile(lambda y: y * 2, backend="eager")(x).tolist() == [4, 2, 2]
    assert emu.now_us() == before
