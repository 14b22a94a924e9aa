"""The table of fidelity in docs/emulator.md names tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "emulator.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| rule ")]


def functions(module: str) -> set[str]:
    path = ROOT / "tests" / "emu" / f"{module}.py"
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_rule_has_a_test_that_exists() -> None:
    assert len(ROWS) > 35
    for row in ROWS:
        rule, _, test = [cell.strip() for cell in row.strip("|").split("|")]
        named = re.fullmatch(r"`(test_\w+)::(test_\w+)`", test)
        assert named, rule
        assert named[2] in functions(named[1]), rule


def test_the_readme_leads_there() -> None:
    assert "docs/emulator.md" in (ROOT / "README.md").read_text()
