"""The documentation site: complete, built without warnings, and usable in a browser."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import bagwise
from bagwise.losses.modules import LossModule
from bagwise.paper import sweep_file
from bagwise.storage import model_folder
from bagwise.tables.encode import columns
from bagwise.tables.labels import bag_context
from bagwise.tables.model import fit_file, known_bags

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
GALLERY = sorted((DOCS / "gallery").glob("plot_*.py"))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
PHONE, DESK = (390, 844), (1280, 900)


@pytest.fixture(scope="module")
def commands_page() -> object:
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        yield import_module("commands_page")
    finally:
        sys.path.remove(str(DOCS / "_ext"))


def test_every_public_name_is_in_the_reference_once() -> None:
    text = "\n".join(page.read_text() for page in REFERENCE.glob("*.md"))
    listed = re.findall(r"^   bagwise\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(bagwise.__all__)


def test_every_public_name_has_an_example() -> None:
    for name in bagwise.__all__:
        thing = getattr(bagwise, name)
        if isinstance(thing, type) and issubclass(thing, (Exception, LossModule)):
            continue  # errors need none, and the modules show how each is called
        assert ">>>" in (thing.__doc__ or ""), name


def test_every_page_of_the_reference_is_in_its_index() -> None:
    index = (REFERENCE / "index.md").read_text()
    for page in REFERENCE.glob("*.md"):
        assert page.stem == "index" or f":link: {page.stem}\n" in index, page
        assert page.stem == "index" or f"\n{page.stem}\n" in index, page


def test_every_command_and_option_is_on_the_commands_page(commands_page) -> None:
    text = commands_page.all_markdown()
    for name, command in commands_page.commands().items():
        assert f"\n## {name}\n" in f"\n{text}"
        section = commands_page.markdown_of(name, command)
        for param in command.params:
            for option in param.opts:
                assert not option.startswith("--") or option in section, (name, option)


def test_the_formats_on_the_page_of_files_are_those_of_the_code() -> None:
    text = (REFERENCE / "files.md").read_text()
    formats = {
        "config.json": (model_folder.FORMAT, model_folder.OLDEST),
        "model.safetensors": (model_folder.TENSORS_FORMAT,) * 2,
        "columns.json": (columns.FORMAT, columns.OLDEST),
        "fit.json": (fit_file.FORMAT, fit_file.OLDEST),
        "context.json": (bag_context.FORMAT,) * 2,
        "effects.safetensors": (known_bags.FORMAT,) * 2,
    }
    for name, (newest, oldest) in formats.items():
        assert re.search(rf"^\| `{name}` \| .* \| {newest} \| {oldest} \|$", text, re.M), name
    for name in model_folder._NAMES:
        assert f"| `{name}` |" in text
    for key in (*sweep_file._AXES, *sweep_file._SINGLE, "select", "pilot", "override"):
        assert f"`{key}`" in text, key


def test_every_example_is_short_and_its_pictures_have_texts() -> None:
    assert len(GALLERY) >= 10
    for script in GALLERY:
        text = script.read_text()
        assert 40 <= len(text.splitlines()) <= 100, script
        question = ast.get_docstring(ast.parse(text)) or ""
        assert "?" in question, f"{script} asks no question"
        assert ".set_label(" in text, f"{script} has a picture without alt text"
        assert ":doc:`" in text, f"{script} links to no page that explains more"


def test_every_example_is_in_the_order_of_the_gallery() -> None:
    configured = re.search(r"GALLERY = \[(.*?)\]", (DOCS / "conf.py").read_text(), re.DOTALL)
    assert configured is not None
    names = re.findall(r'"(\w+)"', configured[1])
    assert sorted(names) == [script.stem.removeprefix("plot_") for script in GALLERY]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("sphinx_gallery") is None:
        pytest.skip("make docs installs what the site needs.")
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-E", "-b", "html"]
    done = subprocess.run([*build, str(DOCS), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.mark.slow
def test_no_page_of_the_site_asks_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//', text), page


@pytest.mark.slow
def test_links_within_the_site_lead_somewhere(site: Path) -> None:
    anchors = {}
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        anchors[page.resolve()] = set(re.findall(r'\sid="([^"]+)"', text))
    for page in anchors:
        for link in re.findall(r'<a[^>]*\shref="([^"]+)"', page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or path.startswith("_sources"):
                continue
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page, link)
            if anchor and target in anchors and not path.endswith("genindex.html"):
                assert anchor in anchors[target] or anchor == "", (page, link)


SCRIPT = """
<script>
const frame = document.querySelector("iframe");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const facts = {};
async function open(page) {
  await new Promise((done) => { frame.onload = done; frame.src = page; });
  await wait(PAUSE);
  const doc = frame.contentDocument;
  return [doc, doc.documentElement.scrollWidth - doc.documentElement.clientWidth];
}
(async () => {
  for (const page of PAGES) {
    const [doc, beyond] = await open(page);
    facts[page] = {title: doc.title, beyond};
  }
  let [doc] = await open("index.html");
  const links = [...doc.querySelectorAll(".bd-header a.nav-link, .bd-sidebar a.nav-link")];
  facts.sections = [...new Set(links.map((link) => link.textContent.trim()))];
  facts.searches = {};
  for (const words of SEARCHES) {
    [doc] = await open("search.html?q=" + encodeURIComponent(words));
    for (let i = 0; i < 40 && !doc.querySelector("#search-results li a"); i++) await wait(250);
    const answers = [...doc.querySelectorAll("#search-results li a")];
    facts.searches[words] = answers.map((a) => a.textContent);
  }
  facts.walk = [];
  await open("index.html");
  for (const text of WALK) {
    const link = [...frame.contentDocument.querySelectorAll("a")].find(
      (a) => a.textContent.trim() === text && a.href);
    if (!link) { facts.walk.push("no link " + text); break; }
    const loaded = new Promise((done) => { frame.onload = done; });
    link.click();
    await loaded;
    await wait(PAUSE);
    facts.walk.push(frame.contentDocument.title);
  }
  const pre = document.createElement("pre");
  pre.id = "facts";
  pre.textContent = JSON.stringify(facts);
  document.body.append(pre);
})();
</script>
"""
PAGES = [
    "index.html",
    "start/index.html",
    "start/install.html",
    "start/is_it_for_me.html",
    "start/tutorial/plot_ten_minutes.html",
    "how_to/index.html",
    "how_to/inexact_counts.html",
    "how_to/own_loop.html",
    "understand/index.html",
    "understand/likelihood.html",
    "understand/intervals.html",
    "reference/index.html",
    "reference/api/bagwise.fit.html",
    "reference/api/bagwise.bag_posterior.html",
    "reference/commands.html",
    "examples/index.html",
    "examples/plot_votes_by_region.html",
    "tables.html",
    "about/index.html",
    "about/results/index.html",
]
# Words that people look for, and a page that must be among the answers.
SEARCHES = {
    "bag_posterior": "bag_posterior",
    "noisy counts": "Noisy, rounded and hidden counts",
    "trust interval": "Intervals, and when not to believe them",
    "DataLoader": "Your own training loop",
}
# Links that one follows from the front page, and the titles of the pages they lead to.
WALK = {
    "How to": "How to",
    "Inexact counts": "Noisy, rounded and hidden counts",
    "privacy budget": "Privacy",
    "Understand": "Understand",
    "The likelihood of counts": "The likelihood of counts",
    "Gallery": "Gallery",
    "Votes by state": "Votes by state",
    "Reference": "Reference",
    "Losses": "Losses",
}


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(("width", "height"), [PHONE, DESK], ids=["phone", "desk"])
def test_pages_open_in_a_browser_are_found_and_fit_its_width(
    site: Path, tmp_path: Path, width: int, height: int
) -> None:
    """The pages are opened in a frame of the width of a screen."""
    tour = site / f"tour-{width}.html"
    script = (
        SCRIPT.replace("PAGES", json.dumps(PAGES))
        .replace("SEARCHES", json.dumps([*SEARCHES]))
        .replace("WALK", json.dumps([*WALK]))
        .replace("PAUSE", "400")
    )
    frame = f'<iframe width="{width}" height="{height}" style="border:0"></iframe>'
    tour.write_text(f"<!doctype html><body>{frame}{script}", encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--allow-file-access-from-files",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=120000",
            "--dump-dom",
            tour.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    tour.unlink()
    found = re.search(r'<pre id="facts">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    facts = json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    for page in PAGES:
        assert "Bagwise" in facts[page]["title"], page
        assert facts[page]["beyond"] <= 1, f"{page} is wider than the screen"
    for section in ("Start", "How to", "Understand", "Reference", "Gallery", "About"):
        assert section in facts["sections"]
    for words, title in SEARCHES.items():
        assert any(title in result for result in facts["searches"][words]), words
    for step, title in zip(facts["walk"], WALK.values(), strict=True):
        assert step.startswith(title), facts["walk"]
