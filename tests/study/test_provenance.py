"""Provenance holds what could change a number, and nothing about who ran it."""

import getpass
import hashlib
import json
import platform
import socket

import pytest
import torch

from penaltylab.study.provenance import ROOT, git_revision, gpus, lock_hash, packages, provenance
from penaltylab.study.torch_build import answer, ask


def test_it_is_plain_and_names_what_runs() -> None:
    found = json.loads(json.dumps(provenance()))
    assert found["python"] == platform.python_version()
    assert found["packages"]["torch"] == torch.__version__
    assert found["cpus"] >= 1
    assert {"cpu", "governor", "memory", "container", "system", "git", "lock_sha256", "gpus"} <= found.keys()


def test_only_variables_that_change_what_is_measured_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    found = provenance()["environment"]
    assert found["OMP_NUM_THREADS"] == "3"
    assert "SECRET_TOKEN" not in found


def test_how_torch_was_built_is_asked_of_another_process() -> None:
    found = answer(ask())
    assert found is not None
    assert found["version"] == torch.__version__
    assert "PyTorch built with" in found["flags"]


def test_the_lock_is_told_by_its_hash() -> None:
    assert lock_hash() == hashlib.sha256((ROOT / "requirements.lock").read_bytes()).hexdigest()


def test_the_checkout_is_told_by_its_revision() -> None:
    found = git_revision()
    if (ROOT / ".git").exists():
        assert found is not None
        assert len(found["revision"]) == 40
    else:
        assert found is None


def test_packages_are_sorted_and_each_there_once() -> None:
    names = [name.lower() for name in packages()]
    assert names == sorted(set(names))


def test_gpus_are_those_of_the_driver() -> None:
    assert bool(gpus()) == (torch.cuda.is_available() and torch.version.hip is None)


def test_no_user_and_no_host_name() -> None:
    values = {value for value in provenance().values() if isinstance(value, str)}
    assert not any(socket.gethostname() in value for value in values)
    assert not any(getpass.getuser() == value for value in values)
