"""The setting of a measurement: all that could change its result and is not a parameter.

A result is used again only where its parameters and its setting are the same; each line of `results.jsonl` names its
setting by its hash, and `record.json` spells it out.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from penaltylab.resources import data_path
from penaltylab.study.provenance import cpu_model, gpus, lock_hash, packages, python_and_system

PACKAGE = Path(__file__).resolve().parents[1]


class Setting(Struct, frozen=True, kw_only=True):
    """What has to be equal for two results to be of the same thing."""

    code: str
    """The hash of this package's sources and data files, committed or not."""
    lock: str | None
    packages: str
    python: str
    system: str
    cpu: str | None
    device: str
    driver: str | None

    def hash(self) -> str:
        """16 hexadecimal digits that are equal exactly for equal settings."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


def setting(device: str) -> Setting:
    """The setting of measurements on the device of that name, on this machine as it is now."""
    python, system = python_and_system()
    drivers = {entry.get("driver_version", "") for entry in gpus()} if device != "emu" else set()
    return Setting(
        code=code_hash(),
        lock=lock_hash(),
        packages=hashlib.sha256(msgspec.json.encode(packages())).hexdigest()[:16],
        python=python,
        system=system,
        cpu=cpu_model(),
        device=device,
        driver=", ".join(sorted(drivers)) or None,
    )


def code_hash() -> str:
    """A hash over the sources of this package and its data files, names included."""
    digest = hashlib.sha256()
    sources = [*PACKAGE.rglob("*.py"), *data_path().rglob("*.toml")]
    for path in sorted(sources):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The names of what two settings, as `record.json` holds them, differ in."""
    return [name for name in Setting.__struct_fields__ if old.get(name) != new.get(name)]
