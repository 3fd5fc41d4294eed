"""`fit --bag-effects`, `predict` where something is known of the bags, both columns of `label`."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.cli.messages import word_option
from bagwise.errors import InputError, naming
from bagwise.labels.counts_or_shares import shares_of
from bagwise.labels.label_spec import LabelSpec
from bagwise.likelihood import effects_of_shares, mean_softmax
from bagwise.limits import Limits
from bagwise.storage.array_files import load_arrays, save_arrays
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.effects import effects
from bagwise.tables.use.estimate import GroupShare, estimate_shares
from bagwise.wording.fit_words import verdict
from fitted import NEW, B, fit_table, make_schools, sign


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(x) for x in arguments], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def refused(*arguments: Any) -> str:
    code, output = command(*arguments)
    assert code in (2, 3), output
    assert output.startswith("Error: ")
    return output


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def loss(path: Path, truth: list[str]) -> float:
    rows = read(path)
    assert len(rows) == len(truth)
    return float(-np.log([float(row[f"p_{t}"]) for row, t in zip(rows, truth, strict=True)]).mean())


@pytest.fixture
def made(schools: Path) -> Path:
    return schools


def predictions(made: Path, model: str, rows: str, out: Path, *more: Any) -> Path:
    code, output = command("predict", made / model, made / rows, "--out", out, *more)
    assert code == 0, output
    out.with_suffix(".txt").write_text(output)
    return out


def test_fit_says_that_bags_have_effects_and_without_the_option_that_they_should(
    made: Path,
) -> None:
    assert "linear model with bag effects (log-odds vary by 1." in (made / "fit.txt").read_text()
    model = FittedTable.load(made / "m")
    assert model.known_bags is not None
    assert 1.0 < np.sqrt(2) * model.known_bags.effects.tau < 1.9
    assert model.facts.bags_differ is None
    assert not model.facts.is_overconfident
    assert "bag_effects" not in verdict(model.facts)
    plain = FittedTable.load(made / "plain").facts
    assert plain.bags_differ is not None
    assert plain.bags_differ.clearly
    assert "log-odds vary by" in verdict(plain)
    assert "bag_effects=True of fit" in verdict(plain)
    assert "--bag-effects of fit" in verdict(plain, word_option)
    assert "--bag-effects of fit" in " ".join(
        command("report", made / "plain", "--out", "-")[1].split()
    )


def test_new_rows_of_known_bags_are_predicted_better_and_those_of_new_bags_no_worse(
    made: Path, tmp_path: Path
) -> None:
    for rows, least in (("new.csv", 0.05), ("others.csv", 0.0)):
        truth = [row["truth"] for row in read(made / rows)]
        losses = [
            loss(predictions(made, model, rows, tmp_path / f"{model}.csv"), truth)
            for model in ("m", "plain")
        ]
        assert losses[0] < losses[1] - least
        said = (tmp_path / "m.txt").read_text()
        assert f"{800 if least else 0} rows are in bags that the model knows" in said
        shown = command("evaluate", made / "m", made / rows, "--target", "truth")[1]
        assert f"log loss {losses[0]:.4f}" in shown


def test_python_says_the_same_as_the_command(made: Path, tmp_path: Path) -> None:
    out = predictions(made, "m", "new.csv", tmp_path / "p.csv")
    model, rows = FittedTable.load(made / "m"), read(made / "new.csv")
    batch = pa.RecordBatch.from_pydict({n: [float(r[n]) for r in rows] for n in ("x", "z")})
    inputs = model.columns.encode(batch)
    p = np.exp(model.predict(inputs, pa.array([row["school"] for row in rows])))
    written = np.array([float(row["p_pass"]) for row in read(out)])
    assert p[:, 1] == pytest.approx(written, abs=1e-9)
    new = np.exp(model.predict(inputs))
    assert new == pytest.approx(np.exp(model.predict(inputs, pa.array(["?"] * len(rows)))))
    zero = np.exp(model.log_probs(inputs))
    assert np.abs(new[:, 1] - 0.5).mean() < np.abs(zero[:, 1] - 0.5).mean() - 0.02


def test_the_bag_column_may_have_another_name_or_be_missing(made: Path, tmp_path: Path) -> None:
    expected = predictions(made, "m", "new.csv", tmp_path / "p.csv").read_text()
    text = (made / "new.csv").read_text()
    (tmp_path / "renamed.csv").write_text(text.replace("school", "place", 1))
    renamed = ("predict", made / "m", tmp_path / "renamed.csv", "--out", tmp_path / "q.csv")
    code, output = command(*renamed, "--bag", "place")
    assert code == 0, output
    assert (tmp_path / "q.csv").read_text() == expected.replace("school", "place", 1)
    code, output = command(*renamed)
    assert "0 rows are in bags that the model knows" in output
    message = refused(
        "predict", made / "m", made / "new.csv", "--bag", "school,x", "--out", tmp_path / "r.csv"
    )
    assert "named by school" in message
    message = refused(
        "predict", made / "plain", made / "new.csv", "--bag", "school", "--out", tmp_path / "r.csv"
    )
    assert "fit with --bag-effects" in message


def test_known_shares_make_up_for_a_model_without_effects(made: Path, tmp_path: Path) -> None:
    truth = [row["truth"] for row in read(made / "new.csv")]
    known = ("--bag", "school", "--labels", made / "bags.csv")
    plain, with_shares, effects_and_shares = (
        loss(predictions(made, model, "new.csv", tmp_path / f"{i}.csv", *more), truth)
        for i, (model, more) in enumerate([("plain", ()), ("plain", known), ("m", known)])
    )
    assert with_shares < plain - 0.03
    assert effects_and_shares < plain - 0.05
    assert "log-odds vary by 1." in (tmp_path / "1.txt").read_text()
    counts = {row["school"]: row for row in read(made / "bags.csv")}
    share = []
    for row in read(made / "new.csv"):
        own = {c: float(counts[row["school"]][c]) + 0.5 for c in ("fail", "pass")}
        share.append(own[row["truth"]] / sum(own.values()))
    assert with_shares < -np.log(share).mean() - 0.05
    model = FittedTable.load(made / "plain")
    rows = read(made / "new.csv")
    batch = pa.RecordBatch.from_pydict({n: [float(r[n]) for r in rows] for n in ("x", "z")})
    z = model.log_probs(model.columns.encode(batch))
    numbers = np.array([[float(counts[f"S{b}"][c]) for c in ("fail", "pass")] for b in range(B)])
    n = numbers.sum(axis=1)
    found = effects_of_shares(z, np.full(B, NEW), numbers / n[:, None], n)
    p = mean_softmax(z, np.repeat(np.arange(B), NEW), found.means, found.spreads)
    written = [float(row["p_pass"]) for row in read(tmp_path / "1.csv")]
    assert p[:, 1] == pytest.approx(written, abs=1e-6)


def test_rows_of_bags_without_shares_are_named_or_left_out(made: Path, tmp_path: Path) -> None:
    lines = (made / "bags.csv").read_text().splitlines()
    (tmp_path / "fewer.csv").write_text("\n".join([lines[0], *lines[3:]]) + "\n")
    arguments = ("predict", made / "plain", made / "new.csv", "--bag", "school")
    some = (*arguments, "--labels", tmp_path / "fewer.csv", "--out", tmp_path / "p.csv")
    assert "does not have 'S0', 'S1'" in refused(*some)
    code, output = command(*some, "--skip-unmatched")
    assert code == 0, output
    assert "20 rows are left out, and 2 bags" in output
    rows = read(tmp_path / "p.csv")
    assert [row["school"] for row in rows] == [r["school"] for r in read(made / "new.csv")[20:]]
    few = "\n".join((made / "new.csv").read_text().splitlines()[:31]) + "\n"
    (tmp_path / "few.csv").write_text(few)  # three of the bags: the others need no rows
    code, output = command(
        "predict", made / "plain", tmp_path / "few.csv", "--bag", "school",
        "--labels", made / "bags.csv", "--out", tmp_path / "p.csv",
    )  # fmt: skip
    assert code == 0, output
    assert len(read(tmp_path / "p.csv")) == 30
    assert "--bag" in refused(
        "predict", made / "plain", made / "new.csv", "--labels", made / "bags.csv",
        "--out", tmp_path / "q.csv",
    )  # fmt: skip


def shares_and_totals(numbers: Any, are: Any) -> Any:
    with naming(bag=["A", "B"]):
        return shares_of(np.array(numbers, dtype=float), LabelSpec.of(are))


@pytest.mark.parametrize(
    ("numbers", "are", "totals"),
    [
        ([[3, 1], [0, 8]], "auto", [4, 8]),
        ([[0.75, 0.25], [0, 1]], "auto", [1000, 1000]),
        ([[75, 25], [0.5, 99.5]], "auto", [1000, 1000]),
        ([[75, 25], [0, 100]], "proportions", [1000, 1000]),
        ([[75, 25], [0, 100]], "counts", [100, 100]),
        ([[7.5, 2.5], [0, 4.5]], "relative", [10, 4.5]),
        ([[0.75, np.nan], [0, np.nan]], "auto", [1000, 1000]),
        ([[75, np.nan], [0, np.nan]], "proportions", [1000, 1000]),
    ],
)
def test_shares_come_in_the_forms_people_have_them(numbers: Any, are: Any, totals: Any) -> None:
    shares, found = shares_and_totals(numbers, are)
    assert shares[0] == pytest.approx([0.75, 0.25])
    assert shares.sum(axis=1) == pytest.approx(1)
    assert found == pytest.approx(totals)


@pytest.mark.parametrize(
    ("numbers", "are", "message"),
    [
        ([[0.5, 0.7], [0.5, 0.5]], "auto", "'A' sum to 1.2"),
        ([[0, 0], [1, 1]], "auto", "'A' has 0 for every class"),
        ([[-1, 2], [1, 1]], "auto", "'A' has -1 for class"),
        ([[0.5, 0.5], [1, 1]], "counts", "counts must be whole"),
        ([[3, np.nan], [4, np.nan]], "auto", "one class alone"),
        ([[130.5, np.nan], [4, np.nan]], "auto", "'A' has 130.5"),
    ],
)
def test_shares_that_are_none_are_named(numbers: Any, are: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shares_and_totals(numbers, are)


def test_where_there_are_no_effects_nothing_gets_worse(tmp_path: Path) -> None:
    folder = make_schools(tmp_path / "t", 0.0)
    where = (folder / "rows.csv", "school", folder / "bags.csv")
    plain = fit_table(*where, model="linear", out=folder / "plain").facts
    own = fit_table(*where, bag_effects=True, out=folder / "m").facts
    assert plain.bags_differ is not None
    assert not plain.bags_differ.clearly
    assert "bag_effects" not in verdict(plain)
    assert own.held_out.log_likelihood > plain.held_out.log_likelihood - 0.002
    known = ("--bag", "school", "--labels", folder / "bags.csv")
    for rows, more in (("new.csv", ()), ("others.csv", ()), ("new.csv", known)):
        truth = [row["truth"] for row in read(folder / rows)]
        losses = [
            loss(predictions(folder, model, rows, tmp_path / f"{model}.csv", *options), truth)
            for model, options in (("m", more), ("plain", ()))
        ]
        assert losses[0] < losses[1] + 0.004


def test_features_that_say_nothing_are_no_success_because_bags_differ(tmp_path: Path) -> None:
    folder = make_schools(tmp_path / "t", 1.5)
    rng = np.random.default_rng(0)
    lines = (folder / "rows.csv").read_text().splitlines()
    noise = [f"{line.split(',')[0]},{rng.normal():.4f},{rng.normal():.4f}" for line in lines[1:]]
    (folder / "rows.csv").write_text("\n".join([lines[0], *noise]) + "\n")
    where = (folder / "rows.csv", "school", folder / "bags.csv")
    facts = fit_table(*where, bag_effects=True).facts
    assert facts.verdict != "learned"


def test_what_cannot_have_bag_effects_is_named(made: Path, tmp_path: Path) -> None:
    fit = ("fit", made / "rows.csv", "--bag", "school", "--labels", made / "bags.csv")
    fit = (*fit, "--out", tmp_path / "m", "--bag-effects")
    assert "leave --model mlp or --bag-effects out" in refused(*fit, "--model", "mlp")
    for more in (("--lr", 0.1), ("--epochs", 3), ("--method", "dllp"), ("--engine", "bethe")):
        assert "fitted by maximum likelihood" in refused(*fit, *more)
    where = (made / "rows.csv", "school", made / "bags.csv")
    with pytest.raises(InputError, match="too many for bag effects"):
        fit_table(*where, bag_effects=True, out=tmp_path / "m", limits=Limits(linear_cells=100))
    assert not list(tmp_path.iterdir())


def test_two_bags_are_too_few_for_effects(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("b,x\nA,1\nA,2\nB,3\nB,5\n")
    (tmp_path / "b.csv").write_text("b,no,yes\nA,1,1\nB,0,2\n")
    with pytest.raises(ValueError, match="only 2 bags"):
        fit_table(tmp_path / "r.csv", "b", tmp_path / "b.csv", bag_effects=True)


def test_effects_of_columns_are_those_within_bags(made: Path) -> None:
    found = {effect.column: effect for effect in effects(FittedTable.load(made / "m"))}
    rows = read(made / "rows.csv")
    for column, slope in (("x", 1.5), ("z", -1.0)):
        scale = np.std([float(row[column]) for row in rows])
        assert found[column].low < slope * scale < found[column].high


@pytest.mark.parametrize("rows", ["new.csv", "others.csv"])
def test_intervals_of_shares_hold_those_of_the_very_rows(made: Path, rows: str) -> None:
    found = estimate_shares(FittedTable.load(made / "m"), made / rows, ["school"])
    passed: dict[str, list[bool]] = {}
    for row in read(made / rows):
        passed.setdefault(row["school"], []).append(row["truth"] == "pass")
    inside = []
    for share in found:
        assert share.interval is not None
        if share.label == "pass":
            own = np.mean(passed[share.group[0]])
            inside.append(share.interval[0] - 1e-9 <= own <= share.interval[1] + 1e-9)
    assert len(inside) == B
    assert np.mean(inside) > 0.88


def test_shares_are_those_of_predictions_and_surer_of_known_bags(made: Path) -> None:
    model = FittedTable.load(made / "m")
    known = estimate_shares(model, made / "new.csv", ["school"])
    new = estimate_shares(model, made / "others.csv", ["school"])

    def width(shares: list[GroupShare]) -> float:
        return float(np.mean([s.interval[1] - s.interval[0] for s in shares if s.interval]))

    assert width(known) < 0.9 * width(new)
    without = replace(model, of_intervals={})  # as of too many coefficients
    for ours, theirs in zip(
        known, estimate_shares(without, made / "new.csv", ["school"]), strict=True
    ):
        assert theirs.interval is None
        assert ours.share == pytest.approx(theirs.share, abs=0.05)  # of a fit with another ridge


def test_estimate_asks_which_bag_a_row_is_in(made: Path, tmp_path: Path) -> None:
    rows = (made / "new.csv").read_text()
    (tmp_path / "renamed.csv").write_text(rows.replace("school,", "place,", 1))
    estimate = ("estimate", made / "m", tmp_path / "renamed.csv", "--by", "truth")
    assert "has no column school; name the columns that say it with --bag" in refused(*estimate)
    assert "town" in refused(*estimate, "--bag", "town")
    code, output = command(*estimate, "--bag", "place", "--out", tmp_path / "place.csv")
    assert code == 0, output
    assert "95% interval" in output
    n = len(read(made / "new.csv"))
    known = f"{n:,} rows are in bags that the model knows, and their effect is used."
    assert known in output
    output = command(*estimate, "--bag", "truth")[1]  # no bags of the model
    assert (
        f"0 rows are in bags that the model knows, and their effect is used; {n:,} other" in output
    )
    same = ("estimate", made / "m", made / "new.csv", "--by", "truth", "--out")
    assert command(*same, tmp_path / "school.csv")[0] == 0
    assert read(tmp_path / "place.csv") == read(tmp_path / "school.csv")
    bounded = (
        made / "rows.csv",
        "--by",
        "school",
        "--bag",
        "school",
        "--labels",
        made / "bags.csv",
    )
    assert "bounds" in command("estimate", made / "m", *bounded)[1]


def test_rows_without_a_bag_are_each_alone(made: Path, tmp_path: Path) -> None:
    rows = read(made / "others.csv")
    for name, bags in (("none", [""] * len(rows)), ("own", [f"T{i}" for i in range(len(rows))])):
        lines = [f"{bag},{row['x']},{row['z']},all" for bag, row in zip(bags, rows, strict=True)]
        (tmp_path / f"{name}.csv").write_text("school,x,z,of\n" + "\n".join(lines) + "\n")
    model = FittedTable.load(made / "m")
    none, own = (estimate_shares(model, tmp_path / f"{n}.csv", ["of"]) for n in ("none", "own"))
    assert none == own


def test_a_folder_of_an_earlier_version_still_predicts_and_says_to_fit_again(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made / "m", tmp_path / "m")
    path = tmp_path / "m" / "intervals.safetensors"
    tensors, facts = load_arrays(path)
    for name in ("effects", "spreads", "centres"):
        del tensors[name]
    save_arrays(path, tensors, facts)
    sign(tmp_path / "m")
    rows = made / "new.csv"
    assert command("predict", tmp_path / "m", rows, "--out", tmp_path / "p.csv")[0] == 0
    assert command("explain", tmp_path / "m")[0] == 0
    said = refused("estimate", tmp_path / "m", rows, "--by", "school")
    assert "written by an earlier version. Fit it again." in said


@pytest.mark.parametrize("damage", ["one missing", "too few", "negative"])
def test_damaged_effects_of_intervals_are_an_error(made: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(made / "m", tmp_path / "m")
    path = tmp_path / "m" / "intervals.safetensors"
    tensors, facts = load_arrays(path)
    if damage == "one missing":
        del tensors["centres"]
    elif damage == "too few":
        tensors["effects"] = tensors["effects"][:-1]
    else:
        tensors["spreads"] = -tensors["spreads"]
    save_arrays(path, tensors, facts)
    with pytest.raises(ValueError, match="is damaged"):
        FittedTable.load(tmp_path / "m")


def test_labels_do_not_depend_on_the_effects_of_bags(made: Path, tmp_path: Path) -> None:
    known = (made / "rows.csv", "--bag", "school", "--labels", made / "bags.csv", "--out")
    assert command("label", made / "m", *known, tmp_path / "l.csv")[0] == 0
    shutil.copytree(made / "m", tmp_path / "without")
    (tmp_path / "without" / "effects.safetensors").unlink()
    sign(tmp_path / "without")
    assert command("label", tmp_path / "without", *known, tmp_path / "k.csv")[0] == 0
    assert (tmp_path / "l.csv").read_text() == (tmp_path / "k.csv").read_text()


def test_labels_given_noisy_counts_allow_for_the_effects_of_bags(
    made: Path, tmp_path: Path
) -> None:
    known = (made / "rows.csv", "--bag", "school", "--labels", made / "bags.csv")
    noisy = (*known, "--noise", "laplace:2", "--out")
    code, output = command("label", made / "m", *noisy, tmp_path / "l.csv")
    assert code == 0, output
    shutil.copytree(made / "m", tmp_path / "without")
    (tmp_path / "without" / "effects.safetensors").unlink()
    sign(tmp_path / "without")
    assert command("label", tmp_path / "without", *noisy, tmp_path / "k.csv")[0] == 0
    given = {bag["school"]: int(bag["pass"]) for bag in read(made / "bags.csv")}

    def distance(file: str) -> float:
        """Of the expected counts from the published ones, which only effects can explain."""
        expected = dict.fromkeys(given, 0.0)
        for row in read(tmp_path / file):
            expected[row["school"]] += float(row["p_pass"])
        return float(np.mean([abs(expected[school] - n) for school, n in given.items()]))

    assert distance("l.csv") < 0.8 * distance("k.csv")


def test_label_writes_the_likeliest_class_and_the_labeling_with_exact_counts(
    made: Path, tmp_path: Path
) -> None:
    known = (made / "rows.csv", "--bag", "school", "--labels", made / "bags.csv", "--out")
    code, output = command("label", made / "plain", *known, tmp_path / "l.csv")
    assert code == 0, output
    assert "it is each row's most likely class" in output
    rows = read(tmp_path / "l.csv")
    assert list(rows[0]) == ["school", "most_probable", "label", "p_fail", "p_pass"]
    for row in rows:
        likeliest = max(("fail", "pass"), key=lambda name: float(row[f"p_{name}"]))
        assert row["most_probable"] == likeliest
    for bag in read(made / "bags.csv"):
        own = [row["label"] for row in rows if row["school"] == bag["school"]]
        assert own.count("pass") == int(bag["pass"])
    assert any(row["label"] != row["most_probable"] for row in rows)
    assert command("label", made / "plain", *known, tmp_path / "l.csv")[0] == 0  # its own file
    table = (made / "rows.csv").read_text().replace("school,x,z", "most_probable,x,z", 1)
    (tmp_path / "clash.csv").write_text(table)
    counts = (made / "bags.csv").read_text().replace("school", "most_probable", 1)
    (tmp_path / "counts.csv").write_text(counts)
    assert "rename it" in refused(
        "label", made / "plain", tmp_path / "clash.csv", "--bag", "most_probable",
        "--labels", tmp_path / "counts.csv", "--out", tmp_path / "c.csv",
    )  # fmt: skip


def test_every_held_out_bag_has_its_true_and_predicted_counts(made: Path) -> None:
    truth = {row["school"]: row for row in read(made / "bags.csv")}
    for model in ("m", "plain"):
        rows = read(made / model / "held_out_bags.csv")
        assert [row["bag"] for row in rows] == list(truth)
        inside = []
        for row in rows:
            own = truth[row["bag"]]
            assert int(row["size"]) == int(own["fail"]) + int(own["pass"])
            predicted = [float(row[f"predicted_{name}"]) for name in ("fail", "pass")]
            assert sum(predicted) == pytest.approx(int(row["size"]), rel=1e-4)
            for name in ("fail", "pass"):
                assert row[f"true_{name}"] == own[name]
                low, high = float(row[f"low_{name}"]), float(row[f"high_{name}"])
                assert 0 <= low <= float(row[f"predicted_{name}"]) + 1 <= high + 2
                inside.append(low <= float(own[name]) <= high)
        assert (np.mean(inside) > 0.9) == (model == "m")
        facts = FittedTable.load(made / model).facts
        shown = {bag.bag: bag for bag in facts.held_out.bags}
        first = rows[0]
        assert float(first["predicted_pass"]) / int(first["size"]) == pytest.approx(
            shown[first["bag"]].predicted[1], rel=1e-4
        )


def test_a_model_that_is_loaded_and_saved_again_keeps_everything(
    made: Path, tmp_path: Path
) -> None:
    FittedTable.load(made / "m").save(tmp_path / "again")
    names = sorted(path.name for path in (made / "m").iterdir())
    assert "effects.safetensors" in names
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == names
    for name in ("effects.safetensors", "held_out_bags.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (made / "m" / name).read_bytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t, f: t.update(tau=np.array(-1.0)), "tau is -1.0"),
        (lambda t, f: t.update(tau=np.array(1e9)), "tau is 1000000000.0"),
        (lambda t, f: t["means"].fill(np.nan), "'means' has NaN"),
        (lambda t, f: np.negative(t["spreads"], out=t["spreads"]), "spreads are not all from 0"),
        (lambda t, f: t.update(means=t["means"][:, :1]), "'means' is float64"),
        (lambda t, f: t.pop("spreads"), "'spreads' is missing"),
        (lambda t, f: f["bags"].pop(), "'means' is float64"),
        (lambda t, f: f["bags"].__setitem__(0, f["bags"][1]), "a bag is there twice"),
        (lambda t, f: f["bags"].__setitem__(0, 7), r"bags\[0\] is 7"),
        (lambda t, f: f.update(columns=[]), r"columns is \[\]"),
        (lambda t, f: f.pop("columns"), "columns is missing"),
        (lambda t, f: f.update(format=2), "format is 2"),
        (lambda t, f: f.update(evil=1), "'evil' is unknown"),
    ],
)
def test_damaged_effects_are_one_line_that_names_the_file(
    made: Path, tmp_path: Path, spoil: Any, message: str
) -> None:
    model = Path(shutil.copytree(made / "m", tmp_path / "m"))
    path = model / "effects.safetensors"
    tensors, facts = load_arrays(path)
    spoil(tensors, facts)
    save_arrays(path, tensors, facts)
    line = refused("predict", model, made / "new.csv", "--out", tmp_path / "p.csv")
    assert f"{path} is damaged" in line
    with pytest.raises(ValueError, match=message):
        raise ValueError(line)


def test_a_flipped_bit_of_the_effects_is_noticed(made: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(made / "m", tmp_path / "m"))
    content = bytearray((model / "effects.safetensors").read_bytes())
    content[-5] ^= 1
    (model / "effects.safetensors").write_bytes(content)
    message = refused("predict", model, made / "new.csv", "--out", tmp_path / "p.csv")
    assert "effects.safetensors is damaged" in message


def test_models_of_earlier_versions_load(made: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(made / "plain", tmp_path / "m"))
    facts = json.loads((model / "fit.json").read_text())
    del facts["bags_differ"], facts["settings"]["bag_effects"]
    (model / "fit.json").write_text(json.dumps(facts))
    (model / "held_out_bags.csv").unlink()
    sign(model)
    assert FittedTable.load(model).facts.bags_differ is None
    assert command("report", model, "--out", tmp_path / "r.html")[0] == 0
    assert command("predict", model, made / "new.csv", "--out", tmp_path / "p.csv")[0] == 0
    for spoil in ({"bags_differ": {"tau": -1, "p_value": 0.1}}, {"bags_differ": 3}):
        (model / "fit.json").write_text(json.dumps(facts | spoil))
        assert "bags_differ" in refused("report", model, "--out", tmp_path / "r.html")


def test_a_class_that_never_occurs_changes_nothing_but_a_note(made: Path, tmp_path: Path) -> None:
    lines = (made / "bags.csv").read_text().splitlines()
    more = [f"{lines[0]},absent", *(f"{line},0" for line in lines[1:])]
    (tmp_path / "more.csv").write_text("\n".join(more) + "\n")
    code, output = command(
        "fit", made / "rows.csv", "--bag", "school", "--labels", tmp_path / "more.csv",
        "--out", tmp_path / "m", "--model", "linear",
    )  # fmt: skip
    assert code == 0, output
    assert "has no row of the class 'absent'; it is left out of the model" in output
    ours, theirs = (FittedTable.load(path).facts for path in (tmp_path / "m", made / "plain"))
    assert verdict(ours) == verdict(theirs)
    assert ours.held_out == theirs.held_out
    assert ours.data.classes == theirs.data.classes
    assert command(
        "label", tmp_path / "m", made / "rows.csv", "--bag", "school",
        "--labels", tmp_path / "more.csv", "--out", tmp_path / "l.csv",
    )[0] == 0  # fmt: skip
    long = ["school,class,n"]
    for line in more[1:]:
        school, *numbers = line.split(",")
        names = ("fail", "pass", "absent")
        long += [f"{school},{name},{n}" for name, n in zip(names, numbers, strict=True)]
    (tmp_path / "long.csv").write_text("\n".join(long) + "\n")
    assert command(
        "label", tmp_path / "m", made / "rows.csv", "--bag", "school",
        "--labels", tmp_path / "long.csv", "--out", tmp_path / "l.csv",
    )[0] == 0  # fmt: skip


def test_rows_that_are_all_of_one_class_are_named(made: Path, tmp_path: Path) -> None:
    lines = (made / "bags.csv").read_text().splitlines()
    only = []
    for line in lines[1:]:
        school, fail, passed = line.split(",")
        only.append(f"{school},0,{int(fail) + int(passed)}")
    (tmp_path / "only.csv").write_text("\n".join([lines[0], *only]) + "\n")
    message = refused(
        "fit", made / "rows.csv", "--bag", "school", "--labels", tmp_path / "only.csv",
        "--out", tmp_path / "m",
    )  # fmt: skip
    assert "every row is of the class 'pass'" in message
