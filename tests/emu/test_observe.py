"""What a function did on the device, as tables; by the two loops of notebook 07."""

import pytest
import torch

from penaltylab import emu
from penaltylab.study import own_code


def test_a_row_is_a_line_of_the_program() -> None:
    def body() -> str:
        x = torch.ones(4, device="emu")
        for _ in range(3):
            x.sum().item()
        return "done"

    observed = emu.observe(body)
    (row,) = observed.sync_table().to_dict("records")
    assert observed.result == "done"
    assert (row["kind"], row["times"], row["hidden"], row["source"]) == ("item", 3, True, "x.sum().item()")
    assert row["line"].endswith(": body")
    assert row["blocked us (SIMULATED)"] == pytest.approx(sum(sync.blocked_us for sync in observed.syncs), abs=0.2)
    assert observed.hazard_table().empty


def test_each_run_is_on_a_fresh_device() -> None:
    emu.observe(own_code.decode)
    assert emu.observe(emu.now_us).result == 0
    assert emu.hazards() == []


def test_the_first_loop_waits_and_races_where_it_is_said_to() -> None:
    observed = emu.observe(own_code.decode)
    in_the_loop = observed.sync_table().query("line.str.endswith(': decode')")
    assert list(in_the_loop["kind"]) == ["copy-h2d", "boolean-index", "item", "copy-d2h"]
    assert {hazard.kind for hazard in observed.hazards} == {"read-after-write", "freed-in-use"}
    assert not observed.hazard_table().empty


def test_the_mended_loop_gives_the_same_tokens_and_does_neither() -> None:
    mended = emu.observe(own_code.decode_mended)
    assert mended.hazards == []
    assert {sync.site.partition(": ")[2] for sync in mended.syncs if sync.hidden} == {"_model"}
    assert mended.result == emu.observe(own_code.decode).result
    assert len(mended.result) > 2


def test_both_loops_stop_when_every_row_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    emu.register()
    monkeypatch.setattr(own_code, "BATCH", 1)
    (first,), *_ = own_code.decode()
    monkeypatch.setattr(own_code, "END", first)
    assert own_code.decode() == own_code.decode_mended() == []
