# SPDX-License-Identifier: GPL-2.0
#
# How Sphinx makes HTML of these pages: tests/env/htmldocs.sh.
"""Configuration of Sphinx."""

import os
import re
import sys

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms import SphinxTransform

# The kernel's own extension has the directive "kernel-doc".
sys.path.insert(0, os.path.join(os.environ["srctree"], "Documentation/sphinx"))

project = "RTRS in Rust"
extensions = ["kerneldoc"]
kerneldoc_srctree = os.path.abspath("..")
primary_domain = "c"
highlight_language = "none"
# Included by performance.rst.
exclude_patterns = ["output", "performance"]
html_theme = "alabaster"
html_theme_options = {"fixed_sidebar": True, "page_width": "70em"}
html_show_sphinx = False
html_copy_source = False


class Pages(SphinxTransform):
    """Make links of the names of pages, as in "see client.rst"."""

    default_priority = 5
    name = re.compile(r"(?:Documentation/)?\b([a-z-]+)\.rst\b")

    def apply(self, **_kwargs):
        for text in list(self.document.findall(nodes.Text)):
            parent = text.parent
            if isinstance(parent, (nodes.literal, nodes.literal_block, nodes.reference)):
                continue
            parts = self.split(str(text))
            if len(parts) > 1:
                parent.replace(text, parts)

    def split(self, text):
        """TEXT as a list of nodes."""
        parts, end = [], 0
        for match in self.name.finditer(text):
            if match.group(1) not in self.env.found_docs:
                continue
            ref = pending_xref("", nodes.inline("", match.group(0)), refdomain="std",
                               reftype="doc", refdoc=self.env.docname, refwarn=True,
                               refexplicit=True, reftarget=match.group(1))
            parts += [nodes.Text(text[end:match.start()]), ref]
            end = match.end()
        return parts + [nodes.Text(text[end:])]


def setup(app):
    """Called by Sphinx."""
    app.add_transform(Pages)
