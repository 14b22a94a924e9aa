"""Mutated files: never a traceback, never a hang, never a figure that differs without a word about it."""

import io
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penaltylab.errors import InputError
from penaltylab.traces.findings import Findings, inspect_trace
from penaltylab.traces.render import markdown

from .build import blocking_copy, call, document, frame, kernel, memcpy, note, thread

pytestmark = pytest.mark.slow

LOOP: list[Any] = [thread(0, 7, "stream 7 main")]
for k in range(6):
    LOOP += [note(f"step {k}", 5000 * k, 5000), frame("batch.py(3): decode", 5000 * k + 50, 4000)]
    LOOP += [kernel("forward", 5000 * k, 2300, 100 * k), *blocking_copy(5000 * k + 100, 2200, 100 * k + 1)]
    LOOP += [
        call("cudaMemcpyAsync", 5000 * k + 3000, 5, 100 * k + 9),
        memcpy("HtoD (Pinned -> Device)", 5000 * k + 3010, 2, 100 * k + 9),
    ]
DOCUMENT = document(LOOP, traceName="loop")
GOOD = json.dumps(DOCUMENT).encode()
RIGHT = inspect_trace(io.BytesIO(GOOD)).findings
JUNK = [
    b"",
    b'"',
    b"}",
    b"{",
    b"]",
    b",",
    b"\\",
    b"\xff",
    b"\x00",
    b"\n",
    b"NaN",
    b"-1e400",
    b"null",
    b'"ph":',
    b"[[[[",
    b"1" * 40,
]
SETTINGS = settings(max_examples=300, deadline=10_000, suppress_health_check=[HealthCheck.too_slow])


def figures(found: Findings) -> tuple[Any, ...]:
    return found.copies, found.stall_us, found.gpu_ops, [(one.start_us, one.stall_us) for one in found.stalls]


def inspected(data: bytes) -> Findings | None:
    """The findings; None where the file was refused. Anything else that is raised fails the test."""
    begin = time.monotonic()
    try:
        result = inspect_trace(io.BytesIO(data))
    except InputError:
        return None
    assert markdown(result, 0.0)
    assert time.monotonic() - begin < 10
    return result.findings


@given(
    st.lists(
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 40), st.sampled_from(JUNK)), min_size=1, max_size=4
    )
)
@SETTINGS
def test_bytes_replaced(edits: list[tuple[int, int, bytes]]) -> None:
    data = GOOD
    for at, length, junk in edits:
        data = data[:at] + junk + data[at + length :]
    inspected(data)


@given(st.integers(0, len(GOOD)))
@SETTINGS
def test_a_file_that_is_cut_says_so(length: int) -> None:
    found = inspected(GOOD[:length])
    if found is not None and figures(found) != figures(RIGHT):
        assert any("ends inside" in line for line in found.warnings)


SPOILERS = [
    lambda text: text.replace(b'"ts":', b'"ts" :').replace(b"cudaMemcpyAsync", b"cuda\xffMemcpyAsync"),
    lambda text: text + b", ",
    lambda text: text.replace(b'"dur": ', b'"dur": -', 1),
    lambda text: text.replace(b'"args"', b'"args": NaN, "args"', 1),
    lambda text: text[:-1],
    lambda text: text.replace(b'"name": "', b'"name": "a"b', 1),
    lambda text: text.replace(b'"ts": ', b'"ts": null, "was": ', 1),
]


@given(st.lists(st.tuples(st.integers(0, len(LOOP) - 1), st.sampled_from(SPOILERS)), min_size=1, max_size=5))
@SETTINGS
def test_events_that_are_broken_change_no_figure_without_a_warning(edits: list[tuple[int, Any]]) -> None:
    texts = [json.dumps(event).encode() for event in LOOP]
    for at, spoil in edits:
        texts[at] = spoil(texts[at])
    found = inspected(b'{"traceEvents": [' + b", ".join(texts) + b"]}")
    if found is not None and figures(found) != figures(RIGHT):
        assert found.warnings != RIGHT.warnings


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.integers(0, len(LOOP) - 1), st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]), VALUES)
@SETTINGS
def test_fields_of_any_type(at: int, field: str, value: Any) -> None:
    events = [event | {field: value} if index == at else event for index, event in enumerate(LOOP)]
    inspected(json.dumps(document(events)).encode(errors="surrogatepass"))


@given(
    st.sampled_from(["correlation", "stream", "bytes", "kind", "External id", "Call stack", "Concrete Inputs"]), VALUES
)
@SETTINGS
def test_arguments_of_any_type(field: str, value: Any) -> None:
    events = [event | {"args": event["args"] | {field: value}} if event["ph"] == "X" else event for event in LOOP]
    inspected(json.dumps(document(events)).encode(errors="surrogatepass"))


@given(st.dictionaries(st.sampled_from(["deviceProperties", "penaltylab", "traceName", "x"]), VALUES))
@SETTINGS
def test_metadata_of_any_type(top: dict[str, Any]) -> None:
    inspected(json.dumps({**DOCUMENT, **top}).encode(errors="surrogatepass"))


@pytest.mark.parametrize(
    "data",
    [
        b'{"traceEvents": [' + b'{"ph": "X", ' * 200_000,
        b'{"traceEvents": [' + b"[" * 1_000_000,
        b'{"traceEvents": [' + b'{"ph":"X","name":"a' * 100_000,
        b'{"traceEvents": [' + b'{"a":1},' * 500_000 + b"]}",
        b'{"a":' * 500_000,
        b'{"traceEvents": [' + b'{"ph":"X","args":{"q":[' + b'{"b":1},' * 300_000 + b"]}}]}",
    ],
    ids=["unclosed events", "deep lists", "unclosed strings", "no phases", "deep objects", "an event of many objects"],
)
def test_adversarial_files_do_not_hang(data: bytes) -> None:
    begin = time.monotonic()
    inspected(data)
    assert time.monotonic() - begin < 10
