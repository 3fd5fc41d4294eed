"""Pictures with error bars, and the parts of a report that have them."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.reports.overview import clear_effects
from bagwise.reports.whiskers import (
    MOST_LINES,
    effects_charts,
    importance_chart,
    shares_chart,
    shares_charts,
)
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.estimate import GroupShare
from bagwise.tables.use.importance import Importance
from fitted import fit_table

LONG = [
    "Alliance for the Protection of Rivers and Forests",
    "Conservative Union of the Northern Provinces (CUNP) $x$ and of many others besides",
    "<b>Left</b> & Green [red]\nin two lines",
    "no",
    "W" * 90,
]


def texts_overlap(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that lie over each other."""
    figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        low, high = axes.get_xlim()
        labels = [t for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high]
        labels += [*axes.get_yticklabels(), axes.title]
        found += [text for text in labels if text.get_visible() and text.get_text()]
    found += figure.texts
    boxes = [(text.get_text(), text.get_window_extent()) for text in found]
    return [
        (one, other)
        for (one, a), (other, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 2
    ]


def outside(figure: Figure) -> list[str]:
    """Texts that are cut off by the edge."""
    box = figure.bbox
    texts = [t for axes in figure.axes for t in (*axes.get_yticklabels(), axes.title)]
    extents = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    return [name for name, e in extents if e.x0 < box.x0 - 2 or e.x1 > box.x1 + 2]


def group_shares(groups: int, classes: list[str]) -> list[GroupShare]:
    return [
        GroupShare(
            (f"Town {g} upon the very long river of {'x' * 30}", "50+"),
            label,
            rows=10 + g,
            share=0.3,
            interval=(0.1, 0.4),
            bounds=(0.0, 0.9),
        )
        for g in range(groups)
        for label in classes
    ]


@pytest.mark.parametrize("classes", [LONG[:2], LONG, [f"class {c}" for c in range(30)]])
@pytest.mark.parametrize("groups", [1, 60, pytest.param(200, marks=pytest.mark.slow)])
def test_names_of_groups_and_classes_do_not_overlap(classes: list[str], groups: int) -> None:
    figure = shares_chart(group_shares(groups, classes), ["town", "age"])
    assert texts_overlap(figure) == []
    assert outside(figure) == []
    panels = 1 if len(classes) == 2 else min(len(classes), 12)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == panels
    assert len(shown[0].get_yticks()) == min(groups, MOST_LINES)


def test_the_largest_of_many_groups_are_drawn() -> None:
    figure = shares_chart(group_shares(70, ["no", "yes"]), ["town", "age"])
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[0].startswith("Town 10 ")  # 0 to 9 have the fewest rows
    assert len(names) == MOST_LINES


def test_bars_and_bands_are_where_they_should_be() -> None:
    figure = shares_chart(group_shares(2, ["no", "yes"]), ["town", "age"])
    [axes] = figure.axes
    bars = [
        c.get_segments()[0][:, 0].tolist() for c in axes.collections if hasattr(c, "get_segments")
    ]
    assert bars == [[0.1, 0.4], [0.1, 0.4]]
    assert [(patch.get_x(), patch.get_width()) for patch in axes.patches] == [(0.0, 0.9)] * 2


def test_each_class_has_a_figure_that_looks_the_same_at_any_number_of_classes() -> None:
    shares = group_shares(60, LONG)
    figures = shares_charts(shares, ["town", "age"])
    assert list(figures) == [f"share of {name}" for name in LONG]
    for figure in figures.values():
        assert len(figure.axes) == 1
        assert texts_overlap(figure) == []
        assert outside(figure) == []


def test_effects_on_all_classes_are_drawn_to_one_scale() -> None:
    sizes = {"a": 0.1, "b": 1.0, "c": -8.0}
    found = [
        Effect("x", name, size, 0.1, size - 0.2, size + 0.2, (size, size, size), "1")
        for name, size in sizes.items()
    ]
    limits = {figure.axes[0].get_xlim() for figure in effects_charts(found).values()}
    assert len(limits) == 1
    [(low, high)] = limits
    assert low < -8.2
    assert high > 1.2


@pytest.mark.parametrize("classes", [LONG[:1], LONG])
def test_names_of_columns_do_not_overlap(classes: list[str]) -> None:
    found = [
        Effect(f"{'column' * 8}_{i}", label, 0.5, 0.2, 0.1, 0.9, (0.5, 0.1, 0.9), "1")
        for i in range(90)
        for label in classes
    ]
    figures = effects_charts(found)
    assert len(figures) == len(classes)
    for figure in figures.values():
        assert texts_overlap(figure) == []
        assert outside(figure) == []
    matters = [Importance("column" * 20 + str(i), 0.1, 0.01, 0.08, 0.12) for i in range(90)]
    figure = importance_chart(matters)
    assert texts_overlap(figure) == []
    assert outside(figure) == []


def test_the_test_of_overlaps_would_notice() -> None:
    figure = Figure(figsize=(3, 1))
    axes = figure.subplots()
    axes.set_xticks([0, 0.01], ["a long label", "another one"])
    assert texts_overlap(figure)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    n, B = 600, 40
    ward = np.arange(n) % B
    x = rng.normal(size=n) + rng.normal(size=B)[ward]
    y = (x + rng.logistic(size=n) > 0) + 1 * (rng.random(n) < 0.2)
    rows = [f"W{w},{v:.4f},<t{i % 3}>" for i, (w, v) in enumerate(zip(ward, x, strict=True))]
    (folder / "rows.csv").write_text("ward,<u>x</u>,town\n" + "\n".join(rows) + "\n")
    counts = [",".join(map(str, np.bincount(y[ward == b], minlength=3))) for b in range(B)]
    lines = [f"W{b},{count}" for b, count in enumerate(counts)]
    (folder / "bags.csv").write_text('ward,no,<b>yes</b>,"a & b"\n' + "\n".join(lines) + "\n")
    files = (folder / "rows.csv", "ward", folder / "bags.csv")
    fit_table(*files, exclude="town", model="linear", out=folder / "linear")
    fit_table(*files, exclude="town", model="mlp", lr=1e-3, epochs=2, out=folder / "mlp")
    return folder


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_report_has_effects_importances_and_shares(made: Path, tmp_path: Path) -> None:
    rows = (made / "rows.csv", "--by", "town", "--bag", "ward", "--labels", made / "bags.csv")
    pages = {}
    for name in ("linear", "mlp"):
        out = tmp_path / f"{name}.html"
        code, output = run("report", made / name, *rows, "--out", out)
        assert code == 0, output
        pages[name] = " ".join(out.read_text().split())
    for page in pages.values():
        assert "<b>yes" not in page
        assert "<u>x" not in page
        assert "<t0>" not in page
        for part in (
            "600 rows in 40 bags of 15 rows",
            "each of the 3 classes was known for each bag, but no row's own label",
            "Shares by town",
            "Importance of each column",
            "Calibration: ",
            "&lt;b&gt;yes&lt;/b&gt;",
            "&lt;t0&gt;",
        ):
            assert part in page
        assert page.count("<details>") == page.count("</details>") >= 2
    assert "A linear model was fitted" in pages["linear"]
    assert "A perceptron was fitted" in pages["mlp"]
    assert "Effect of each column" in pages["linear"]
    assert "Effect of each column" not in pages["mlp"]
    assert "Intervals are known only for linear models" in pages["mlp"]
    code, output = run("report", made / "linear", "--out", tmp_path / "plain.html")
    assert code == 0
    plain = (tmp_path / "plain.html").read_text()
    assert "Effect of each column" in plain
    assert "Importance of each column" not in plain
    for arguments, problem in (
        ((made / "rows.csv",), "neither --by nor --bag"),
        (("--by", "town"), "name their files too"),
        ((made / "rows.csv", "--bag", "ward"), "--bag and --labels are given together"),
        ((made / "rows.csv", "--by", "city"), "city"),
    ):
        code, output = run("report", made / "linear", *arguments, "--out", tmp_path / "no.html")
        assert code in (2, 3)
        assert problem in output
        assert output.count("\n") == 1
    assert not (tmp_path / "no.html").exists()


def test_estimate_draws_a_picture_and_replaces_only_its_own(made: Path, tmp_path: Path) -> None:
    start = ("estimate", made / "linear", made / "rows.csv", "--by", "town", "--figure")
    picture = tmp_path / "shares.png"
    for _ in range(2):
        code, output = run(*start, picture)
        assert code == 0, output
    assert re.match(rb"\x89PNG.*Software\0Bagwise", picture.read_bytes()[:2000], re.DOTALL)
    other = tmp_path / "other.png"
    other.write_bytes(b"\x89PNG of someone else")
    for path, problem in (
        (other, "was not written by this command"),
        (tmp_path / "x.pdf", ".png"),
    ):
        code, output = run(*start, path)
        assert code in (2, 3)
        assert problem in output
    assert other.read_bytes() == b"\x89PNG of someone else"
    assert run(*start, other, "--force")[0] == 0


def test_one_effect_of_many_is_sure_where_it_is_far_from_0() -> None:
    def effect(column: str, value: float) -> Effect:
        low, high = value - 1.96, value + 1.96
        return Effect(column, "yes", value, 1.0, low, high, (value, low, high), "1")

    others = [effect(f"x{i}", 0.5) for i in range(6)]
    assert clear_effects([effect("ses", 4.5), *others]) == ["ses"]
    assert clear_effects([effect("ses", 2.1), *others]) == []  # one of seven may be chance
