"""The notebooks of the study: where they are, and which parameters each takes."""

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from penaltylab.errors import InputError
from penaltylab.resources import notebooks_path


class _Metadata(Struct):
    tags: list[str] = []


class _CodeOrText(Struct):
    source: str | list[str]
    metadata: _Metadata


class _Document(Struct):
    """What we need of an .ipynb. nbformat reads the same, but takes two seconds to import."""

    cells: list[_CodeOrText]


@dataclass(frozen=True)
class Notebook:
    """One notebook: `params` are the names and defaults of its `params` dictionary, `options` its other parameters."""

    path: Path
    params: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem


def find(wanted: list[str]) -> list[Notebook]:
    """The notebooks that `wanted` names: by path, by name or by number; all that ship when it is empty.

    Raises InputError where one does not exist or is no notebook.
    """
    shipped = sorted(notebooks_path().glob("[0-9]*.ipynb"))
    if not wanted and not shipped:
        raise InputError(f"no notebooks in {notebooks_path()}; name one by its path")
    paths = [_locate(name, shipped) for name in wanted] or shipped
    return [read(path) for path in dict.fromkeys(paths)]


def _locate(name: str, shipped: list[Path]) -> Path:
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name).resolve()
    for path in shipped:
        if name in {path.stem, path.name} or (name.isdigit() and int(name) == int(path.stem.split("_")[0])):
            return path
    raise InputError(f"no notebook {name!r}; those that ship are {', '.join(path.stem for path in shipped) or 'none'}")


def read(path: Path) -> Notebook:
    """Read a notebook's parameters from the cell tagged `parameters`. Raises InputError where it is no notebook."""
    try:
        cells = msgspec.json.decode(path.read_bytes(), type=_Document).cells
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: not a notebook of format 4 ({error})") from None
    tagged = ["".join(cell.source) for cell in cells if "parameters" in cell.metadata.tags]
    try:
        values = _assignments(tagged[0]) if tagged else {}
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: the cell tagged `parameters` holds more than literal defaults ({error})") from None
    return Notebook(path, values.pop("params", {}), values)


def _assignments(source: str) -> dict[str, Any]:
    found = {}
    for line in ast.parse(source).body:
        if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
            raise ValueError(f"line {line.lineno} is no assignment to one name")
        found[line.targets[0].id] = _literal(line.value)
    return found


def _literal(value: ast.expr) -> Any:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        return {entry.arg: ast.literal_eval(entry.value) for entry in value.keywords if entry.arg}
    return ast.literal_eval(value)
