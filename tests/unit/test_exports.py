"""Test the tables of `kit export`: their columns, missing values, and texts of strangers."""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kit.analysis.tidy import CELLS, LAUNCHES, Kind, TidyTable, cell_table, launch_table
from kit.model.formatting import printable
from kit.model.run import Run
from kit.report import exports
from kit.storage.run_folder import RunFolder
from tests import example_run, examples, exports_doc, report_runs
from tests.command import Kit

GOLDEN = Path(__file__).parents[1] / "golden"
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "＝1", "a;=1"]
HOSTILE = "a|b\\|c`d`<img src=x onerror=1>&lt;@everyone #1 [x](http://y.z) www.y.z **b** _i_ ~~s~~\n| x | y |"


def golden(name: str, text: str) -> None:
    """Compare with a golden file. `KIT_UPDATE_GOLDEN=1` writes it again."""
    if os.environ.get("KIT_UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def with_message(message: str) -> Run:
    """Return a run with one launch that failed with this message."""
    return examples.run([examples.failed(message=message)])


def test_the_page_about_the_columns_is_current() -> None:
    assert exports_doc.PAGE.read_text(encoding="utf-8") == exports_doc.make_page(), "run `make docs`"


@pytest.mark.parametrize(("rows", "make"), [("cells", cell_table), ("launches", launch_table)])
def test_the_tables_keep_their_columns(rows, make) -> None:
    table = make(example_run.run())
    header, *lines = exports.to_csv(table).splitlines()
    golden(f"export-{rows}.csv", header + "\n")
    assert len(lines) == len(table.rows)
    golden(f"export-{rows}.md", exports.to_markdown(table, example_run.run()))


@pytest.mark.parametrize(("columns", "make"), [(CELLS, cell_table), (LAUNCHES, launch_table)])
def test_every_column_has_a_value_of_its_kind(columns, make) -> None:
    of = replace(examples.cell("catdog-cnn"), variant="deep", workers=2, hidden_layers=3)
    request = examples.request(examples.cell())
    of_cell = {name: getattr(of, name) for name in ("variant", "workers", "hidden_layers")}
    run = report_runs.three_launches()
    records = [
        record.model_copy(update={"cell": replace(record.cell, **of_cell)})
        for record in (*run.records[:3], examples.record(request, epochs=2), examples.failed(request))
    ]
    table = make(Run(run.plan, run.machine, records))
    kinds = {Kind.TEXT: str, Kind.WHOLE: int, Kind.NUMBER: float, Kind.FLAG: bool}
    never = {"p99_ms"}  # too few calls
    for index, column in enumerate(table.columns):
        values = {type(row[index]) for row in table.rows if row[index] not in (None, "")}
        assert values <= {kinds[column.kind]}, column.name
        assert values or column.name in never, column.name
    assert [column.name for column in table.columns] == list(dict.fromkeys(column.name for column in columns))


@pytest.mark.parametrize("make", [cell_table, launch_table])
def test_csv_json_and_the_frame_have_the_same_values_and_no_nan(make) -> None:
    table = make(example_run.run())
    text = exports.to_csv(table)
    assert not re.search(r"\b(nan|None|<NA>|inf)\b", text, re.IGNORECASE)
    frame = table.frame()
    read = pd.read_csv(io.StringIO(text), dtype=dict(frame.dtypes), keep_default_na=False, na_values=[""])
    for column in table.columns:
        expected = frame[column.name].replace("", pd.NA) if column.kind is Kind.TEXT else frame[column.name]
        pd.testing.assert_series_equal(read[column.name], expected, check_exact=True)
    loaded = json.loads(exports.to_json(table))
    assert [tuple(row.values()) for row in loaded] == table.rows
    assert all(list(row) == [column.name for column in table.columns] for row in loaded)


def test_infinite_numbers_are_missing() -> None:
    (record,) = [examples.record()]
    inference = replace(record.result.inference, p50_ms=float("inf"))
    run = examples.run([record.model_copy(update={"result": replace(record.result, inference=inference)})])
    (row,) = json.loads(exports.to_json(launch_table(run)))
    assert row["p50_ms"] is None


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_text_of_a_csv_file_is_a_formula(formula: str) -> None:
    text = exports.to_csv(launch_table(with_message(formula)))
    (value,) = pd.read_csv(io.StringIO(text))["reason"]
    assert value == (formula if formula.startswith("a") else f"'{formula}")
    assert f'"{value}"' in text, "every text is quoted, also for programs that separate by semicolons"


def cells_of(markdown: str) -> list[list[str]]:
    """Return the texts of the cells of the only table. Fail if a cell has anything but text and code."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    assert [token.type for token in tokens].count("table_open") == 1
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline":
            kinds = {part.type for part in token.children or ()}
            assert kinds <= {"text", "text_special", "html_inline"}, kinds
            marks = {part.content for part in token.children or () if part.type == "html_inline"}
            assert marks <= {"<code>", "</code>"}
            if rows and token.level > 2:
                rows[-1].append("".join(p.content for p in token.children or () if p.type != "html_inline"))
    return rows


@given(st.text(max_size=60).map(lambda text: f"x{text}") | st.just(HOSTILE))
def test_no_text_breaks_a_table_in_markdown_or_has_a_meaning_there(message: str) -> None:
    columns = tuple(column for column in LAUNCHES if column.name in ("cell", "reason", "launch"))
    columns = tuple(replace(column, title=column.name) for column in columns)
    table = TidyTable(columns, [(message, 1, "plain"), ("plain", 2, message)])
    run = with_message(message)
    run = replace(run, machine=run.machine.model_copy(update={"cpu_model": message}))
    markdown = exports.to_markdown(table, run)
    shown = " ".join(printable(message).split())
    assert cells_of(markdown) == [["cell", "launch", "reason"], [shown, "1", "plain"], ["plain", "2", shown]]
    assert not re.search(r"@|://|www\.", markdown.split("\n", 1)[1])


def test_a_table_that_is_too_long_for_a_comment_says_what_was_cut() -> None:
    records = [examples.record(examples.request(launch=number)) for number in range(1, 2001)]
    markdown = exports.to_markdown(launch_table(examples.run(records)), examples.run(records))
    rows = cells_of(markdown)
    assert 64_000 < len(markdown.encode()) < 65_536
    assert markdown.endswith(f"\n\n{2000 - (len(rows) - 1)} more rows left out, because a comment has a limit.\n")
    few = exports.to_markdown(launch_table(examples.run(records[:3])), examples.run(records[:3]))
    assert "left out" not in few
    assert "Synthetic data" in few
    assert len(cells_of(few)) == 4


def test_markdown_has_no_column_for_a_flag_that_is_never_set() -> None:
    real = examples.run([examples.record(examples.request(data="real"))])
    assert launch_table(real).rows[0][[column.name for column in LAUNCHES].index("synthetic")] is False
    assert "Synthetic data" not in exports.to_markdown(launch_table(real), real)


def save(records, path: Path) -> None:
    folder = RunFolder.create(path, examples.plan([examples.planned()]), examples.machine())
    for record in records:
        folder.save(record)


def test_export_prints_a_table_or_writes_a_new_file(kit: Kit, tmp_path: Path) -> None:
    save([examples.record(), examples.record(examples.request(launch=2))], tmp_path / "reports" / "r1")
    for form, words in (
        ("csv", '"run","machine"'),
        ("json", '[\n {\n  "run": "r1"'),
        ("markdown", "### <code>Example"),
    ):
        printed = kit("export", "r1", "--to", form)
        assert (printed.code, printed.err) == (0, "")
        assert printed.out.startswith(words)
        written = kit("export", "r1", "--to", form, "--out", f"x.{form}")
        assert written.out == f"Table with 1 row: x.{form}\n"
        assert Path(f"x.{form}").read_text() == printed.out
        refused = kit("export", "r1", "--to", form, "--out", f"x.{form}")
        assert (refused.code, refused.err) == (2, f"x.{form} exists.\nChoose another file with --out.\n")
    assert len(json.loads(kit("export", "r1", "--to", "json", "--rows", "launches").out)) == 2


BAD = {
    "": ["Missing option", "--to"],
    "--to xml": ["Unknown format 'xml'", "csv, json, markdown, parquet"],
    "--to csv --rows windows": ["Unknown kind of row 'windows'", "cells, launches"],
    "--to parquet": ["cannot be printed", "--out"],
    "--to csv --out /dev/null": ["/dev/null exists."],
}


@pytest.mark.parametrize("options", BAD)
def test_bad_options_of_export_are_named(kit: Kit, tmp_path: Path, options: str) -> None:
    save([], tmp_path / "reports" / "r1")
    called = kit("export", "r1", *options.split())
    assert (called.code, called.out) == (2, "")
    assert all(words in called.err for words in BAD[options]), called.err


def test_parquet_without_pyarrow_names_the_package(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save([examples.record()], tmp_path / "reports" / "r1")
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    called = kit("export", "r1", "--to", "parquet", "--out", "x.parquet")
    assert (called.code, called.out) == (2, "")
    assert called.err == (
        "Parquet needs the package pyarrow, which is not installed.\n"
        "Install it in kit's environment with `pip install pyarrow`, or use --to csv.\n"
    )
    assert not Path("x.parquet").exists()


@pytest.mark.parametrize("make", [cell_table, launch_table])
def test_a_parquet_file_has_the_types_and_values_of_the_table(make) -> None:
    frame = make(example_run.run()).frame()
    read = pd.read_parquet(io.BytesIO(exports.to_parquet(make(example_run.run()))))
    pd.testing.assert_frame_equal(read, frame, check_dtype=False)
    assert {str(kind) for kind in read.dtypes} <= {"string", "Int64", "Float64", "boolean"}
