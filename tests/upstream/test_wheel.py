from pathlib import Path

import pytest

from penaltylab.errors import InputError
from penaltylab.upstream.wheel import cache_folder, release_key, sources
from tests.upstream.made import SCHEDULE_BATCH, SOURCES, write_wheel


def test_the_sources_that_are_run_are_kept_and_nothing_else(index: Path) -> None:
    folder = sources("0.5.13")
    kept = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert kept == {"RECORD", *SOURCES} - {"sglang/srt/managers/scheduler.py"}
    assert all((folder / name).read_text() == SOURCES[name] for name in kept - {"RECORD"})
    assert [path.name for path in folder.parent.iterdir()] == ["sglang-0.5.13"]


def test_a_release_is_fetched_once(index: Path) -> None:
    first = sources("0.5.13")
    next(index.glob("*.whl")).unlink()
    assert sources("0.5.13") == first


@pytest.mark.parametrize("damaged", [SCHEDULE_BATCH, "RECORD"])
def test_a_damaged_cache_is_fetched_again(index: Path, damaged: str) -> None:
    (sources("0.5.13") / damaged).write_text("damaged")
    assert (sources("0.5.13") / SCHEDULE_BATCH).read_text() == SOURCES[SCHEDULE_BATCH]


def test_a_release_that_does_not_exist_is_refused_with_the_latest_that_do(index: Path) -> None:
    with pytest.raises(InputError, match=r"^sglang 0\.5\.99: the package index has no such release.* 0\.5\.13$"):
        sources("0.5.99")


@pytest.mark.parametrize("version", ["latest", "", "../x", "0.5.13; x", "5", "0.5.13\n"])
def test_what_is_no_release_is_refused_before_pip_is_asked(version: str) -> None:
    with pytest.raises(InputError, match="expected a release such as"):
        sources(version)


def test_releases_sort_as_numbers() -> None:
    assert sorted(["0.5.13", "0.5.9", "0.5.13.post1", "0.5.14"], key=release_key) == [
        "0.5.9",
        "0.5.13",
        "0.5.13.post1",
        "0.5.14",
    ]


def test_an_index_that_cannot_be_reached_is_one_line(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(index / "nothing-here"))
    with pytest.raises(InputError, match=r"^sglang 0\.5\.13: pip could not fetch it; is .* reachable\? \(.*\)$"):
        sources("0.5.13")


def test_a_wheel_whose_files_are_not_those_of_its_record_is_refused(index: Path) -> None:
    write_wheel(index, "0.5.14", SOURCES, recorded=SOURCES | {SCHEDULE_BATCH: "something else"})
    with pytest.raises(InputError, match="differ from its own RECORD"):
        sources("0.5.14")
    assert not (cache_folder() / "sglang-0.5.14").exists()


def test_a_cache_that_cannot_be_written_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENALTYLAB_CACHE", str(next(index.glob("*.whl"))))
    with pytest.raises(InputError, match=r"cannot be written .* set PENALTYLAB_CACHE to another folder"):
        sources("0.5.13")


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENALTYLAB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "penaltylab"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "penaltylab"
    monkeypatch.setenv("PENALTYLAB_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
