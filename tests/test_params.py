"""Params: what a run may be described by, and how a mistake is answered."""

import pytest

from penaltylab.errors import InputError
from penaltylab.params import Params, revisions, scenarios


def test_defaults_are_28500_on_the_normal_path():
    params = Params.of()
    assert (params.path, params.h2d, params.barrier) == ("normal", "pinned_async", "coarse")
    assert params.accounting == "upstream"


def test_strings_from_a_command_line_become_values():
    params = Params.of(overlap="false", forward_ms="1.5", batch_size="16")
    assert (params.overlap, params.forward_ms, params.batch_size) == (False, 1.5, 16)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"h2d": "fast"}, "h2d='fast': one of pinned_async, blocking"),
        ({"batch": 8}, "unknown parameter 'batch'; the parameters are path, h2d"),
        ({"batch_size": 0}, "batch_size=0: Expected `int` >= 1"),
        ({"forward_ms": float("nan")}, "forward_ms=nan"),
        ({"forward_ms": "inf"}, "forward_ms='inf'"),
        ({"overlap": "maybe"}, "overlap='maybe': Expected `bool`"),
        ({"steps": 8, "warmup": 8}, "warmup=8: must be less than steps=8"),
        ({"draft_share": 0.7, "extend_share": 0.3}, "no time is left to verify"),
        ({"revision": "sglang-9"}, "revision='sglang-9': one of sglang-0.5.12"),
        ({"scenario": "idle"}, "scenario='idle': one of churn"),
        ({"accounting": "exact", "h2d": "blocking"}, "accounting='exact' counts on the device"),
    ],
)
def test_a_mistake_is_answered_in_one_line_that_names_what_is_valid(given, says):
    with pytest.raises(InputError) as error:
        Params.of(**given)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_revision_is_a_bundle_by_path_that_explicit_values_override():
    assert Params.of(revision="28491").h2d == "pageable_async"
    assert Params.of(revision="28491", path="eagle").h2d == "blocking"
    assert Params.of(revision="28491", h2d="pinned_ring").h2d == "pinned_ring"


def test_every_revision_and_scenario_is_valid_on_both_paths():
    for path in ("normal", "eagle"):
        for revision in revisions():
            Params.of(path=path, revision=revision)
        for scenario in scenarios():
            Params.of(path=path, scenario=scenario)


def test_exact_accounting_implies_the_only_strategy_it_takes():
    assert Params.of(accounting="exact").h2d == "device_resident"


def test_the_hash_tells_parameters_apart_and_nothing_else():
    assert Params.of(seed=1).hash() == Params.of(seed="1").hash() != Params.of(seed=2).hash()
