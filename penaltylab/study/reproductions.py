"""Minimal reproductions against released sglang code: each a table that can be pasted into an issue.

What runs is the release's own statements and penalizers, unmodified, from its wheel, in our loop.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from penaltylab.bench.apply import Owner
from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.collect import Collector
from penaltylab.study.observed import Observed, observe
from penaltylab.study.plain import PlainDecoder
from penaltylab.upstream import Upstream, load
from penaltylab.upstream.release import revision_of

if TYPE_CHECKING:
    import pandas as pd

FREQUENCY = 0.5
SMALL = {"vocab_size": 32, "warmup": 1, "forward_ms": 1.0, "scenario": "steady"}
PROCESSES = 16
# A process of its own: the release's classes, defined without torch, and the order of a set of them.
ORDER = """
import sys, types
torch, utils = types.ModuleType("torch"), types.ModuleType("sglang.srt.utils")
torch.__getattr__ = utils.__getattr__ = lambda name: lambda *args, **kwargs: lambda function: function
sys.modules |= {"torch": torch, "sglang.srt.utils": utils}
sys.path.insert(0, sys.argv[1])
from sglang.srt.sampling.penaltylib import BatchedFrequencyPenalizer as F, BatchedRepetitionPenalizer as R
from sglang.srt.sampling.penaltylib import BatchedMinNewTokensPenalizer as M, BatchedPresencePenalizer as P
names = [penalizer.__name__ for penalizer in {F, M, P, R}]
print(" then ".join(name for name in names if name in (F.__name__, R.__name__)))
"""


def one_step_late(study: Collector, version: str) -> pd.DataFrame:
    """sglang #41124: under overlap a token's penalties come from the history before the last, the prompt's end first.

    A row a decode launch of one request with a frequency penalty of 0.5: the token just generated, what the penalizers
    have been told, and how likely that token is to come again, as they were told and as they should have been.
    """
    return _table(study, version, _one_step_late)


def last_token_only(study: Collector, version: str) -> pd.DataFrame:
    """sglang #33643: of a speculative round only the last accepted token is counted. A row a round."""
    return _table(study, version, _last_token_only)


def around_a_prefill(study: Collector, version: str) -> pd.DataFrame:
    """A prefill between two decode launches makes every running request lose one token and count the next twice."""
    return _table(study, version, _around_a_prefill)


def order_of_a_set(study: Collector, version: str) -> pd.DataFrame:
    """Without overlap the penalizers apply in the order of a Python set, which is another from process to process.

    A row an order: the logit 3 with a frequency penalty of 1 and a repetition penalty of 2, and in how many of
    `PROCESSES` fresh processes a set of the four penalizers has that order.
    """
    return _table(study, version, _order_of_a_set)


def _one_step_late(study: Collector, release: Upstream) -> pd.DataFrame:
    import pandas as pd

    req = _request(0)
    seen = _run(study, release, [req], steps=10)
    plain, tokens, told = PlainDecoder(seen.run.params), seen.run.tokens[0], seen.counted(0)
    rows = []
    for launch in range(1, len(tokens)):
        history, counted = tokens[:launch], told[:launch]
        last = history[-1]
        as_told, as_due = (plain.logprob(last, last, req, these) for these in (counted, history))
        rows.append(
            {
                "decode launch": launch,
                "just generated": last,
                "told": counted[-1],
                "not counted yet": sorted((Counter(history) - Counter(counted)).elements()),
                "counted, never generated": sorted((Counter(counted) - Counter(history)).elements()),
                "log p of it again": round(as_told, 3),
                "log p if it were counted": round(as_due, 3),
                "error": round(as_told - as_due, 3),
            }
        )
    return pd.DataFrame(rows).set_index("decode launch")


def _last_token_only(study: Collector, release: Upstream) -> pd.DataFrame:
    import pandas as pd

    seen = _run(study, release, [_request(0)], steps=10, path="eagle", accept_rate=0.9)
    tokens, told = seen.run.tokens[0], seen.counted(0)
    rows, start = [], 1
    for number, length in enumerate(seen.run.accept_lens[:, 0].tolist()):
        accepted = tokens[start : start + length]
        start += length
        if number + 2 < len(told):
            counted = (Counter(told[: number + 3]) & Counter(tokens[:start])).total()
            rows.append(
                {
                    "round": number + 1,
                    "accepted": accepted,
                    "told, two launches later": told[number + 2],
                    "never counted": accepted[:-1],
                    "generated so far": start,
                    "counted so far": counted,
                    "effective penalty %": round(100 * counted / start),
                }
            )
    return pd.DataFrame(rows).set_index("round")


def _around_a_prefill(study: Collector, release: Upstream) -> pd.DataFrame:
    import pandas as pd

    columns = {}
    for name, others in {"no prefill": [], "a prefill before the fourth": [_request(1, arrival=4)]}.items():
        seen = _run(study, release, [_request(0), *others], steps=9, batch_size=2)
        names = {token: f"o{place}" for place, token in reversed(list(enumerate(seen.run.tokens[0])))}
        columns[f"told, {name}"] = [names.get(token, "the prompt's last") for token in seen.counted(0)]
    frame = pd.DataFrame(columns, index=pd.RangeIndex(1, len(seen.counted(0)) + 1, name="decode launch"))
    told = columns["told, a prefill before the fourth"]
    lost = [name for name in columns["told, no prefill"] if name not in told]
    frame["what is wrong"] = [
        f"again; {', '.join(lost)} is never counted" if place and told[place - 1] == name else ""
        for place, name in enumerate(told)
    ]
    return frame


def _order_of_a_set(study: Collector, release: Upstream) -> pd.DataFrame:
    import pandas as pd

    library = release.penaltylib
    frequency, repetition = library.BatchedFrequencyPenalizer, library.BatchedRepetitionPenalizer
    command = [sys.executable, "-I", "-S", "-c", ORDER, str(release.folder)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        runs = [
            pool.submit(subprocess.run, command, capture_output=True, text=True, check=True) for _ in range(PROCESSES)
        ]
        found = Counter(run.result().stdout.strip() for run in runs)
    rows = []
    for order in ([frequency, repetition], [repetition, frequency]):
        name = " then ".join(penalizer.__name__ for penalizer in order)
        rows.append(
            {"order": name, "logit 3.0 becomes": _one_logit(library, order), f"of {PROCESSES} processes": found[name]}
        )
    return pd.DataFrame(rows).set_index("order")


def _one_logit(library: Any, order: list[Any]) -> float:
    params = SamplingParams(max_new_tokens=9, frequency_penalty=1.0, repetition_penalty=2.0)
    owner = Owner([Req(0, [1], params, Tokenizer(eos_token_id=1))], torch.device("cpu"))
    orchestrator = library.BatchedPenalizerOrchestrator(2, owner, order)
    orchestrator.cumulate_output_tokens(torch.tensor([0]))
    logits = torch.tensor([[3.0, 3.0]])
    orchestrator.apply(logits)
    return float(logits[0, 0])


def _request(rid: int, arrival: int = 0) -> Req:
    params = SamplingParams(max_new_tokens=1 << 20, frequency_penalty=FREQUENCY, ignore_eos=True)
    return Req(rid, [5 + rid], params, Tokenizer(eos_token_id=0), arrival)


def _run(study: Collector, release: Upstream, requests: list[Req], **changes: Any) -> Observed:
    given = study.with_changes(**SMALL | {"batch_size": 1, "revision": revision_of(release.version)} | changes)
    return observe(Params.of(**given), requests, release)


def _table(study: Collector, version: str, reproduce: Any) -> pd.DataFrame:
    """The reproduction's table, or, where the release cannot be fetched, one that says so."""
    import pandas as pd

    try:
        release = load(version)
    except InputError as error:
        return pd.DataFrame({"not run here": [str(error)]})
    table: pd.DataFrame = reproduce(study, release)
    return table.rename_axis(columns=f"sglang {version}")
