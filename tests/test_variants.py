from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.paper.accuracy import collect
from bagwise.paper.accuracy_table import render
from bagwise.paper.export import read_runs
from bagwise.paper.figures import DPI, draw_figures
from bagwise.paper.run import RESULT, RunResult, versions, write_result
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_page import sweep_report

RUN = RunSettings("digits", "linear", "cc", 16, 1e-3, 1, 0, engine="exact")


def result(accuracy: float, validation: float | None = None, **changes: Any) -> RunResult:
    """A run that reached this test accuracy, in percent."""
    settings = replace(RUN, **changes)
    row = {
        "epoch": 1,
        "train_loss": 1.0,
        "lr": settings.lr,
        "train_accuracy": accuracy / 100,
        "seconds": 0.5,
        "val_bag_loss": 1.0,
        "val_accuracy": (accuracy if validation is None else validation) / 100,
        "test_bag_loss": 1.0,
        "test_accuracy": accuracy / 100,
    }
    history = [row | {"epoch": epoch + 1} for epoch in range(settings.epochs)]
    return RunResult(settings, history, 0.5 * settings.epochs, versions())


def means(results: list[RunResult]) -> dict[tuple[str, int], float]:
    (block,) = collect(results)
    return {key: round(cell.mean, 6) for key, cell in block.cells.items()}


def command(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"schedule": "one_cycle"}, "cc, one_cycle"),
        ({"average": 0.998}, "cc, average 0.998"),
        ({"weight_decay": 0.0}, "cc, weight_decay 0.0"),
        ({"batch_instances": 64}, "cc, batch_instances 64"),
        ({"engine": "bethe"}, "cc, bethe"),
    ],
)
def test_runs_that_differ_in_a_setting_have_rows_of_their_own(
    change: dict[str, Any], row: str
) -> None:
    first = "cc, exact" if "engine" in change else "cc"
    results = [result(90, seed=s) for s in (0, 1)] + [result(20, seed=s, **change) for s in (0, 1)]
    assert means(results) == {(first, 16): 90, (row, 16): 20}
    assert means(results[::-1]) == {(first, 16): 90, (row, 16): 20}


def test_a_setting_that_all_runs_share_is_not_named() -> None:
    assert means([result(90, schedule="one_cycle")]) == {("cc", 16): 90}


def test_engines_chosen_by_bag_size_share_a_row() -> None:
    results = [result(90), result(80, bag_size=64, engine="bethe")]
    assert means(results) == {("cc", 16): 90, ("cc", 64): 80}


def test_a_setting_of_one_method_only_is_named_there() -> None:
    results = [result(90, schedule="one_cycle"), result(80, method="dllp")]
    assert means(results) == {("cc, one_cycle", 16): 90, ("dllp", 16): 80}


def test_the_rate_is_chosen_within_each_variant() -> None:
    results = [
        result(90, lr=1e-3),
        result(70, lr=1e-2),
        result(30, lr=1e-3, average=0.9),
        result(60, lr=1e-2, average=0.9),
    ]
    (block,) = collect(results)
    assert block.cells["cc", 16].lr == 1e-3
    assert block.cells["cc, average 0.9", 16].lr == 1e-2


def test_pilots_of_a_variant_are_left_out_whatever_the_other_variants_length() -> None:
    results = [result(50, epochs=2), result(90, epochs=4), result(70, schedule="one_cycle")]
    assert means(results) == {("cc", 16): 90, ("cc, one_cycle", 16): 70}


def test_rates_are_compared_on_the_seeds_that_they_share() -> None:
    finished = [result(80, validation=v, seed=s) for s, v in ((0, 90), (1, 60), (2, 60))]
    begun = [result(10, validation=80, lr=1e-2, seed=0)]  # its one seed is an easy one
    assert means(finished + begun) == {("cc", 16): 80}
    other = [result(10, validation=v, lr=1e-2, seed=s) for s, v in ((1, 59), (2, 59), (3, 99))]
    assert means(finished + other) == {("cc", 16): 80}


def test_two_results_of_one_run_are_refused_and_a_copy_counts_once(tmp_path: Path) -> None:
    for name, accuracy in (("a", 90), ("b", 20)):
        write_result(tmp_path / name / RESULT, result(accuracy))
    with pytest.raises(
        ValueError, match=r"a/result\.json and .*b/result\.json are both results of"
    ):
        read_runs(tmp_path)
    with pytest.raises(ValueError, match="result 1 and result 2 are both"):
        collect([result(90), result(20)])
    write_result(tmp_path / "b" / RESULT, replace(result(90), seconds=7.0))
    assert len(read_runs(tmp_path)) == 1


def test_tables_figures_reports_and_exports_show_variants(tmp_path: Path) -> None:
    results = [
        result(90 - K / 8, bag_size=K, **change)
        for K in (8, 16)
        for change in ({}, {"schedule": "one_cycle"}, {"method": "dllp", "average": 0.9})
    ]
    results += [result(95, method="supervised"), result(96, method="supervised", average=0.9)]
    for one in results:
        write_result(tmp_path / "runs" / one.settings.name / RESULT, one)
    (block,) = collect(results)
    rows = ["supervised", "supervised, average 0.9", "cc", "cc, one_cycle", "dllp, average 0.9"]
    assert block.rows == rows
    text = render(block, "text", paper=True)
    titles = [line.split("  ")[0] for line in text.splitlines()[2:7]]
    assert titles == [block.title(row) for row in rows]
    assert '"cc, one_cycle",8,exact' in render(block, "csv")
    assert r"CC, one\_cycle" in render(block, "latex")
    assert "CC, one_cycle" in sweep_report(results, "x")
    assert len(draw_figures([block], tmp_path / "figures")) == 2
    command("export", tmp_path / "runs", "--out", tmp_path / "exported")
    for style in ("text", "csv"):
        tables = [command("table", tmp_path / f, "--format", style) for f in ("runs", "exported")]
        assert tables[0] == tables[1]


def test_figures_of_several_tables_have_no_empty_column(tmp_path: Path) -> None:
    results = [result(90), result(80, method="rc")]
    results += [
        result(70, model="mlp", average=average) for average in (None, 0.5, 0.6, 0.7, 0.8, 0.9)
    ]
    draw_figures(collect(results), tmp_path)
    header = (tmp_path / "test-accuracy.png").read_bytes()[16:24]
    panels = 8  # 2 of one table and 6 of the other: two lines of four
    assert struct.unpack(">II", header) == (
        round((3.6 * panels / 2 + 1.2) * DPI),
        round((2.9 * 2 + 0.4) * DPI),
    )


def test_a_long_legend_is_not_cut_off(tmp_path: Path) -> None:
    averages = [None, *(n / 100 for n in range(10, 40))]
    results = [result(70, average=average, bag_size=K) for average in averages for K in (8, 16)]
    draw_figures(collect(results), tmp_path)
    header = (tmp_path / "accuracy-by-bag-size.png").read_bytes()[16:24]
    assert struct.unpack(">II", header)[1] > len(averages) * 0.2 * DPI


@pytest.mark.parametrize(
    "change",
    [{"lr": 10**-2.5}, {"average": 1 - 1e-9}, {"weight_decay": 0}, {"drop_last": True}],
)
def test_settings_are_exported_exactly(change: dict[str, Any], tmp_path: Path) -> None:
    original = result(90, **change)
    write_result(tmp_path / "runs" / RESULT, original)
    command("export", tmp_path / "runs", "--out", tmp_path / "exported")
    (again,) = read_runs(tmp_path / "exported")
    assert again.settings == original.settings
    assert again.settings.name == original.settings.name


def test_the_committed_runs_are_exported_byte_for_byte(tmp_path: Path) -> None:
    folder = Path(__file__).parent.parent / "results" / "linear"
    command("export", folder, "--out", tmp_path)
    for name in ("runs.csv", "epochs.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
