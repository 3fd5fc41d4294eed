"""Effects and shares with intervals: `bagwise explain` and `bagwise estimate`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bagwise import Bags
from bagwise.cli import app
from bagwise.tables.labels.counts import Counts
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.effects import effects
from bagwise.tables.use.estimate import estimate_shares
from bagwise.tables.use.share_bounds import duncan_davis
from fitted import fit_table


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def made(precincts: Path) -> Path:
    return precincts


def test_intervals_hold_the_true_coefficients(made: Path) -> None:
    found = {effect.column: effect for effect in effects(FittedTable.load(made / "m"))}
    assert set(found) == {"income", "town=north", "town=south", "noise"}
    income = found["income"]
    unit, low, high = income.per_unit
    assert income.label == "yes"
    assert low < 0.05 < high
    assert high - low < 0.05
    assert unit == pytest.approx(income.effect / np.std(incomes(made)), rel=0.01)
    assert low > 0  # it is an effect
    assert found["noise"].low < 0 < found["noise"].high
    north = found["town=north"].effect - found["town=south"].effect
    assert 0.3 < north < 1.7
    assert list(found)[-1] != "income"  # the surest first


def incomes(made: Path) -> list[float]:
    with (made / "rows.csv").open() as file:
        return [float(row["income"]) for row in csv.DictReader(file)]


def test_shares_of_groups_lie_in_their_intervals_and_in_the_bounds(made: Path) -> None:
    truth = np.load(made / "truth.npz")
    found = estimate_shares(
        FittedTable.load(made / "m"),
        made / "rows.csv",
        ["town"],
        Counts(["precinct"], made / "bags.csv"),
    )
    assert [(share.group, share.label) for share in found] == [
        (("north",), "no"), (("north",), "yes"), (("south",), "no"), (("south",), "yes"),
    ]  # fmt: skip
    for share in found:
        there = truth["north"] == (share.group == ("north",))
        actual = (truth["yes"][there] == (share.label == "yes")).mean()
        assert share.rows == there.sum()
        assert share.interval is not None
        low, high = share.interval
        assert low < actual < high
        assert share.bounds is not None
        assert share.bounds[0] <= actual <= share.bounds[1]
        assert low < share.share < high
    assert found[0].share + found[1].share == pytest.approx(1)


def test_groups_of_an_ordered_category_are_in_its_order(tmp_path: Path) -> None:
    rows = [f"{row % 10},{size}" for row, size in enumerate(["S", "M", "L", "XL"] * 30)]
    (tmp_path / "rows.csv").write_text("\n".join(["ward,size", *rows]))
    counts = [f"{ward},{4 + ward % 3},{8 - ward % 3}" for ward in range(10)]
    (tmp_path / "bags.csv").write_text("\n".join(["ward,no,yes", *counts]))
    model = fit_table(
        tmp_path / "rows.csv",
        "ward",
        tmp_path / "bags.csv",
        model="linear",
        ordered={"size": ["S", "M", "L", "XL"]},
    )
    found = estimate_shares(model, tmp_path / "rows.csv", ["size"])
    assert [share.group for share in found[::2]] == [("S",), ("M",), ("L",), ("XL",)]


def test_small_groups_have_wide_intervals(made: Path) -> None:
    model = FittedTable.load(made / "m")
    few = estimate_shares(model, made / "rows.csv", ["precinct", "town"])
    all_rows = estimate_shares(model, made / "rows.csv", ["town"])
    ends = {(s.group, s.label): s.interval or (1.0, 0.0) for s in [*few, *all_rows]}
    width = {group: high - low for (group, _), (low, high) in ends.items()}
    assert min(w for group, w in width.items() if len(group) == 2) > max(
        w for group, w in width.items() if len(group) == 1
    )
    for s in few:
        low, high = ends[s.group, s.label]
        assert 0 <= low <= s.share <= high <= 1


@given(st.data())
def test_bounds_hold_every_labeling_and_are_reached(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    n = sum(sizes)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    group = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    bags = Bags.from_labels(labels, sizes, n_classes=3)
    bounds = duncan_davis(group, 2, bags)
    for g in (0, 1):
        if not (group == g).any():
            continue
        for c in range(3):
            share = (labels[group == g] == c).mean()
            assert bounds[g, c, 0] - 1e-12 <= share <= bounds[g, c, 1] + 1e-12
            # The least share: in every bag, the class goes to other groups first.
            own = 0
            for b, K in enumerate(sizes):
                rows = slice(bags.offsets[b], bags.offsets[b] + K)
                outside = int((group[rows] != g).sum())
                own += max(0, int(bags.counts[b, c]) - outside)
            assert bounds[g, c, 0] == pytest.approx(own / (group == g).sum())


def test_explain_shows_and_writes_effects(made: Path, tmp_path: Path) -> None:
    code, output = command("explain", made / "m", "--out", tmp_path / "effects.csv")
    assert code == 0, output
    for text in ("Effects on the log-odds of 'yes' against 'no'", "income", "95% interval"):
        assert text in output
    with (tmp_path / "effects.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert {"column", "effect", "low", "high", "per_unit", "unit"} <= rows[0].keys()
    assert float(rows[0]["low"]) < float(rows[0]["effect"]) < float(rows[0]["high"])


def test_estimate_shows_and_writes_shares(made: Path, tmp_path: Path) -> None:
    counts = ("--bag", "precinct", "--labels", made / "bags.csv")
    arguments = ("estimate", made / "m", made / "rows.csv", "--by", "town")
    code, output = command(*arguments, *counts, "--out", tmp_path / "shares.csv")
    assert code == 0, output
    assert "bounds" in output
    with (tmp_path / "shares.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[1]["town"] == "north"
    assert rows[1]["class"] == "yes"
    assert float(rows[1]["least"]) <= float(rows[1]["share"]) <= float(rows[1]["most"])
    code, output = command(*arguments)
    assert code == 0
    assert "bounds" not in output
    piped = CliRunner().invoke(
        app,
        ["estimate", str(made / "m"), "-", "--by", "town"],
        input=(made / "rows.csv").read_bytes(),
    )
    assert piped.exit_code == 0, piped.output
    assert piped.output == output
    again = (*arguments, *counts, "--out", tmp_path / "shares.csv")
    assert command(*again)[0] == 0  # its own file is replaced
    code, output = command(*again[:-1], made / "bags.csv")
    assert code in (2, 3)
    assert "was not written by this command" in output


def test_too_few_bags_for_intervals_are_named(made: Path, tmp_path: Path) -> None:
    few = "5 coefficients from 5 bags: intervals may be too narrow"
    for name in ("rows.csv", "bags.csv"):
        lines = (made / name).read_text().split("\n")
        kept = [line for line in lines[1:] if line.split(",")[0] in ("P0", "P1", "P2", "P3", "P4")]
        (tmp_path / name).write_text("\n".join([lines[0], *kept]) + "\n")
    files = (tmp_path / "rows.csv", "precinct", tmp_path / "bags.csv")
    fit_table(*files, model="linear", out=tmp_path / "m")
    for arguments in (("explain", tmp_path / "m"), ("estimate", tmp_path / "m", files[0])):
        by = ("--by", "town") if arguments[0] == "estimate" else ()
        code, output = command(*arguments, *by)
        assert code == 0, output
        assert few in " ".join(output.split())
        code, output = command(arguments[0], made / "m", *arguments[2:], *by)
        assert code == 0, output
        assert "too narrow" not in output


def test_mistakes_are_one_line(made: Path, tmp_path: Path) -> None:
    fit_table(
        made / "rows.csv", "precinct", made / "bags.csv",
        model="linear", lr=0.03, epochs=1, out=tmp_path / "descent",
    )  # fmt: skip
    for arguments, problem in (
        (("explain", tmp_path / "descent"), "this model has no coefficients with intervals"),
        (("explain", tmp_path / "nowhere"), "there is no folder"),
        (("estimate", made / "m", made / "rows.csv", "--by", "city"), "city"),
        (
            ("estimate", made / "m", made / "rows.csv", "--by", "town", "--bag", "precinct"),
            "--labels",
        ),
    ):
        code, output = command(*arguments)
        assert code in (2, 3), output
        assert problem in output
        assert output.count("\n") == 1


def test_damaged_intervals_are_named(made: Path, tmp_path: Path) -> None:
    content = (made / "m" / "intervals.safetensors").read_bytes()
    for name in ("cut", "changed"):
        folder = tmp_path / name
        folder.mkdir()
        for path in (made / "m").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        spoilt = content[:-8] if name == "cut" else content[:-3] + bytes(3)
        (folder / "intervals.safetensors").write_bytes(spoilt)
        code, output = command("explain", folder)
        assert code in (2, 3)
        assert "intervals.safetensors is damaged" in output


def test_groups_that_are_numbers_come_by_their_value(made: Path) -> None:
    found = estimate_shares(FittedTable.load(made / "m"), made / "rows.csv", ["noise"])
    numbers = [float(share.group[0]) for share in found]
    assert numbers[0] < -2
    assert numbers == sorted(numbers)
