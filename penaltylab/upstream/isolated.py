"""A package's modules run from their files, unmodified, with nothing left in `sys.modules`."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class IsolatedPackage:
    """Modules under the top-level name `top`, from the sources under `root` or, by name, from `stubs`.

    Each module gets an `__import__` of its own, so that its `from {top}... import ...` finds the others here and not
    in `sys.modules`, and its `import x` those of `instead`: an installed package of that name is neither needed nor
    seen, and the process stays clean.
    """

    def __init__(
        self,
        top: str,
        root: Path,
        stubs: Mapping[str, Mapping[str, Any]],
        instead: Mapping[str, ModuleType] | None = None,
    ) -> None:
        self.top = top
        self.instead = instead or {}
        self.root = root
        self._modules: dict[str, ModuleType] = {}
        for name, values in stubs.items():
            self._modules[name] = ModuleType(name)
            vars(self._modules[name]).update(values)
        self._builtins = vars(builtins) | {"__import__": self._import}

    def load(self, name: str) -> ModuleType:
        """The module `name`, run on first use. Raises ImportError where it, or what it needs, is not there."""
        if name not in self._modules:
            self._modules[name] = self._run(name)
        return self._modules[name]

    def _run(self, name: str) -> ModuleType:
        base = self.root.joinpath(*name.split("."))
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if not file.is_file():
            raise ModuleNotFoundError(f"no module {name}")
        module = ModuleType(name)
        module.__file__ = str(file)
        vars(module)["__builtins__"] = self._builtins
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True), vars(module))
        return module

    def _import(
        self,
        name: str,
        globals_: Mapping[str, Any] | None = None,
        locals_: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level == 0 and name.partition(".")[0] == self.top:
            return self.load(name)  # as `from name import ...` asks; sglang's penaltylib has no other form
        if level == 0 and name in self.instead and not fromlist:
            return self.instead[name]
        return builtins.__import__(name, globals_, locals_, fromlist or (), level)
