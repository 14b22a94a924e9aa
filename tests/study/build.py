"""Small notebooks for the tests of the runner."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

PARAMETERS = "out_dir = None\ncell = 'small'\nparams = dict(device='emu', steps=16, warmup=4)"


def notebook(path: Path, *cells: str, parameters: str | None = PARAMETERS) -> Path:
    """Write a notebook of code cells, the first tagged `parameters`, and return its path."""
    tagged = [new_code_cell(parameters, metadata={"tags": ["parameters"]})] if parameters is not None else []
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=[*tagged, *map(new_code_cell, cells)], metadata=kernel), path)
    return path
