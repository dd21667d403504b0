"""Test the formatters."""

from kit.model.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_range,
    format_ratio,
    format_si,
    format_whole,
    printable,
)


def test_formats() -> None:
    assert [format_bytes(n) for n in (0, 1000, 1023, 1024, 10 << 20, 3 << 30)] == [
        "0 B",
        "1000 B",
        "1023 B",
        "1.0 KiB",
        "10 MiB",
        "3.0 GiB",
    ]
    assert [format_duration(s) for s in (0.04, 9.96, 59.6, 65, 3599.7, 3661, 7199)] == [
        "0.0 s",
        "10 s",
        "1 min 00 s",
        "1 min 05 s",
        "1 h 00 min",
        "1 h 01 min",
        "2 h 00 min",
    ]
    assert [format_percent(0.124), format_percent(-0.124, 1, signed=True)] == ["12%", "-12.4%"]
    ratios = (0.5, 0.964, 0.9994, 0.9996, 1.0003, 1.019, 1.02, 1.099, 1.1, 12.34)
    assert [format_ratio(ratio) for ratio in ratios] == [
        *("0.50", "0.964", "0.999", "0.9996", "1.000", "1.019", "1.02", "1.10", "1.1", "12")
    ]
    assert [format_range("1.0", "1.0"), format_range("1.0", "2.0")] == ["1.0", "1.0 to 2.0"]
    assert [format_number(12345.6), format_number(0), format_number(0.01234, 2)] == ["12,300", "0", "0.012"]
    assert [format_number(9.997), format_number(99.96), format_number(-0.9999)] == ["10.0", "100", "-1.00"]
    assert [format_si(0.00082, "s"), format_si(999.9e9, "B/s")] == ["820 µs", "1 TB/s"]
    assert [format_count(1, "core"), format_count(2, "core"), format_count(0, "launch")] == [
        "1 core",
        "2 cores",
        "0 launches",
    ]
    assert [format_whole(1234), format_whole(3.4)] == ["1,200", "3"]


def test_printable_replaces_control_characters() -> None:
    assert printable("a\x1b[2J\u202eb\ud800\nü") == "a?[2J?b?\nü"


def test_printable_replaces_marks_that_reorder_or_break_a_line() -> None:
    assert printable("\u200e1\u200f2\u061c3\u20284\u2029") == "?1?2?3?4?"
