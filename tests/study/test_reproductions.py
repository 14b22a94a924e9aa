"""The reproductions, against released sglang where it can be fetched."""

import pytest

from penaltylab.errors import InputError
from penaltylab.study import reproductions
from penaltylab.study.collect import Collector

EVERY = ("one_step_late", "last_token_only", "around_a_prefill", "order_of_a_set")


@pytest.fixture
def study() -> Collector:
    return Collector(None, "reproductions", device="emu")


@pytest.mark.parametrize("name", EVERY)
def test_a_release_that_cannot_be_fetched_is_a_word_in_the_table(
    study: Collector, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(version: str) -> None:
        raise InputError(f"sglang {version}: pip could not fetch it")

    monkeypatch.setattr(reproductions, "load", unreachable)
    table = getattr(reproductions, name)(study, "0.5.14")
    assert table.loc[0, "not run here"] == "sglang 0.5.14: pip could not fetch it"


@pytest.mark.network
class TestReleased:
    @pytest.fixture(autouse=True, params=["0.5.13", "0.5.14"])
    def version(self, request: pytest.FixtureRequest) -> str:
        try:
            reproductions.load(request.param)
        except InputError as error:
            pytest.skip(str(error))
        return request.param

    def test_the_newest_token_is_not_counted_and_the_prompt_s_last_is(self, study: Collector, version: str) -> None:
        table = reproductions.one_step_late(study, version)
        assert (table["told"].iloc[1:].tolist()) == table["just generated"].iloc[:-1].tolist()
        assert table["not counted yet"].tolist() == [[token] for token in table["just generated"]]
        assert table["counted, never generated"].map(len).eq(1).all()
        assert table["error"].between(0.45, 0.55).all()

    def test_of_a_round_the_last_token_is_counted(self, study: Collector, version: str) -> None:
        table = reproductions.last_token_only(study, version)
        assert [accepted[-1] for accepted in table["accepted"]] == table["told, two launches later"].tolist()
        assert table["effective penalty %"].iloc[-1] < 40

    def test_a_prefill_costs_one_token_and_doubles_the_next(self, study: Collector, version: str) -> None:
        table = reproductions.around_a_prefill(study, version)
        regular, disturbed = (table[column].tolist() for column in table.columns[:2])
        assert regular == ["the prompt's last", *(f"o{place}" for place in range(8))]
        assert disturbed == [*regular[:3], "o3", *regular[4:]]
        assert table.loc[5, "what is wrong"] == "again; o2 is never counted"

    def test_two_orders_give_two_logits(self, study: Collector, version: str) -> None:
        table = reproductions.order_of_a_set(study, version)
        assert table["logit 3.0 becomes"].tolist() == [1.0, 0.5]
        assert table[f"of {reproductions.PROCESSES} processes"].sum() == reproductions.PROCESSES
