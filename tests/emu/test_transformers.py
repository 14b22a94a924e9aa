"""Somebody else's code: `generate()` of Hugging Face transformers, small models with random weights, nothing fetched.

The lines that the report names can be looked up in `transformers/generation/utils.py`.
"""

import types
from collections import Counter
from typing import Any

import pytest
import torch

from penaltylab import emu

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers")
utils = pytest.importorskip("transformers.generation.utils")

STEPS = 8
SHAPE = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "greedy with an end": {"do_sample": False, "eos_token_id": list(range(2, 30))},
    "sampled": {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9},
    "beams": {"do_sample": False, "num_beams": 3},
}
MODELS = ("Llama", "Qwen2")


@pytest.fixture(scope="module")
def models() -> dict[str, torch.nn.Module]:
    built = {}
    for name in MODELS:
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**SHAPE)
        built[name] = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    return built


def generate(model: Any, device: str, **way: Any) -> torch.Tensor:
    """Ids of two sequences on the host, the prompt of 7 tokens first."""
    ids = torch.randint(1, 128, (2, 7), generator=torch.Generator().manual_seed(1))
    ids = ids.to(device)
    torch.manual_seed(2)
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=STEPS, **way).cpu()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_cpu(
    module: types.ModuleType, models: dict[str, torch.nn.Module], name: str, way: str
) -> None:
    expected = generate(models[name].cpu(), "cpu", **WAYS[way])
    got = generate(models[name].to("emu"), "emu", **WAYS[way])
    assert got.tolist() == expected.tolist()
    assert expected.shape[1] > 7
    assert emu.hazards() == []


def each_step(syncs: list[emu.Sync]) -> dict[tuple[str, str, str], int]:
    """Kind, file and function, source line, of what happens in transformers as often as there are steps: how often."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for sync in syncs:
        file, function = sync.site.partition("(")[0], sync.site.partition(": ")[2]
        if file != "test_transformers.py":
            seen[sync.kind, f"{file}: {function}", sync.source] += 1
    return {key: number for key, number in seen.items() if number >= STEPS}


CHECK = ("item", "utils.py: __call__", "return bool(unfinished_sequences.max() == 0)")
DRAW = ("checked-values", "utils.py: _sample", "next_tokens = torch.multinomial(probs, num_samples=1).squeeze(1)")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("way", "expected"), [("greedy", {CHECK: STEPS}), ("sampled", {CHECK: STEPS, DRAW: STEPS})])
def test_the_report_names_the_lines_at_which_each_step_waits(
    module: types.ModuleType, models: dict[str, torch.nn.Module], name: str, way: str, expected: dict[object, int]
) -> None:
    model = models[name].to("emu")
    with emu.record_syncs() as seen:
        generate(model, "emu", **WAYS[way])
    assert each_step(seen) == expected
    assert all(sync.raw_site is not None for sync in seen)


def test_forbid_sync_stops_at_the_first_and_takes_a_line_of_transformers(
    module: types.ModuleType, models: dict[str, torch.nn.Module]
) -> None:
    model = models["Llama"].to("emu")
    with emu.forbid_sync(), pytest.raises(emu.HiddenSyncError, match=r"copy-h2d .* at test_transformers\.py"):
        generate(model, "emu")
    with emu.record_syncs() as seen:
        generate(model, "emu")
    lines = {sync.site for sync in seen}
    with emu.forbid_sync(allow=lines):
        generate(model, "emu")
    (check,) = {sync.site for sync in seen if "unfinished_sequences.max()" in sync.source}
    with emu.forbid_sync(allow=lines - {check}), pytest.raises(emu.HiddenSyncError, match=r"unfinished_sequences\.max"):
        generate(model, "emu")
    with emu.forbid_sync(allow={"test_transformers.py"}):
        generate(model, "emu")


class TestDeferredStopCheck:
    """Of transformers, for device "mps" alone: it copies the flag without blocking and reads it a step later. What it
    would do on another device can be tried here.
    """

    @pytest.fixture(autouse=True)
    def _switched_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if not hasattr(utils, "DeferredStopCheck"):
            pytest.skip("this transformers has none")
        monkeypatch.setattr(
            utils.DeferredStopCheck, "is_supported", staticmethod(lambda device, *_, **__: device.type == "emu")
        )

    def test_unpinned_its_copy_waits_all_the_same(
        self, module: types.ModuleType, models: dict[str, torch.nn.Module]
    ) -> None:
        model = models["Llama"].to("emu")
        with emu.record_syncs() as seen:
            got = generate(model, "emu")
        hidden = each_step([sync for sync in seen if sync.hidden])
        assert {(kind, source) for kind, _, source in hidden} == {
            ("copy-d2h", "should_stop.copy_(unfinished_sequences.max() == 0, non_blocking=True)")
        }
        assert got.tolist() == generate(model.cpu(), "cpu").tolist()

    def test_pinned_no_step_has_a_hidden_synchronization(
        self, module: types.ModuleType, models: dict[str, torch.nn.Module], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = utils.DeferredStopCheck.__init__

        def pinned(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self.slots = type(self.slots)((flag.pin_memory(), ids.pin_memory(), done) for flag, ids, done in self.slots)

        monkeypatch.setattr(utils.DeferredStopCheck, "__init__", pinned)
        model = models["Llama"].to("emu")
        with emu.record_syncs() as seen:
            got = generate(model, "emu")
        assert {kind for kind, _, _ in each_step(seen)} == {"event-synchronize"}
        assert emu.hazards() == []
        assert got.tolist() == generate(model.cpu(), "cpu").tolist()
