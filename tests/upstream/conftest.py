"""A package index of our own making, and the releases of the real one where it can be reached."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penaltylab.errors import InputError
from penaltylab.upstream import Upstream, load
from tests.upstream.made import SOURCES, write_wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index, holding sglang 0.5.13; and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder, "0.5.13", SOURCES)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PENALTYLAB_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture(scope="session")
def released() -> Callable[[str], Upstream]:
    """Loads a real release, or skips the test with what kept it from being fetched."""
    unreachable: list[str] = []

    def fetch(version: str) -> Upstream:
        if not unreachable:
            try:
                return load(version)
            except InputError as error:
                if "pip could not fetch it" not in str(error):
                    raise
                unreachable.append(str(error))
        pytest.skip(unreachable[0])

    return fetch
