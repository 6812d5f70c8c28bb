"""What every page has: one file with its styles, its script and its coloured sources inside.

Jinja2 escapes whatever a page is given; what is passed as markup was made here, from escaped text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from compare.steps import Part, dedented

if TYPE_CHECKING:
    from jinja2 import Environment

SIDES = {"triton": "b", "cuda": "t"}  # as plots and styles name them
LIGHT, DARK = "friendly", "github-dark"  # Pygments styles


def page(template: str, *, script_files: Sequence[str], **values: Any) -> str:
    """A template with the styles and scripts that every page has."""
    script = "\n".join(read(name) for name in script_files)
    css = Markup(read("page.css") + code_styles())
    return environment().get_template(template).render(css=css, script=Markup(script), **values)


@functools.cache
def environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("compare.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    made.filters["coded"] = coded
    return made


def coded(text: str) -> Markup:
    """Words in which what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def read(name: str) -> str:
    return (resources.files("compare.report") / "templates" / name).read_text(encoding="utf-8")


@functools.cache
def code_styles() -> str:
    """Pygments' colours of both themes, as the page chooses between them."""
    from pygments.formatters import HtmlFormatter

    light, dark = (HtmlFormatter(style=style) for style in (LIGHT, DARK))
    system = ':root:not([data-theme="light"]) .code'
    return "\n".join(
        [
            light.get_style_defs(".code"),
            "@media (prefers-color-scheme: dark) {",
            dark.get_style_defs(system),
            "}",
            dark.get_style_defs(':root[data-theme="dark"] .code'),
            ".code, .code .highlight, .code pre { background: transparent !important; }",
        ]
    )


def highlighted(part: Part | None, language: str) -> Markup:
    """A part of a source, coloured, with the file's line numbers."""
    if part is None:
        return Markup("<p>(no such step here)</p>")
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(language, stripnl=False)
    formatter = HtmlFormatter(wrapcode=True)
    return Markup(highlight("\n".join(dedented(part)), lexer, formatter))
