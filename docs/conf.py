"""How the documentation site is built: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from sphinx_gallery.sorting import ExplicitOrder  # noqa: E402

import bagwise  # noqa: E402
import gallery_pictures  # noqa: E402

project = "Bagwise"
version = release = bagwise.__version__
project_copyright = "The Bagwise developers"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
    "commands_page",
    "repository_pages",
    "gallery_pictures",
]
root_doc = "index"
templates_path = ["_templates"]
exclude_patterns = ["_templates", "gallery", "tutorial", "start/tutorial/index.rst"]
nitpicky = True
default_role = "name"  # of docstrings.py: `fit` leads to the page of bagwise.fit
suppress_warnings = [
    "config.cache",  # of the functions in sphinx_gallery_conf
    "myst.header",  # tables of results begin with small headings
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"  # the arguments' texts say what they may be
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False

GALLERY = [
    "votes_by_region",
    "contraception_by_district",
    "purchases_by_week",
    "noisy_ad_reports",
    "hidden_cells",
    "rounded_percentages",
    "wrong_counts",
    "some_labeled_rows",
    "two_groupings",
    "election_table",
    "text_embeddings",
    "image_features",
    "digits_in_a_loop",
    "held_out_bags",
]
sphinx_gallery_conf = {
    "examples_dirs": ["gallery", "tutorial"],
    "gallery_dirs": ["examples", "start/tutorial"],
    "within_subsection_order": ExplicitOrder([*(f"plot_{name}.py" for name in GALLERY), "*"]),
    "image_scrapers": (gallery_pictures.scraper,),
    "reset_modules": (gallery_pictures.use_style,),
    "parallel": True,  # as many at a time as -j says
    "run_stale_examples": True,  # what they show depends on all of Bagwise
    "only_warn_on_example_error": False,
    "abort_on_example_error": False,  # all failures are told; each makes the build fail
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,  # the page loads scripts from other hosts
    "capture_repr": ("_repr_html_", "__repr__"),
    "thumbnail_size": (480, 300),
}

html_theme = "pydata_sphinx_theme"
html_title = "Bagwise"
html_static_path = ["_static"]
html_css_files = ["bagwise.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "Bagwise"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
