"""From notebooks, values and sweeps to cells: every parameter is checked here, before anything runs."""

import itertools
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.notebooks import Notebook

QUICK = {"steps": 16, "warmup": 4}


@dataclass(frozen=True)
class Cell:
    """One notebook with one set of values, the unit that runs, is recorded and may fail."""

    name: str
    notebook: Notebook
    params: Params
    arguments: dict[str, Any]
    """What papermill injects, beside `out_dir` and `cell`: `params` and the notebook's own options."""


def assignments(given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary. Raises InputError where one is not of that form or names twice the same."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{text!r}: expected NAME=VALUE")
        if name in values:
            raise InputError(f"{name} is given twice: {values[name]!r} and {value!r}")
        values[name] = value
    return values


def plan(
    notebooks: list[Notebook], values: dict[str, str], sweeps: dict[str, str], *, quick: bool = False
) -> list[Cell]:
    """The cells of a run: each notebook once for each element of the product of the sweeps that it takes.

    A name goes to the notebooks that list it in their cell tagged `parameters`. Raises InputError for a name that none
    of them takes, naming those they take, and for a value that `Params` refuses.
    """
    choices = {name: texts.split(",") for name, texts in sweeps.items()}
    check_not_both(values, sweeps)
    for name in [*values, *choices]:
        _check_taken(name, notebooks)
    cells = []
    for notebook in notebooks:
        swept = [name for name in choices if _takes(notebook, name)]
        for combination in itertools.product(*(choices[name] for name in swept)):
            varied = dict(zip(swept, combination, strict=True))
            cells.append(
                _cell(notebook, {name: v for name, v in values.items() if _takes(notebook, name)}, varied, quick)
            )
    _check_distinct(cells)
    return cells


def check_not_both(values: dict[str, str], sweeps: dict[str, str]) -> None:
    """Raises InputError for a name that is set and swept."""
    for name in sweeps.keys() & values.keys():
        raise InputError(f"{name} is both set by -p and swept by --sweep")


def _takes(notebook: Notebook, name: str) -> bool:
    return name in notebook.params or name in _own_options(notebook)


def _own_options(notebook: Notebook) -> dict[str, Any]:
    return {name: value for name, value in notebook.options.items() if name not in {"out_dir", "cell"}}


def _check_taken(name: str, notebooks: list[Notebook]) -> None:
    if any(_takes(notebook, name) for notebook in notebooks):
        return
    taken = list(dict.fromkeys(n for notebook in notebooks for n in [*notebook.params, *_own_options(notebook)]))
    what = (
        f"{name!r} is set by the notebook itself" if name in Params.__struct_fields__ else f"unknown parameter {name!r}"
    )
    raise InputError(f"{what}; {', '.join(n.name for n in notebooks)} can be given {', '.join(taken) or 'nothing'}")


def _cell(notebook: Notebook, values: dict[str, str], varied: dict[str, str], quick: bool) -> Cell:
    given = values | varied
    fast = {name: value for name, value in QUICK.items() if quick and name in notebook.params}
    wanted = notebook.params | fast | {name: value for name, value in given.items() if name in notebook.params}
    params = Params.of(**wanted)
    own = {name: _convert(name, given.get(name), default) for name, default in _own_options(notebook).items()}
    arguments = own | {"params": {name: getattr(params, name) for name in wanted}}
    shown = {name: getattr(params, name) if name in wanted else own[name] for name in varied}
    label = ",".join(f"{name}={value}" for name, value in shown.items())
    name = f"{notebook.name}.{label}" if label else notebook.name
    return Cell(re.sub(r"[^\w.=,-]", "_", name), notebook, params, arguments if notebook.params else own)


def _convert(name: str, text: str | None, default: Any) -> Any:
    if text is None or default is None or isinstance(default, str):
        return default if text is None else text
    try:
        return msgspec.convert(text, type(default), strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}={text!r}: {error}") from None


def _check_distinct(cells: list[Cell]) -> None:
    seen: set[str] = set()
    for cell in cells:
        if cell.name in seen:
            raise InputError(
                f"{cell.name} would run twice: a sweep holds one value twice, or two notebooks have one name"
            )
        seen.add(cell.name)
