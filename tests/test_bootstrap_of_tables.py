"""`bagwise estimate --bootstrap`: fits to samples of bags, in parallel, which go on if stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise import Bags
from bagwise.cli import app
from bagwise.likelihood import bootstrap_bags, fit_linear
from bagwise.tables import resampling
from bagwise.tables.fitting import fit_table
from bagwise.tables.model.table_model import TableModel
from bagwise.tables.use.counted_rows import Counts
from bagwise.tables.use.estimate import GroupShare, estimate_shares


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wards")
    rng = np.random.default_rng(3)
    n, B = 900, 60
    ward = np.arange(n) % B
    x = rng.normal(size=n) + rng.normal(size=B)[ward]
    yes = x + rng.logistic(size=n) > 0
    rows = [f"W{w},{v:.4f},{'AB'[i % 2]}" for i, (w, v) in enumerate(zip(ward, x, strict=True))]
    (folder / "rows.csv").write_text("ward,x,town\n" + "\n".join(rows) + "\n")
    counts = [f"W{b},{(~yes[ward == b]).sum()},{yes[ward == b].sum()}" for b in range(B)]
    (folder / "bags.csv").write_text("ward,no,yes\n" + "\n".join(counts) + "\n")
    files = (folder / "rows.csv", "ward", folder / "bags.csv")
    fit_table(*files, exclude="town", model="linear", out=folder / "m")
    return folder


def shares(made: Path, keep: Path | None = None, processes: int = 1) -> list[GroupShare]:
    return estimate_shares(
        TableModel.load(made / "m"),
        made / "rows.csv",
        ["town"],
        Counts(["ward"], made / "bags.csv"),
        bootstrap=40,
        processes=processes,
        keep=keep,
    )


def test_draws_may_be_made_in_parts() -> None:
    X = np.random.default_rng(0).normal(size=(60, 1))
    bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 20)
    fit = fit_linear(X, bags)
    whole = [drawn.weights for drawn in bootstrap_bags(X, bags, fit, 4)]
    parts = [
        drawn.weights for part in ([0, 1], [2, 3]) for drawn in bootstrap_bags(X, bags, fit, part)
    ]
    np.testing.assert_array_equal(whole, parts)
    assert len({float(weights[0, 0]) for weights in whole}) == 4


def test_the_bootstrap_agrees_with_the_delta_method(made: Path) -> None:
    for share in shares(made):
        assert share.bootstrap is not None
        assert share.interval is not None
        assert sum(share.bootstrap) / 2 == pytest.approx(share.share)
        width, other = (
            share.bootstrap[1] - share.bootstrap[0],
            share.interval[1] - share.interval[0],
        )
        assert 0.7 < width / other < 1.4
        assert width != other


@pytest.mark.slow
def test_processes_make_the_same_fits(made: Path) -> None:
    assert shares(made, processes=2) == shares(made)


def test_a_bootstrap_that_was_stopped_goes_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = shares(made)
    real, done = resampling._fitted, []
    keep = tmp_path / "m"
    keep.mkdir()

    def stop_at_the_third(folder: Path, piece: range) -> Any:
        done.append(piece)
        if len(done) == 3:
            raise KeyboardInterrupt
        return real(folder, piece)

    with monkeypatch.context() as patch:
        patch.setattr(resampling, "_fitted", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            shares(made, keep)
    [work] = (tmp_path / ".m.bootstrap").iterdir()
    assert len(list(work.glob("draws-*"))) == 2
    first = sorted(work.glob("draws-*"))[0]
    first.write_bytes(first.read_bytes()[:-9])  # damaged: it is made again
    done.clear()

    def count(folder: Path, piece: range) -> Any:
        done.append(piece)
        return real(folder, piece)

    monkeypatch.setattr(resampling, "_fitted", count)
    assert shares(made, keep) == wanted
    assert len(done) == 7  # of eight pieces one was there
    assert list(tmp_path.iterdir()) == [keep]


def test_two_at_the_same_time_do_not_meet(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, folders = resampling._fitted, []

    def another_one_meanwhile(folder: Path, piece: range) -> Any:
        if not folders:
            folders.append(folder)
            assert shares(made, made / "m") == wanted
        folders.append(folder)
        return real(folder, piece)

    wanted = shares(made)
    monkeypatch.setattr(resampling, "_fitted", another_one_meanwhile)
    assert shares(made, made / "m") == wanted
    assert len(set(folders)) == 2
    assert not list(made.glob(".m*"))


def test_estimate_shows_and_writes_the_bootstrap(made: Path, tmp_path: Path) -> None:
    arguments = [
        *("estimate", str(made / "m"), str(made / "rows.csv"), "--by", "town", "--bootstrap", "20"),
        *("--processes", "1", "--bag", "ward", "--labels", str(made / "bags.csv")),
        *("--out", str(tmp_path / "shares.csv")),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "bootstrap" in result.output
    header = (tmp_path / "shares.csv").read_text().split("\n")[0]
    assert header == "town,class,rows,share,low,high,bootstrap_low,bootstrap_high,least,most"
    assert not list(made.glob(".m*"))


def test_mistakes_are_one_line(made: Path, tmp_path: Path) -> None:
    rows = (made / "rows.csv").read_text().split("\n")
    (tmp_path / "some.csv").write_text("\n".join(rows[:500]) + "\n")
    counts = ["--bag", "ward", "--labels", str(made / "bags.csv")]
    start = ["estimate", str(made / "m"), str(made / "rows.csv"), "--by", "town", "--bootstrap"]
    other = [*start[:2], str(tmp_path / "some.csv"), *start[3:]]
    for arguments, problem in (
        ([*start, "30"], "with --bag and --labels"),
        ([*start, "5", *counts], "--bootstrap is 5; 20 fits at least"),
        (
            [*other, "30", *counts, "--labels-are", "relative"],
            "of 900 rows in 60 bags; these are 499 in 60",
        ),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2, result.output
        assert problem in result.output
        assert result.output.count("\n") == 1


def test_other_models_have_shares_without_intervals(made: Path, tmp_path: Path) -> None:
    files = (made / "rows.csv", "ward", made / "bags.csv")
    fit_table(*files, exclude="town", model="mlp", lr=1e-3, epochs=1, out=tmp_path / "m")
    model = TableModel.load(tmp_path / "m")
    found = estimate_shares(model, files[0], ["town"], Counts(["ward"], files[2]))
    assert {(share.interval, share.bootstrap) for share in found} == {(None, None)}
    assert all(share.bounds is not None for share in found)
    assert found[0].share + found[1].share == pytest.approx(1)
    with pytest.raises(ValueError, match="only with linear models"):
        estimate_shares(model, files[0], ["town"], Counts(["ward"], files[2]), bootstrap=20)
    result = CliRunner().invoke(
        app, ["estimate", str(tmp_path / "m"), str(files[0]), "--by", "town"]
    )
    assert result.exit_code == 0, result.output
    assert "There are no intervals" in result.output
