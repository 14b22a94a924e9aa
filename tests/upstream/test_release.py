import sys
from pathlib import Path

import pytest

from penaltylab.errors import InputError
from penaltylab.upstream import load
from penaltylab.upstream.release import revision_of
from tests.upstream.made import PENALTYLIB, SCHEDULE_BATCH, SOURCES, write_wheel


def test_a_release_is_loaded_without_the_rest_of_sglang(index: Path) -> None:
    release = load("0.5.13")
    assert release.version == "0.5.13"
    assert release.statements["eagle"].site == "eagle_info_v2.py(3-6): prepare_for_decode"
    assert release.penaltylib.BatchedPenalizerOrchestrator.__module__ == "sglang.srt.sampling.penaltylib.orchestrator"
    assert not [name for name in sys.modules if name.partition(".")[0] == "sglang"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({SCHEDULE_BATCH: ""}, "LookupError: no ScheduleBatch.prepare_for_decode in"),
        ({SCHEDULE_BATCH: "def"}, "SyntaxError"),
        ({f"{PENALTYLIB}/__init__.py": ""}, "AttributeError: .*BatchedFrequencyPenalizer"),
        ({f"{PENALTYLIB}/orchestrator.py": "from sglang.srt.utils import unheard_of"}, "ImportError: .*unheard_of"),
        ({f"{PENALTYLIB}/orchestrator.py": "1 / 0"}, "ZeroDivisionError"),
    ],
)
def test_a_release_of_another_shape_is_one_line_that_names_it(index: Path, changed: dict[str, str], said: str) -> None:
    write_wheel(index, "0.5.14", SOURCES | changed)
    with pytest.raises(InputError, match=f"^sglang 0.5.14: another shape than known ones: {said}.*$"):
        load("0.5.14")


def test_a_wheel_without_the_sources_is_of_another_shape(index: Path) -> None:
    write_wheel(index, "0.1.3", {"sglang/__init__.py": ""})
    with pytest.raises(InputError, match=r"^sglang 0.1.3: another shape than known ones: the wheel has no "):
        load("0.1.3")


@pytest.mark.parametrize(
    ("version", "revision"),
    [
        ("0.5.12", "sglang-0.5.12"),
        ("0.5.13.post1", "sglang-0.5.13"),
        ("0.5.14", "sglang-0.5.14"),
        ("0.5.15", "sglang-0.5.14"),
        ("0.6.0", "sglang-0.5.23"),
    ],
)
def test_a_release_has_the_settings_of_the_newest_revision_that_is_not_newer(version: str, revision: str) -> None:
    assert revision_of(version) == revision


def test_a_release_before_the_first_revision_is_refused() -> None:
    with pytest.raises(InputError, match=r"sglang 0\.5\.9: nothing is known .* oldest known is sglang-0\.5\.12"):
        revision_of("0.5.9")
