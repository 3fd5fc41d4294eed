from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app
from bagwise.paper.run import execute, read_results
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_page import sweep_report
from bagwise.reports import model_page, model_report
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.effects import Effect
from fitted import fit_table

PACKAGE = Path(bagwise.__file__).parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
OF_THE_BROWSER = ("google.com", "googleapis.com", "gvt1.com")


def opened(page: Path, folder: Path) -> tuple[list[str], set[str], str]:
    """Open a page in Chromium: its console messages, the hosts it asked, and the final document."""
    assert CHROMIUM is not None
    log = folder / "net.json"
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            f"--user-data-dir={folder / 'profile'}",
            "--enable-logging=stderr",
            f"--log-net-log={log}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    text = log.read_text().rstrip()
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:  # Chromium may stop before it closes the list
        events = json.loads(text.rstrip(",") + "]}")["events"]
    addresses = {e["params"]["url"] for e in events if "url" in (e.get("params") or {})}
    hosts = {urlparse(address).hostname or "" for address in addresses}
    own = {host for host in hosts if host.endswith(OF_THE_BROWSER)}
    console = re.findall(r"CONSOLE.*", done.stderr)
    return console, hosts - own - {""}, done.stdout


class Checker(HTMLParser):
    """Finds tags that are not closed and addresses that lead out of the page."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data") and not (value or "").startswith("data:"):
                self.outside.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a model with awkward names, and of a few runs."""
    folder = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(0)
    ward = rng.integers(30, size=400)
    y = (rng.random(400) < (ward % 5 + 0.5) / 6).astype(int)
    lines = [
        f"<w{w}>,{value:.3f},2020-01-{d:02d}"
        for w, value, d in zip(
            ward, rng.normal(size=400) + 2 * y, rng.integers(1, 28, 400), strict=True
        )
    ]
    (folder / "rows.csv").write_text("ward,<b>x</b>,day\n" + "\n".join(lines) + "\n")
    counts = [np.bincount(y[ward == w], minlength=2) for w in range(30)]
    counts[9] = counts[9][::-1]  # a mistake that the report must show
    known = [f"<w{w}>,{n[0]},{n[1]}" for w, n in enumerate(counts)]
    (folder / "bags.csv").write_text("ward,$a$ & <i>,b\n" + "\n".join(known) + "\n")
    model = fit_table(
        folder / "rows.csv",
        "ward",
        folder / "bags.csv",
        model="linear",
        lr=0.03,
        epochs=20,
        command="bagwise fit '<rows>.csv'",
    )
    model.save(folder / "model")
    for method in ("cc", "rc", "ot", "dllp"):
        for seed in (0, 1):
            run = RunSettings("digits", "linear", method, 16, 1e-2, 2, seed)
            execute(run, folder / "runs" / run.name)
    found = {}
    for name in ("model", "runs"):
        found[name] = folder / f"{name}.html"
        arguments = ["report", str(folder / name), "--out", str(found[name])]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    return found


@pytest.mark.parametrize("name", ["model", "runs"])
def test_pages_are_whole_and_lead_nowhere(pages: dict[str, Path], name: str) -> None:
    text = pages[name].read_text()
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert not checker.outside
    assert "default-src 'none'" in text
    assert 'name="viewport"' in text
    assert "@media print" in text
    assert "prefers-color-scheme: dark" in text
    assert all(alt.strip() for alt in re.findall(r'<img alt="([^"]*)"', text))


def test_the_model_report_says_what_it_should(pages: dict[str, Path]) -> None:
    text = pages["model"].read_text()
    for part in (
        "Summary",
        "Learning curves",
        "Predicted and true shares of held-out bags",
        "Calibration on held-out bags",
        "Bag sizes",
        "Most surprising bags",
        "bagwise fit &#39;&lt;rows&gt;.csv&#39;",
        "$a$ &amp; &lt;i&gt;",
        "&lt;b&gt;x&lt;/b&gt;",
        "The model beats the overall shares",
    ):
        assert part in text
    assert "<b>x</b>" not in text
    assert text.count("<img") == 5  # shares and calibration of one class, two curves, bag sizes
    surprising = text[text.index("Most surprising bags") :]
    assert re.search(r"&lt;w\d+&gt;", surprising).group() == "&lt;w9&gt;"  # type: ignore[union-attr]


def test_the_model_report_names_every_limitation(
    pages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FittedTable.load(pages["model"].parent / "model")
    facts = model.facts
    sizes = replace(facts.data.sizes, smallest=400, median=400, largest=400)
    data = replace(
        facts.data,
        n_bags=20,
        shares=[0.99, 0.01],
        rows_used=400,
        sizes=sizes,
        rounding=0.02,
        bags_left_out=2,
        bags_left_out_names=["<lost>", "gone"],
        labels={"kind": "ranges"},
        inexact_bags=3,
        files=["<1>", "2", "3", "4"],
    )
    odd = replace(facts, data=data, surprising=[], command="", curve=[], folds=5)
    monkeypatch.setattr(FittedTable, "facts", odd)
    weak = [Effect("x", "b", 0.5, 1.0, -1.5, 2.5, (0.5, -1.5, 2.5), "numeric")] * 2
    monkeypatch.setattr(model_page, "effects", lambda model: weak)
    monkeypatch.setattr(FittedTable, "intervals", ())
    page = " ".join(model_report(model).split())
    for part in (
        "Bagwise report: &lt;1&gt;, 2, 3 and more",
        "Only 20 bags.",
        "0 of 2 effects have a 95% interval without 0",
        "No single column has a clear effect.",
        "Large bags (median 400 rows)",
        "Classes with fewer than ten rows: b.",
        "2 bags left out, found in only one of the files.",
        "2 that one file lacks: &lt;lost&gt;, gone",
        "Proportions were rounded to counts, changing by up to 2.0%.",
        "The largest change is 2.00%.",
        "Predicted and given shares of held-out bags",
        "The true shares are not known, only ranges of counts.",
        "Each bag has 400 rows.",
        "No bag's counts are less likely",
        "Each bag was held out once, in 5 folds.",
        "The model was fitted from Python.",
    ):
        assert part in page
    assert "Learning curves" not in page


def test_the_report_of_runs_has_tables_and_figures(pages: dict[str, Path]) -> None:
    text = pages["runs"].read_text()
    for part in ("digits, linear", "K = 16", "DLLP", "chosen by validation accuracy", "<b>"):
        assert part in text
    assert text.count("<img") == 3  # OT's training, the weight gap, test accuracy


def test_each_table_of_runs_says_how_its_epochs_were_chosen(pages: dict[str, Path]) -> None:
    first, second = pages["runs"].read_text().split("chosen by the likelihood of validation bags")
    assert "rates are chosen by validation labels" in first
    assert "rates are chosen by the likelihood of held-out bags" in second


def test_names_in_runs_are_escaped(pages: dict[str, Path], tmp_path: Path) -> None:
    written = next((pages["runs"].parent / "runs").rglob("result.json"))
    content = json.loads(written.read_text())
    names = ("dataset", "model", "method", "engine")
    content["settings"] |= {name: f"<i>{name}</i>" for name in names}
    (tmp_path / "result.json").write_text(json.dumps(content))
    page = sweep_report(read_results(tmp_path), "<i>folder</i>")
    assert "<i>" not in page
    for name in ("folder", *names):
        assert f"&lt;i&gt;{name}&lt;/i&gt;" in page


def test_every_template_is_packaged() -> None:
    templates = [path.name for path in (PACKAGE / "reports" / "templates").iterdir()]
    assert {"base.html.jinja", "model.html.jinja", "sweep.html.jinja"} <= {*templates}
    project = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/bagwise"]}  # with all that lies there


@pytest.mark.slow
def test_reports_of_models_do_not_import_experiments() -> None:
    code = "import sys, bagwise.reports; print([m for m in sys.modules if 'bagwise.paper' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_folder_that_is_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    arguments = ["report", str(tmp_path / "empty"), "--out", str(tmp_path / "r.html")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code in (2, 3)
    assert "no result" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("name", ["model", "runs"])
def test_chromium_shows_the_page_without_errors_or_requests(
    pages: dict[str, Path], name: str, tmp_path: Path
) -> None:
    console, hosts, document = opened(pages[name], tmp_path)
    assert console == []
    assert hosts == set()
    assert document.count("<table>") == pages[name].read_text().count("<table>")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_browser_test_would_notice(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://outside.invalid/x.png"><script>oops()</script>')
    console, hosts, _ = opened(page, tmp_path)
    assert len(console) == 1
    assert hosts == {"outside.invalid"}
