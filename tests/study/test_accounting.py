"""What upstream's accounting loses, as relations; the exact one loses nothing."""

from pathlib import Path

import pytest
from pandas import DataFrame

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study import accounting
from penaltylab.study.collect import Collector
from penaltylab.study.observed import observe
from penaltylab.study.plain import PlainDecoder
from penaltylab.study.records import read_rows
from tests.oracle import decode_exactly

SMALL = {"device": "emu", "steps": 24, "warmup": 2, "batch_size": 4, "vocab_size": 64, "forward_ms": 0.5}


@pytest.fixture
def study(tmp_path: Path) -> Collector:
    return Collector(str(tmp_path), "accounting", **SMALL)


def test_the_plain_decoder_equals_the_oracle_of_the_tests() -> None:
    params = Params.of(**SMALL)
    some = {"frequency_penalty": 0.5, "presence_penalty": 0.25, "repetition_penalty": 2.0, "min_new_tokens": 9}
    req = Req(0, [5], SamplingParams(40, stop_token_ids=frozenset(range(0, 64, 5)), **some), Tokenizer(63))
    tokens = PlainDecoder(params).decode(req, 40)
    assert tokens == decode_exactly(params, req, 40)
    assert len(tokens) > 9


def test_the_plain_decoder_knows_one_model() -> None:
    with pytest.raises(InputError, match="only greedy markov"):
        PlainDecoder(Params.of(device="emu", temperature=1.0))


@pytest.mark.parametrize("scenario", ["steady", "churn"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_observing_a_run_does_not_change_it_and_exact_is_told_every_token_once(path: str, scenario: str) -> None:
    params = Params.of(**SMALL, path=path, scenario=scenario, accounting="exact")
    seen = observe(params)
    for rid, tokens in seen.run.tokens.items():
        assert seen.counted(rid)[: len(tokens)] == tokens
        assert tokens == decode_exactly(params, _request(params, rid), len(tokens))
    assert seen.share_counted() == 1.0


def _request(params: Params, rid: int) -> Req:
    from penaltylab.engine.workload import make_requests

    return next(req for req in make_requests(params) if req.rid == rid)


def test_exact_accounting_is_checked_against_each_request_alone(study: Collector) -> None:
    table = accounting.check_against_each_alone(study, [1.0])
    assert list(table.index) == ["normal", "eagle, acceptance 1"]
    assert table["same as alone"].all()


def test_a_wrong_token_is_not_passed_over(study: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "EXACT", {})
    with pytest.raises(RuntimeError, match="other tokens than decoded alone"):
        accounting.check_against_each_alone(study, [1.0])


@pytest.fixture
def by_acceptance(study: Collector) -> DataFrame:
    return accounting.by_acceptance(study, [0.0, 0.6, 1.0])


def test_the_penalty_falls_with_acceptance_and_the_exact_one_does_not(by_acceptance: DataFrame) -> None:
    eagle = by_acceptance.loc["eagle"]
    assert eagle["counted %"].is_monotonic_decreasing
    assert (eagle["counted %"] * eagle["tokens a launch"]).between(85, 110).all()  # about 1/L of nominal
    assert (by_acceptance["exact counts %"] == 100).all()


def test_without_overlap_the_normal_path_loses_nothing_and_with_it_one_token(by_acceptance: DataFrame) -> None:
    alone, overlapped = by_acceptance.loc["normal, no overlap"].iloc[0], by_acceptance.loc["normal"].iloc[0]
    assert (alone["counted %"], alone["tokens that differ %"], alone["first at"]) == (100, 0, "never")
    assert overlapped["counted %"] == pytest.approx(100 * (24 - 1) / 24, abs=0.1)


def test_each_run_is_kept_with_what_it_counted(by_acceptance: DataFrame, tmp_path: Path) -> None:
    rows = {row.arm: row.metrics["counted_share"] for row in read_rows(tmp_path)}
    assert rows.pop("exact") == 1.0
    assert [round(100 * share, 1) for share in rows.values()] == list(by_acceptance["counted %"])


def test_a_minimum_is_overshot_by_rounds_and_met_by_tokens(study: Collector) -> None:
    table = accounting.minimum_lengths(study, [0.0, 1.0])
    assert (table["ended"] == 4).all()
    shortest = table["shortest"]
    assert shortest["upstream, normal"] == shortest["exact, eagle 1"] == 13
    assert shortest["upstream, eagle 1"] > 1.5 * 13


def test_the_figures_are_pngs_and_say_what_they_are_of(study: Collector, by_acceptance: DataFrame) -> None:
    images = [
        accounting.plot_acceptance(study, by_acceptance),
        accounting.plot_minimum(study, accounting.minimum_lengths(study, [1.0])),
    ]
    assert all(image.data.startswith(b"\x89PNG") and "SIMULATED" in image.alt for image in images)
