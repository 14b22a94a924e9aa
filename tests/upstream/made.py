"""Small sources of our own in the shapes that sglang's have had, and a wheel made of them."""

import base64
import hashlib
import zipfile
from pathlib import Path

PENALTYLIB = "sglang/srt/sampling/penaltylib"
SCHEDULE_BATCH = "sglang/srt/managers/schedule_batch.py"
EAGLE_V2 = "sglang/srt/speculative/eagle_info_v2.py"
EAGLE_UTILS = "sglang/srt/speculative/eagle_utils.py"

INLINE_NORMAL = """\
import nowhere_to_be_found


class ScheduleBatch:
    def prepare_for_decode(self):
        self.unrelated = nowhere_to_be_found

        if self.sampling_info.penalizer_orchestrator.is_required:
            ids = [r.output_ids[-1] if r.output_ids else r.origin_input_ids[-1] for r in self.reqs]
            tokens = torch.tensor(ids, device=self.device)
            self.sampling_info.penalizer_orchestrator.cumulate_output_tokens(tokens)
"""
INLINE_EAGLE = """\
class Mixin:
    def prepare_for_decode(self, batch):
        if batch.sampling_info.penalizer_orchestrator.is_required:
            ids = [r.output_ids[-1] if r.output_ids else r.origin_input_ids[-1] for r in batch.reqs]
            tokens = torch.tensor(ids, device=batch.device)
            batch.sampling_info.penalizer_orchestrator.cumulate_output_tokens(tokens)
        batch.unrelated()
"""
SHARED_NORMAL = """\
class ScheduleBatch:
    def cumulate_penalty_output_tokens(self):
        ids = [r.output_ids[-1] if r.output_ids else r.origin_input_ids[-1] for r in self.reqs]
        pin = is_pin_memory_available(self.device)
        tokens = torch.tensor(ids, pin_memory=pin).to(self.device, non_blocking=True)
        self.sampling_info.penalizer_orchestrator.cumulate_output_tokens(tokens)

    def prepare_for_decode(self):
        if self.sampling_info.penalizer_orchestrator.is_required:
            self.cumulate_penalty_output_tokens()
"""
SHARED_EAGLE = """\
def eagle_prepare_for_decode(batch):
    if batch.sampling_info.penalizer_orchestrator.is_required:
        batch.cumulate_penalty_output_tokens()
"""
ORCHESTRATOR = """\
from penaltylab.penalties import BatchedPenalizerOrchestrator as Ours
from sglang.srt.utils import is_npu


class BatchedPenalizerOrchestrator(Ours):
    def __init__(self, vocab_size, batch, penalizers):
        assert is_npu() and len(penalizers) == 4
        super().__init__(vocab_size, batch)
"""
INIT = """\
from sglang.srt.sampling.penaltylib.orchestrator import BatchedPenalizerOrchestrator


class BatchedFrequencyPenalizer: ...
class BatchedMinNewTokensPenalizer: ...
class BatchedPresencePenalizer: ...
class BatchedRepetitionPenalizer: ...
"""
SOURCES = {
    f"{PENALTYLIB}/__init__.py": INIT,
    f"{PENALTYLIB}/orchestrator.py": ORCHESTRATOR,
    SCHEDULE_BATCH: INLINE_NORMAL,
    EAGLE_V2: INLINE_EAGLE,
    "sglang/srt/managers/scheduler.py": "import nowhere_to_be_found\n",
}


def write_sources(root: Path, sources: dict[str, str]) -> Path:
    """Lay `sources` out under `root`."""
    for name, text in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def write_wheel(folder: Path, version: str, sources: dict[str, str], recorded: dict[str, str] | None = None) -> Path:
    """A wheel of `sources`, whose RECORD tells the hashes of `recorded` (default: its own)."""
    info = f"sglang-{version}.dist-info"
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in (recorded or sources).items())
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": record,
    }
    wheel = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (sources | about).items():
            archive.writestr(name, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
