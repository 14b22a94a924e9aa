"""The setting changes with whatever could change a result, and with nothing else."""

from pathlib import Path

import msgspec
import pytest

from penaltylab.study import setting as module
from penaltylab.study.setting import Setting, code_hash, differences, setting

HERE = Setting(
    code="c", lock="l", packages="p", python="3.11", system="Linux", cpu="a cpu", device="emu", driver=None
)


def test_the_same_machine_has_the_same_setting() -> None:
    assert setting("emu") == setting("emu")
    assert setting("emu").hash() == setting("emu").hash()


@pytest.mark.parametrize("name", Setting.__struct_fields__)
def test_whatever_differs_makes_another(name: str) -> None:
    other = msgspec.structs.replace(HERE, **{name: "other"})
    assert other.hash() != HERE.hash()
    assert differences(msgspec.to_builtins(HERE), msgspec.to_builtins(other)) == [name]


def test_a_setting_of_another_time_may_lack_a_name() -> None:
    assert differences({}, {"code": "c"}) == ["code"]


def test_a_changed_source_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    before = code_hash()
    (tmp_path / "a.py").write_text("x = 2")
    assert code_hash() != before
