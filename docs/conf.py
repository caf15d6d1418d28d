"""Sphinx's settings. `make docs` builds into build/docs; warnings are errors there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402 - found beside this file

from advisor import __version__  # noqa: E402

project = "advisor"
release = version = __version__
extensions = ["myst_parser"]
exclude_patterns = ["schemas", "examples"]
html_theme = "furo"
html_title = "advisor"
html_static_path = ["_static", "schemas"]
html_css_files = ["docs.css"]
html_copy_source = html_show_sourcelink = False
html_show_copyright = False
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
# Plain sessions of a shell: Pygments' lexer takes words of the output for commands.
highlight_language = "none"
nitpicky = True


def setup(app: Any) -> None:
    """Write the pages that are made from the rules, schemas and commands themselves before anything is read."""
    generate.write(HERE / "generated")
