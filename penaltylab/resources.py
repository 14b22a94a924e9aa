"""Where the data files and notebooks are: beside the package in a checkout, inside it once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    inside = _PACKAGE / "_resources" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def data_path(*parts: str) -> Path:
    """The path of a file or folder under `data/`."""
    return _folder("data").joinpath(*parts)


def notebooks_path() -> Path:
    """The folder that holds the numbered notebooks."""
    return _folder("notebooks")
