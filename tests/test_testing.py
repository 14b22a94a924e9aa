"""The pytest plugin, by pytest's own `pytester`: small test files that are run, and what came of them."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from penaltylab import emu

pytest_plugins = "pytester"

CODE_UNDER_TEST = """
import torch

def sample(logits):
    return logits.argmax().item()

def swallow(logits):
    try:
        return sample(logits)
    except RuntimeError:
        return 0

def race(device):
    module = torch.get_device_module(device)
    x = torch.zeros(8, device=device)
    with module.Stream():
        x.add_(1)
"""


@pytest.fixture(scope="module")
def registered() -> None:
    """Before `pytester` notes which modules there are: it takes away what a run imports, PyTorch with it."""
    emu.register()


@pytest.fixture(autouse=True)
def code_under_test(registered: None, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(sampler=CODE_UNDER_TEST)


def outcome(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    """Of the tests in `test`. Hypothesis would import itself again each time."""
    pytester.makepyfile(test_it=f"import pytest, torch, sampler\n{test}")
    return pytester.runpytest("-p", "no:hypothesispytest", *options)


def test_it_is_installed_as_a_plugin() -> None:
    (entry,) = entry_points(group="pytest11", name="penaltylab")
    assert entry.value == "penaltylab.testing"


def test_a_hidden_synchronization_fails_a_marked_test_at_its_line(pytester: pytest.Pytester) -> None:
    result = outcome(
        pytester,
        """
@pytest.mark.no_host_sync
def test_step(emu_device):
    sampler.sample(torch.zeros(4, device=emu_device))
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*HiddenSyncError: hidden host synchronization: item (aten::_local_scalar_dense) at sampler.py(4): sample "
            "on stream 7: blocks the host for * us (SIMULATED)*",
            "*return logits.argmax().item()",
        ]
    )


def test_an_error_that_the_code_swallows_fails_the_test_too(pytester: pytest.Pytester) -> None:
    result = outcome(
        pytester,
        """
@pytest.mark.no_host_sync
def test_step(emu_device):
    assert sampler.swallow(torch.zeros(4, device=emu_device)) == 0
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*item*sampler.py(4): sample*", "(the error was caught before it reached the test)"])


@pytest.mark.parametrize("allow", ["'item'", "{'sampler.py:4'}", "{'sample'}", "{'sampler.py(4)', 'copy-h2d'}"])
def test_what_the_marker_allows_passes(pytester: pytest.Pytester, allow: str) -> None:
    result = outcome(
        pytester,
        f"""
@pytest.mark.no_host_sync(allow={allow})
def test_step(emu_device):
    sampler.sample(torch.zeros(4, device=emu_device))
""",
    )
    result.assert_outcomes(passed=1)


def test_the_closest_marker_counts(pytester: pytest.Pytester) -> None:
    result = outcome(
        pytester,
        """
pytestmark = pytest.mark.no_host_sync

def test_step(emu_device):
    sampler.sample(torch.zeros(4, device=emu_device))

@pytest.mark.no_host_sync(allow="sample")
def test_sampling(emu_device):
    sampler.sample(torch.zeros(4, device=emu_device))
""",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_fixtures_and_unmarked_tests_may_synchronize(pytester: pytest.Pytester) -> None:
    result = outcome(
        pytester,
        """
@pytest.fixture
def token(emu_device):
    return sampler.sample(torch.zeros(4, device=emu_device))

@pytest.mark.no_host_sync
def test_step(token):
    assert token == 0

def test_unmarked(emu_device):
    sampler.sample(torch.zeros(4, device=emu_device))
""",
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("arguments", ["'item'", "allowed='item'", "allow='not a kind'"])
def test_a_marker_that_is_misspelt_is_an_error(pytester: pytest.Pytester, arguments: str) -> None:
    result = outcome(pytester, f"@pytest.mark.no_host_sync({arguments})\ndef test_step(emu_device): pass")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*InputError: *allow*"])


def test_a_hazard_fails_a_marked_test_with_both_lines(pytester: pytest.Pytester) -> None:
    result = outcome(
        pytester,
        """
@pytest.mark.no_stream_hazard
def test_race(emu_device):
    sampler.race(emu_device)

@pytest.mark.no_stream_hazard
def test_no_race(emu_device):
    torch.zeros(8, device=emu_device).add_(1)

def test_unmarked(emu_device):
    sampler.race(emu_device)
""",
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["write-after-write: *sampler.py(16): race*sampler.py(14): race*"])


def test_each_test_gets_a_fresh_device(pytester: pytest.Pytester) -> None:
    result = outcome(
        pytester,
        """
from penaltylab import emu

@pytest.mark.parametrize("turn", range(2))
def test_step(emu_device, turn):
    assert (emu.now_us(), emu.hazards(), emu.syncs()) == (0, [], [])
    sampler.race(emu_device)
    sampler.sample(torch.zeros(4, device=emu_device))
""",
    )
    result.assert_outcomes(passed=2)


REPORTED = """
@pytest.mark.no_host_sync
def test_refused(emu_device):
    sampler.sample(torch.zeros(4, device=emu_device))

def test_both(emu_device):
    for _ in range(3):
        sampler.sample(torch.zeros(4, device=emu_device))
    sampler.race(emu_device)

def test_neither(emu_device):
    torch.zeros(4, device=emu_device)
"""


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_the_report_names_tests_lines_and_hazards(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    result = outcome(pytester, REPORTED, "--emu-report", *options)
    result.stdout.fnmatch_lines(
        ["*device emu: host synchronizations and hazards (SIMULATED)*", "*kind * host blocked*"]
    )
    result.stdout.fnmatch_lines(["test_it.py::test_refused", "  item (refused) *sampler.py(4): sample * 1 *"])
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_both",
            "  item  *sampler.py(4): sample * 3 *",
            "  HAZARD write-after-write *sampler.py(14): race and sampler.py(16): race * 1",
        ]
    )
    result.stdout.no_fnmatch_line("test_it.py::test_neither*")


def test_the_report_of_a_session_without_any(pytester: pytest.Pytester) -> None:
    outcome(pytester, "def test_nothing(): pass", "--emu-report").stdout.fnmatch_lines(["none: no test synchronized*"])


def test_without_the_option_there_is_no_report(pytester: pytest.Pytester) -> None:
    outcome(pytester, REPORTED).stdout.no_fnmatch_line("*host synchronizations and hazards*")


def test_who_does_not_use_it_does_not_pay_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import sys\n\ndef test_nothing():\n    assert 'torch' not in sys.modules\n")
    result = pytester.runpytest_subprocess("--strict-markers", "-W", "error", "--emu-report")
    result.assert_outcomes(passed=1)
    assert "no_host_sync(allow=())" in pytester.runpytest_subprocess("--markers").stdout.str()


def test_a_device_first_used_within_the_test_is_reported_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
import torch, sampler
from penaltylab import emu

def test_step():
    emu.register()
    sampler.sample(torch.zeros(4, device="emu"))
"""
    )
    result = pytester.runpytest_subprocess("--emu-report")
    result.stdout.fnmatch_lines(["test_it.py::test_step", "  item  sampler.py(4): sample *"])


def test_where_the_device_cannot_be_the_test_is_skipped_and_says_why() -> None:
    code = (
        "import pytest, torch; from penaltylab import testing\n"
        "torch.cuda.is_available = lambda: True\n"
        "try: testing._device()\n"
        "except pytest.skip.Exception as skipped: assert 'CUDA is available here' in str(skipped)\n"
        "else: raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PENALTYLAB_EMU": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_example_of_the_readme_fails_at_the_line_it_says_and_passes_when_mended(pytester: pytest.Pytester) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    example = next(
        block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "# test_decode.py" in block
    )
    mended = re.search(r"`(torch\.tensor\(temperatures.*?non_blocking=True\))` passes", readme)
    assert mended
    pytester.makepyfile(test_decode=example)
    failed = pytester.runpytest("-p", "no:hypothesispytest", "test_decode.py")
    failed.assert_outcomes(failed=1)
    said = next(line.strip() for line in readme.splitlines() if line.startswith("    hidden host synchronization"))
    assert said.removesuffix("...") in failed.stdout.str()
    pytester.makepyfile(test_mended=example.replace("torch.tensor(temperatures, device=logits.device)", mended[1]))
    pytester.runpytest("-p", "no:hypothesispytest", "test_mended.py").assert_outcomes(passed=1)
