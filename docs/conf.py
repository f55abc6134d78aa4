"""The site: pages in Markdown, the API from docstrings, notebooks as they ran."""

project = "asaplab"
author = "The asaplab authors"
copyright = "The asaplab authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.autosummary"]
html_theme = "furo"
html_title = "asaplab"
exclude_patterns = ["_build", "benchmarks/*.md"]  # tables that benchmarks.md includes
nb_execution_mode = "off"  # the gallery holds notebooks that a batch has run already
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing", "mystnb.unknown_mime_type", "toc.not_readable"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_use_rtype = False
html_theme_options = {"navigation_with_keys": True}
