"""Provenance holds what could change a number, and nothing about who ran it."""

import getpass
import hashlib
import json
import platform
import socket

import torch

from penaltylab.study.provenance import ROOT, git_revision, gpus, lock_hash, packages, provenance


def test_it_is_plain_and_names_what_runs() -> None:
    found = json.loads(json.dumps(provenance()))
    assert found["python"] == platform.python_version()
    assert found["packages"]["torch"] == torch.__version__
    assert found["cpus"] >= 1


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
