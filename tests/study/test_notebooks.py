"""Which parameters a notebook takes is read from its tagged cell, without running it."""

from pathlib import Path

import pytest

from penaltylab.errors import InputError
from penaltylab.resources import notebooks_path
from penaltylab.study.notebooks import find, read
from tests.study.build import notebook


def test_params_and_options_are_told_apart(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", parameters="out_dir = None\ntrace = 'x'\nparams = dict(steps=16,\n  seed=0)")
    found = read(path)
    assert found.params == {"steps": 16, "seed": 0}
    assert found.options == {"out_dir": None, "trace": "x"}
    assert found.name == "a"


def test_a_dictionary_may_be_written_either_way(tmp_path: Path) -> None:
    assert read(notebook(tmp_path / "a.ipynb", parameters="params = {'steps': 16}")).params == {"steps": 16}


def test_a_notebook_without_parameters_takes_none(tmp_path: Path) -> None:
    found = read(notebook(tmp_path / "a.ipynb", "1", parameters=None))
    assert (found.params, found.options) == ({}, {})


@pytest.mark.parametrize("code", ["steps = int('4')", "a, b = 1, 2", "print(1)", "params = dict(a=b)", "x ="])
def test_parameters_are_literal_defaults(tmp_path: Path, code: str) -> None:
    with pytest.raises(InputError, match="literal defaults"):
        read(notebook(tmp_path / "a.ipynb", parameters=code))


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"cells": [{"source": 1}]}', b"\xff\xfe"])
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.ipynb").write_bytes(content)
    with pytest.raises(InputError, match="not a notebook"):
        read(tmp_path / "a.ipynb")


def test_found_by_number_name_or_path() -> None:
    expected = notebooks_path() / "02_decode_timelines.ipynb"
    for name in ("2", "02", "02_decode_timelines", "02_decode_timelines.ipynb", str(expected)):
        assert [found.path for found in find([name])] == [expected]


def test_all_that_ship_are_the_default_and_one_named_twice_runs_once() -> None:
    assert [found.path for found in find([])] == sorted(notebooks_path().glob("[0-9]*.ipynb"))
    assert len(find(["1", "01_which_copies_block"])) == 1


def test_a_missing_one_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no notebook '99'.*01_which_copies_block, 02_decode_timelines"):
        find(["99"])
