import sys
from pathlib import Path

import pytest

from penaltylab.upstream.isolated import IsolatedPackage
from tests.upstream.made import write_sources


def package(root: Path, **sources: str) -> IsolatedPackage:
    files = {f"json/{name.replace('__', '/')}.py": text for name, text in sources.items()}
    return IsolatedPackage("json", write_sources(root, files), {"json.utils": {"answer": 42}})


def test_modules_find_each_other_and_the_stubs_but_no_installed_package_of_that_name(tmp_path: Path) -> None:
    isolated = package(tmp_path, a="from json.b import b\nfrom json.utils import answer", b="import os\nb = os.sep")
    module = isolated.load("json.a")
    assert (module.b, module.answer) == ("/", 42)
    assert isolated.load("json.a") is module
    with pytest.raises(ImportError, match=r"json\.decoder"):
        isolated.load("json.decoder")


def test_an_import_inside_a_function_is_isolated_too(tmp_path: Path) -> None:
    isolated = package(tmp_path, a="def late():\n    from json.b import b\n    return b", b="b = 1")
    assert isolated.load("json.a").late() == 1


def test_nothing_is_left_in_sys_modules(tmp_path: Path) -> None:
    before = set(sys.modules)
    package(tmp_path, a="from json.b import b", b="b = 1").load("json.a")
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "line", ["from json.utils import other", "from json.nothing import x", "import not_installed_x"]
)
def test_what_is_not_there_is_an_import_error(tmp_path: Path, line: str) -> None:
    with pytest.raises(ImportError):
        package(tmp_path, a=line).load("json.a")


def test_a_module_keeps_its_own_file_and_lines(tmp_path: Path) -> None:
    function = package(tmp_path, a="\n\ndef f(): ...").load("json.a").f
    assert (function.__code__.co_filename, function.__code__.co_firstlineno) == (str(tmp_path / "json" / "a.py"), 3)
