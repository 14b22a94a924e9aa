"""The statements that count the last output tokens, found in sglang's source by what they call, run as they stand."""

from __future__ import annotations

import ast
import builtins
import dis
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

SCHEDULE_BATCH = "sglang/srt/managers/schedule_batch.py"
EAGLE = "sglang/srt/speculative/eagle*.py"  # in eagle_info_v2.py up to 0.5.14, in eagle_utils.py after
SHARED = "cumulate_penalty_output_tokens"  # the method that both paths call since 0.5.14
CUMULATE = "cumulate_output_tokens"  # the orchestrator's


@dataclass(frozen=True)
class Statements:
    """What a decode path does to count the last tokens: call it with a ScheduleBatch.

    The code keeps its file, function name and line numbers, so that traces and hazards name sglang's own lines.
    """

    run: Callable[[Any], None]
    file: Path
    function: str
    first_line: int
    last_line: int

    @property
    def site(self) -> str:
        """`schedule_batch.py(2585-2604): cumulate_penalty_output_tokens`."""
        return f"{self.file.name}({self.first_line}-{self.last_line}): {self.function}"


def find_statements(root: Path, path: str, names: dict[str, Any]) -> Statements:
    """Those of decode path `path` in the sources under `root`; of globals they may use `names` alone.

    Before 0.5.14 they are a block of `prepare_for_decode` itself, guarded by `is_required`; since then the block calls
    one shared method, and that is what is found. Raises LookupError where the source has neither shape.
    """
    files = [root / SCHEDULE_BATCH] if path == "normal" else sorted(root.glob(EAGLE))
    for file in files:
        for function in _functions(_parse(file), "ScheduleBatch" if path == "normal" else None):
            block = _guarded_block(function) if function.name.endswith("prepare_for_decode") else None
            if block is None:
                continue
            if _calls(block, SHARED):
                return _shared(root, names)
            return _compile(file, function, _owner(block), [block], names)
    where = f"ScheduleBatch.prepare_for_decode in {SCHEDULE_BATCH}" if path == "normal" else f"function in {EAGLE}"
    raise LookupError(f"no {where} has an `if ...is_required:` that calls {CUMULATE} or {SHARED}")


def _shared(root: Path, names: dict[str, Any]) -> Statements:
    file = root / SCHEDULE_BATCH
    for function in _functions(_parse(file), "ScheduleBatch"):
        if function.name == SHARED and _calls(function, CUMULATE):
            return _compile(file, function, function.args.args[0].arg, function.body, names)
    raise LookupError(f"no ScheduleBatch.{SHARED} in {SCHEDULE_BATCH} calls {CUMULATE}")


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _functions(tree: ast.Module, of_class: str | None) -> Iterator[ast.FunctionDef]:
    """Functions of the module and methods of its classes; with `of_class`, that class's methods alone."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and of_class in (None, node.name):
            yield from (item for item in node.body if isinstance(item, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef) and of_class is None:
            yield node


def _guarded_block(function: ast.FunctionDef) -> ast.If | None:
    for statement in function.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Attribute):
            guards = statement.test.attr == "is_required"
            if guards and (_calls(statement, CUMULATE) or _calls(statement, SHARED)):
                return statement
    return None


def _calls(tree: ast.AST, method: str) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr == method for func in calls)


def _owner(block: ast.If) -> str:
    """The name of the batch in `NAME.sampling_info.penalizer_orchestrator.is_required`."""
    node: ast.expr = block.test
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _compile(
    file: Path, origin: ast.FunctionDef, batch: str, body: list[ast.stmt], names: dict[str, Any]
) -> Statements:
    """A function named as `origin`, of one argument, the batch, whose body is `body` as it stands."""
    tree = ast.parse(f"def {origin.name}({batch}): pass")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    ast.increment_lineno(function, origin.lineno - 1)
    function.body = body
    code = compile(tree, str(file), "exec", dont_inherit=True)
    unknown = sorted(set(_globals(code)) - names.keys() - {origin.name} - set(dir(builtins)))
    if unknown:
        raise LookupError(f"{file.name}({body[0].lineno}) needs {', '.join(unknown)}")
    namespace = dict(names)
    exec(code, namespace)
    last_line = body[-1].end_lineno or body[-1].lineno
    return Statements(namespace[origin.name], file, origin.name, body[0].lineno, last_line)


def _globals(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)
