"""What could change a result, besides its parameters: packages, code, machine, driver. No user or host names."""

import getpass
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
VARIABLES = ("OMP_", "MKL_", "CUDA_VISIBLE", "CUDA_LAUNCH", "HIP_VISIBLE", "ROCR_VISIBLE", "PYTORCH_", "TORCH_CUDA")
"""How the names of environment variables begin that change what is measured and tell nothing of who measures."""


def provenance(names: bool = False) -> dict[str, Any]:
    """Where a run takes place, as plain values; what this machine cannot tell is null or left out.

    Who ran it and on which host is in it only if `names` asks for it.
    """
    python, system = python_and_system()
    who = {"user": getpass.getuser(), "host": platform.node()} if names else {}
    return {
        **who,
        "penaltylab": __version__,
        "git": git_revision(),
        "lock_sha256": lock_hash(),
        "python": python,
        "packages": packages(),
        "system": system,
        "cpu": cpu_model(),
        "governor": _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory": _line("/proc/meminfo"),
        "container": container(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)},
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": gpus(),
    }


def python_and_system() -> tuple[str, str]:
    """The interpreter's version, and the kernel with its release and architecture."""
    return platform.python_version(), f"{platform.system()} {platform.release()} {platform.machine()}"


def git_revision() -> dict[str, Any] | None:
    """The checkout's revision, and a hash of what is changed in it since; None for an installed package."""
    if not (ROOT / ".git").exists():
        return None
    revision, changes = _output(["git", "rev-parse", "HEAD"]), _output(["git", "status", "--porcelain"])
    if not revision:
        return None
    difference = _output(["git", "diff", "HEAD"]) or ""
    digest = hashlib.sha256(f"{changes}\n{difference}".encode()).hexdigest()[:16] if changes else None
    return {"revision": revision, "dirty": bool(changes), "changes": digest}


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


def container() -> str | None:
    """What kind of container this process is in, as far as its usual marks tell."""
    marks = {"docker": Path("/.dockerenv").exists(), "podman": Path("/run/.containerenv").exists()}
    marks |= {"kubernetes": "KUBERNETES_SERVICE_HOST" in os.environ, "apptainer": "APPTAINER_NAME" in os.environ}
    return ", ".join(name for name, found in marks.items() if found) or None


def _line(path: str) -> str | None:
    """The first line of a file of the kernel's; None where there is none."""
    try:
        return Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return None


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
