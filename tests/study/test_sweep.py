"""Values and sweeps become cells, and everything wrong with them is said before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from penaltylab.errors import InputError
from penaltylab.study.notebooks import Notebook
from penaltylab.study.sweep import QUICK, assignments, plan

BOOK = Notebook(Path("book.ipynb"), {"steps": 32, "warmup": 8, "overlap": True}, {"out_dir": None, "cell": ""})
OTHER = Notebook(Path("other.ipynb"), {"steps": 64, "seed": 0}, {"trace": "", "top": 5})


def given(cells: list[Any]) -> list[dict[str, Any]]:
    return [cell.arguments.get("params", {}) for cell in cells]


def test_the_defaults_are_one_cell_a_notebook() -> None:
    cells = plan([BOOK, OTHER], {}, {})
    assert [cell.name for cell in cells] == ["book", "other"]
    assert given(cells) == [BOOK.params, OTHER.params]


def test_values_become_what_params_says_they_are() -> None:
    (cell,) = plan([BOOK], {"steps": "16", "overlap": "false"}, {})
    assert cell.arguments["params"] == {"steps": 16, "warmup": 8, "overlap": False}
    assert cell.params.overlap is False


def test_a_value_goes_to_the_notebooks_that_take_it() -> None:
    assert given(plan([BOOK, OTHER], {"seed": "7"}, {})) == [BOOK.params, OTHER.params | {"seed": 7}]


def test_a_sweep_is_the_product_of_its_values() -> None:
    cells = plan([BOOK], {}, {"steps": "16,32", "overlap": "true,false"})
    assert [cell.name for cell in cells] == [
        "book.steps=16,overlap=True",
        "book.steps=16,overlap=False",
        "book.steps=32,overlap=True",
        "book.steps=32,overlap=False",
    ]
    assert len({cell.params.hash() for cell in cells}) == 4


def test_a_sweep_leaves_a_notebook_that_does_not_take_it_at_one_cell() -> None:
    assert [cell.name for cell in plan([BOOK, OTHER], {}, {"seed": "1,2"})] == ["book", "other.seed=1", "other.seed=2"]


def test_a_notebooks_own_options_take_the_type_of_their_default() -> None:
    (cell,) = plan([OTHER], {"trace": "x.json", "top": "3"}, {})
    assert cell.arguments == {"trace": "x.json", "top": 3, "params": OTHER.params}
    with pytest.raises(InputError, match="top='many'"):
        plan([OTHER], {"top": "many"}, {})


def test_quick_is_short_and_yields_to_a_value() -> None:
    assert given(plan([BOOK], {}, {}, quick=True)) == [BOOK.params | QUICK]
    assert given(plan([BOOK], {"steps": "24"}, {}, quick=True)) == [BOOK.params | QUICK | {"steps": 24}]


@pytest.mark.parametrize(
    ("values", "sweeps", "says"),
    [
        ({"stepz": "1"}, {}, "unknown parameter 'stepz'; book can be given steps, warmup, overlap"),
        ({"path": "eagle"}, {}, "'path' is set by the notebook itself"),
        ({"out_dir": "x"}, {}, "unknown parameter 'out_dir'"),
        ({"steps": "0"}, {}, "steps"),
        ({"steps": "4"}, {}, "warmup=8: must be less than steps=4"),
        ({}, {"stepz": "1,2"}, "unknown parameter 'stepz'"),
        ({}, {"steps": "16,many"}, "steps='many'"),
        ({}, {"steps": "16,16"}, "would run twice"),
        ({}, {"overlap": "true,1"}, "would run twice"),
        ({"steps": "16"}, {"steps": "16,32"}, "both set by -p and swept"),
    ],
)
def test_what_cannot_run_is_refused(values: dict[str, str], sweeps: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan([BOOK], values, sweeps)


def test_the_name_of_a_cell_is_a_file_name() -> None:
    (cell,) = plan([Notebook(Path("b.ipynb"), {}, {"trace": ""})], {}, {"trace": "../a/b c.json"})
    assert cell.name == "b.trace=.._a_b_c.json"


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert assignments(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a=1", "a=2"]])
def test_assignments_refuse_what_is_no_assignment(texts: list[str]) -> None:
    with pytest.raises(InputError):
        assignments(texts)
