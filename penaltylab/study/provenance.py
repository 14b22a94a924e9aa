"""What could change a result, besides its parameters: packages, code, machine, driver. No user or host names."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from penaltylab import __version__

ROOT = Path(__file__).resolve().parents[2]
GPU_FIELDS = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.limit",
    "memory.total",
)


def provenance() -> dict[str, Any]:
    """Where a run takes place, as plain values; what this machine cannot tell is null or left out."""
    return {
        "penaltylab": __version__,
        "git": git_revision(),
        "lock_sha256": lock_hash(),
        "python": platform.python_version(),
        "packages": packages(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": gpus(),
    }


def git_revision() -> dict[str, Any] | None:
    """The checkout's revision and whether it holds uncommitted changes; None for an installed package."""
    if not (ROOT / ".git").exists():
        return None
    revision, changes = _output(["git", "rev-parse", "HEAD"]), _output(["git", "status", "--porcelain"])
    return {"revision": revision, "dirty": bool(changes)} if revision else None


def lock_hash() -> str | None:
    """The SHA-256 of `requirements.lock`; None for an installed package."""
    lock = ROOT / "requirements.lock"
    return hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else None


def packages() -> dict[str, str]:
    """Every installed distribution and its version."""
    found = {entry.name: entry.version for entry in metadata.distributions(path=sys.path)}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def cpu_model() -> str | None:
    """The processor's name, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def gpus() -> list[dict[str, str]]:
    """Each NVIDIA GPU's driver, clocks, temperature and power limit, as its driver prints them; empty where none is."""
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    lines = (_output(query) or "").splitlines()
    return [dict(zip(GPU_FIELDS, map(str.strip, line.split(",")), strict=False)) for line in lines]


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
