"""The house itself: what is declared agrees with what is pinned, and the code is clean."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHARED_LEAVES = {"errors.py", "resources.py", "names.py", "__init__.py"}
SUPPORTED = ("3.11.9", "3.12.4", "3.13.1")


def lock(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(name: str, python: str) -> dict[str, str]:
    """Package to version, as pip would install it from the lock on Linux with that Python."""
    environment = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
        "os_name": "posix",
    }
    chosen = [entry for entry in lock(name) if entry.marker is None or entry.marker.evaluate(environment)]
    found = {canonicalize_name(entry.name): str(entry.specifier).removeprefix("==") for entry in chosen}
    assert len(found) == len(chosen), f"{name} pins a package twice for Python {python}"
    return found


def tracked_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_version_is_pinned_without_an_address_or_a_hash(name: str) -> None:
    for entry in lock(name):
        assert re.fullmatch(r"==[\w.!]+", str(entry.specifier)), f"{name}: {entry} is not one exact version"
        assert entry.url is None
    assert not re.search(r"://|--hash|\+cpu", (ROOT / name).read_text())


@pytest.mark.parametrize("python", SUPPORTED)
@pytest.mark.parametrize(("name", "extras"), [("requirements.lock", []), ("requirements-dev.lock", ["dev", "view"])])
def test_the_lock_satisfies_what_pyproject_declares(name: str, extras: list[str], python: str) -> None:
    pinned = pins(name, python)
    declared = PROJECT["dependencies"] + [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    for entry in map(Requirement, declared):
        version = pinned.get(canonicalize_name(entry.name))
        assert version, f"{name} does not pin {entry.name}"
        assert entry.specifier.contains(version), f"{name} has {version} where pyproject asks for {entry}"
    assert pinned["torch"] == "2.13.0"


@pytest.mark.parametrize("python", SUPPORTED)
def test_the_development_lock_pins_what_the_study_runs_on(python: str) -> None:
    assert pins("requirements.lock", python).items() <= pins("requirements-dev.lock", python).items()


def test_conda_environment_installs_the_same() -> None:
    *conda, last = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda == [f"python {PROJECT['requires-python']}", "pip"]
    assert last == {"pip": ["-r requirements.lock", "-e ."]}


def test_supported_pythons_are_declared_alike() -> None:
    declared = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if " :: Python :: 3" in line}
    assert declared == {python.rpartition(".")[0] for python in SUPPORTED}
    assert PROJECT["requires-python"] == ">=3.11,<3.14"


def test_modules_have_one_reason_to_exist_and_fit_on_a_few_screens() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / "penaltylab").rglob("*.py")}
    assert {str(path): n for path, n in lines.items() if n > 250} == {}
    assert {str(path): n for path, n in lines.items() if n < 20 and path.name not in SHARED_LEAVES} == {}


def test_nothing_names_a_path_of_one_machine_or_a_package_index() -> None:
    paths = r"(?<![\w.}\])])/(?:root|home|work|opt|Users)/"
    index = r"--(?:extra-)?index-[u]rl|find-[l]inks|//\S*/[s]imple\b"
    forbidden = re.compile(f"{paths}|{index}")
    found = []
    for path in tracked_files():
        if path.suffix not in {".gz", ".png"}:
            found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in forbidden.finditer(path.read_text())]
    assert found == []


def test_ruff_finds_nothing() -> None:
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_mypy_finds_nothing() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
