"""The cost model of the emulated device: what each call of the host and each operation of the device takes."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from penaltylab.errors import InputError
from penaltylab.resources import data_path


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Times in us, bandwidths in bytes a us (1e6 bytes a us is 1 TB/s), rates in operations a us.

    `sources` says, for every value, where it comes from.
    """

    name: str
    device_name: str
    sources: dict[str, str]

    dispatch_us: float
    view_us: float
    alloc_us: float
    launch_us: float
    memcpy_call_us: float
    sync_idle_us: float
    sync_return_us: float
    event_record_us: float
    event_wait_us: float
    event_query_us: float
    host_alloc_us: float
    host_copy_bytes_per_us: float

    launch_to_start_us: float
    kernel_gap_us: float
    kernel_min_us: float
    copy_min_us: float
    h2d_bytes_per_us: float
    h2d_pageable_bytes_per_us: float
    d2h_bytes_per_us: float
    d2h_pageable_bytes_per_us: float
    memory_bytes_per_us: float
    flops_per_us: float
    flops_half_per_us: float
    pageable_async_max_bytes: int
    memory_bytes: int

    def asdict(self) -> dict[str, Any]:
        """Plain values, for metadata of traces and records."""
        return msgspec.to_builtins(self)


_TEXT = {"name", "device_name", "sources"}
VALUES = tuple(field for field in Machine.__struct_fields__ if field not in _TEXT)


def machine_names() -> list[str]:
    """The machines that `data/machines/` describes."""
    return sorted(path.stem for path in data_path("machines").glob("*.toml"))


def load_machine(name: str | Path) -> Machine:
    """The machine called `name`, or the one that the TOML file at path `name` describes.

    A file holds `name`, `device_name`, optionally `base` (a machine whose values it keeps where it gives none), and one
    table a value: `[launch_us]` with `value` and `source`.

    Raises:
        InputError: no such machine, unreadable file, a value that is unknown, missing, negative or without source.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = data_path("machines", f"{name}.toml")
        if not path.is_file() or str(name) not in machine_names():
            raise InputError(
                f"machine {str(name)!r}: not one of {', '.join(machine_names())}, nor a path to a .toml file"
            )
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"machine {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"machine {path}: not TOML: {error}") from None
    return _build(path, given)


def _build(path: Path, given: dict[str, Any]) -> Machine:
    values: dict[str, Any] = {"name": given.pop("name", path.stem)}
    sources: dict[str, str] = {}
    if (base := given.pop("base", None)) is not None:
        if str(base) not in machine_names():
            raise InputError(f"machine {path}: base {base!r} is not one of {', '.join(machine_names())}")
        parent = load_machine(str(base))
        values = {**parent.asdict(), **values}
        sources = dict(parent.sources)
    if (device_name := given.pop("device_name", values.get("device_name"))) is None:
        raise InputError(f"machine {path}: device_name is missing")
    for key, entry in given.items():
        if key not in VALUES:
            raise InputError(f"machine {path}: unknown value {key!r}; the values are {', '.join(VALUES)}")
        if not isinstance(entry, dict) or set(entry) != {"value", "source"}:
            raise InputError(f"machine {path}: [{key}] needs `value` and `source`, and nothing else")
        values[key], sources[key] = _checked(path, key, entry["value"]), str(entry["source"])
    if missing := [key for key in VALUES if key not in values]:
        raise InputError(f"machine {path}: missing {', '.join(missing)}")
    return msgspec.convert({**values, "device_name": device_name, "sources": sources}, Machine)


def _checked(path: Path, key: str, value: Any) -> float:
    kind = Machine.__annotations__[key]
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise InputError(
            f"machine {path}: [{key}] value {value!r} is not {'an integer' if kind is int else 'a number'}"
        )
    if not 0 <= value < float("inf") or (value == 0 and key.endswith("per_us")):
        raise InputError(f"machine {path}: [{key}] value {value!r} is out of range")
    return value
