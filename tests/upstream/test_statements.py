from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from penaltylab.upstream.statements import Statements, find_statements
from tests.upstream.made import (
    EAGLE_UTILS,
    EAGLE_V2,
    INLINE_EAGLE,
    INLINE_NORMAL,
    SCHEDULE_BATCH,
    SHARED_EAGLE,
    SHARED_NORMAL,
    write_sources,
)

INLINE = {SCHEDULE_BATCH: INLINE_NORMAL, EAGLE_V2: INLINE_EAGLE}
SHARED = {SCHEDULE_BATCH: SHARED_NORMAL, EAGLE_UTILS: SHARED_EAGLE}
NAMES = {"torch": torch, "is_pin_memory_available": lambda device: False}


def find(root: Path, sources: dict[str, str], path: str) -> Statements:
    return find_statements(write_sources(root, sources), path, NAMES)


class Orchestrator:
    def __init__(self, is_required: bool = True) -> None:
        self.is_required = is_required
        self.counted: list[list[int]] = []

    def cumulate_output_tokens(self, tokens: torch.Tensor) -> None:
        self.counted.append(tokens.tolist())


def batch_of(orchestrator: Orchestrator) -> Any:
    reqs = [
        SimpleNamespace(output_ids=[4, 5], origin_input_ids=[1]),
        SimpleNamespace(output_ids=[], origin_input_ids=[2, 3]),
    ]
    return SimpleNamespace(reqs=reqs, device="cpu", sampling_info=SimpleNamespace(penalizer_orchestrator=orchestrator))


@pytest.mark.parametrize("path", ["normal", "eagle"])
@pytest.mark.parametrize("sources", [INLINE, SHARED])
def test_the_statements_count_the_last_token_of_each_request(
    tmp_path: Path, sources: dict[str, str], path: str
) -> None:
    orchestrator = Orchestrator()
    find(tmp_path, sources, path).run(batch_of(orchestrator))
    assert orchestrator.counted == [[5, 3]]


def test_the_guard_of_a_block_is_part_of_it(tmp_path: Path) -> None:
    orchestrator = Orchestrator(is_required=False)
    find(tmp_path, INLINE, "normal").run(batch_of(orchestrator))
    assert orchestrator.counted == []


@pytest.mark.parametrize(
    ("sources", "path", "site"),
    [
        (INLINE, "normal", "schedule_batch.py(8-11): prepare_for_decode"),
        (INLINE, "eagle", "eagle_info_v2.py(3-6): prepare_for_decode"),
        (SHARED, "normal", "schedule_batch.py(3-6): cumulate_penalty_output_tokens"),
        (SHARED, "eagle", "schedule_batch.py(3-6): cumulate_penalty_output_tokens"),
    ],
)
def test_they_are_named_by_their_own_file_function_and_lines(
    tmp_path: Path, sources: dict[str, str], path: str, site: str
) -> None:
    assert find(tmp_path, sources, path).site == site


def test_an_error_in_them_names_their_own_line(tmp_path: Path) -> None:
    statements = find(tmp_path, INLINE, "normal")
    with pytest.raises(AttributeError) as caught:
        statements.run(batch_of(None))  # type: ignore[arg-type]
    last = caught.traceback[-1]
    assert (last.path, last.lineno + 1, last.name) == (tmp_path / SCHEDULE_BATCH, 8, "prepare_for_decode")


@pytest.mark.parametrize(
    ("sources", "path", "missing"),
    [
        (INLINE | {SCHEDULE_BATCH: "class ScheduleBatch: ..."}, "normal", "no ScheduleBatch.prepare_for_decode in "),
        (INLINE | {SCHEDULE_BATCH: SHARED_EAGLE}, "normal", "no ScheduleBatch.prepare_for_decode in "),
        (INLINE | {EAGLE_V2: ""}, "eagle", "no function in sglang/srt/speculative/eagle"),
        (SHARED | {SCHEDULE_BATCH: INLINE_NORMAL}, "eagle", "no ScheduleBatch.cumulate_penalty_output_tokens in "),
        (INLINE | {SCHEDULE_BATCH: INLINE_NORMAL.replace("torch", "nowhere")}, "normal", r"\(8\) needs nowhere"),
    ],
)
def test_another_shape_is_refused_with_what_was_not_found(
    tmp_path: Path, sources: dict[str, str], path: str, missing: str
) -> None:
    with pytest.raises(LookupError, match=missing):
        find(tmp_path, sources, path)
