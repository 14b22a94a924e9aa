from pathlib import Path

import pytest

from penaltylab import emu
from penaltylab.emu.machine import VALUES
from penaltylab.errors import InputError


def test_every_value_of_the_h100_has_a_source() -> None:
    machine = emu.load_machine("h100")
    assert set(machine.sources) == set(VALUES)
    assert all(len(source) > 20 for source in machine.sources.values())
    assert (machine.launch_us, machine.launch_to_start_us, machine.kernel_gap_us) == (4.5, 6.4, 1.2)
    assert machine.copy_min_us + 82_944 / machine.h2d_bytes_per_us == pytest.approx(4.0, abs=0.02)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"machine 'h1oo': not one of .*h100.*path to a \.toml"):
        emu.load_machine("h1oo")


def test_a_file_builds_on_a_machine_and_says_where_its_own_values_come_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "h100"\ndevice_name = "Mine"\n[launch_us]\nvalue = 9\nsource = "my trace"\n')
    machine = emu.load_machine(path)
    assert (machine.name, machine.device_name, machine.launch_us) == ("mine", "Mine", 9)
    assert machine.memcpy_call_us == emu.load_machine("h100").memcpy_call_us
    assert machine.sources["launch_us"] == "my trace"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("not toml", "not TOML"),
        ('device_name = "x"', r"missing dispatch_us, view_us"),
        ('base = "h1"', "base 'h1' is not one of"),
        ('base = "h100"\nlaunch_us = 3', r"\[launch_us\] needs `value` and `source`"),
        ('base = "h100"\n[lunch_us]\nvalue = 3\nsource = "x"', "unknown value 'lunch_us'; the values are .*launch_us"),
        ('base = "h100"\n[launch_us]\nvalue = -3\nsource = "x"', "out of range"),
        ('base = "h100"\n[launch_us]\nvalue = nan\nsource = "x"', "out of range"),
        ('base = "h100"\n[launch_us]\nvalue = "3"\nsource = "x"', "not a number"),
        ('base = "h100"\n[launch_us]\nvalue = true\nsource = "x"', "not a number"),
        ('base = "h100"\n[flops_per_us]\nvalue = 0\nsource = "x"', "out of range"),
        ('base = "h100"\n[pageable_async_max_bytes]\nvalue = 1.5\nsource = "x"', "not an integer"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as raised:
        emu.load_machine(path)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: No such file"):
        emu.load_machine("nowhere.toml")
