"""Params: one frozen, validated description of a run."""

import hashlib
import math
import tomllib
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from penaltylab.errors import InputError
from penaltylab.resources import data_path

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Params(Struct, frozen=True, kw_only=True):
    """What a run does. Build one with `Params.of`, which validates; times are in ms of device time."""

    path: Literal["normal", "eagle"] = "normal"
    h2d: Literal[
        "pinned_async",
        "blocking",
        "pageable_async",
        "pinned_blocking",
        "pinned_ring",
        "device_resident",
        "pinned_reuse_unsafe",
    ] = "pinned_async"
    barrier: Literal["coarse", "read_done", "none"] = "coarse"
    accounting: Literal["upstream", "exact"] = "upstream"
    apply: Literal["dense", "sparse", "auto"] = "dense"
    overlap: bool = True
    seq_lens_sync: bool = True
    prepare_h2d: Literal["pinned_async", "blocking"] = "pinned_async"
    min_tokens_mask: Literal["where", "boolean_index"] = "where"
    batch_size: Annotated[int, Meta(ge=1, le=8192)] = 8
    vocab_size: Annotated[int, Meta(ge=16, le=1_000_000)] = 4096
    steps: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    warmup: Annotated[int, Meta(ge=0)] = 8
    seed: Annotated[int, Meta(ge=0)] = 0
    temperature: Annotated[float, Meta(ge=0)] = 0.0
    forward_ms: Annotated[float, Meta(ge=0, le=60_000)] = 2.5
    draft_share: Share = 0.35
    extend_share: Share = 0.10
    draft_tokens: Annotated[int, Meta(ge=1, le=64)] = 3
    accept_rate: Share = 0.7
    model: Literal["markov", "llama"] = "markov"
    model_shape: Literal["tiny", "1b", "8b"] = "tiny"
    device: Literal["auto", "emu", "cuda"] = "auto"
    machine: str = "h100"
    host_time: Literal["modelled", "measured"] = "modelled"
    revision: str = ""
    scenario: str = "steady"

    @classmethod
    def of(cls, **given: Any) -> "Params":
        """Validate and complete `given`: a name not given is taken from `revision`, then `scenario`, then the default.

        Values may be strings, as a command line gives them. Raises InputError, which names the valid names or values.
        """
        own = {name: cls._convert(name, value) for name, value in given.items()}
        bundles = _scenario_bundle(own.get("scenario", "steady"))
        if own.get("revision"):
            bundles |= _revision_bundle(own["revision"], own.get("path", bundles.get("path", "normal")))
        own = {name: cls._convert(name, value) for name, value in bundles.items()} | own
        if own.get("accounting") == "exact":
            own = {"h2d": "device_resident", "apply": "auto"} | own
        params = cls(**own)
        if params.accounting == "exact" and params.h2d != "device_resident":
            raise InputError(
                f"h2d={params.h2d!r}: accounting='exact' counts on the device and takes device_resident only"
            )
        if params.warmup >= params.steps:
            raise InputError(f"warmup={params.warmup}: must be less than steps={params.steps}, of which it is a part")
        if params.draft_share + params.extend_share >= 1:
            raise InputError(
                f"draft_share={params.draft_share:g}, extend_share={params.extend_share:g}: no time is left to verify"
            )
        return params

    @classmethod
    def _convert(cls, name: str, value: Any) -> Any:
        hint = get_type_hints(cls, include_extras=True).get(name)
        if hint is None:
            raise InputError(f"unknown parameter {name!r}; the parameters are {', '.join(cls.__struct_fields__)}")
        try:
            result = msgspec.convert(value, hint, strict=False)
        except msgspec.ValidationError as error:
            choices = (
                f"one of {', '.join(get_args(hint))}" if get_origin(hint) is Literal else str(error).split(" - at")[0]
            )
            raise InputError(f"{name}={value!r}: {choices}") from None
        if isinstance(result, float) and not math.isfinite(result):
            raise InputError(f"{name}={value!r}: expected a finite number")
        return result

    def asdict(self) -> dict[str, Any]:
        """All parameters by name, as plain values."""
        return msgspec.structs.asdict(self)

    def hash(self) -> str:
        """16 hexadecimal digits that are equal exactly for equal parameters."""
        return hashlib.sha256(msgspec.json.encode(self.asdict(), order="sorted")).hexdigest()[:16]


def revisions() -> dict[str, dict[str, Any]]:
    """The named bundles of `data/revisions.toml`: a `note`, and a table of settings for each path."""
    return tomllib.loads(data_path("revisions.toml").read_text())


def scenarios() -> list[str]:
    """The names of the workloads in `data/scenarios`."""
    return sorted(path.stem for path in data_path("scenarios").glob("*.toml"))


def read_scenario(name: str) -> dict[str, Any]:
    """The tables of one workload file. Raises InputError, naming those there are."""
    if name not in scenarios():
        raise InputError(f"scenario={name!r}: one of {', '.join(scenarios())}")
    return tomllib.loads(data_path("scenarios", f"{name}.toml").read_text())


def _scenario_bundle(name: str) -> dict[str, Any]:
    return dict(read_scenario(name).get("params", {}))


def _revision_bundle(name: str, path: str) -> dict[str, Any]:
    known = revisions()
    if name not in known:
        raise InputError(f"revision={name!r}: one of {', '.join(known)}")
    return dict(known[name][path])
