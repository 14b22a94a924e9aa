"""Timelines in the browser: one drawing on a canvas for the notebook, the report and a page of its own.

Names are resolved on first use: a page needs no Jupyter.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penaltylab.widgets.controls import explorer as explorer
    from penaltylab.widgets.notebook import timeline as timeline
    from penaltylab.widgets.pages import figure_html as figure_html
    from penaltylab.widgets.pages import runtime_html as runtime_html
    from penaltylab.widgets.pages import standalone_html as standalone_html
    from penaltylab.widgets.pages import timeline_html as timeline_html

_WHERE = {
    "explorer": "penaltylab.widgets.controls",
    "figure_html": "penaltylab.widgets.pages",
    "runtime_html": "penaltylab.widgets.pages",
    "standalone_html": "penaltylab.widgets.pages",
    "timeline": "penaltylab.widgets.notebook",
    "timeline_html": "penaltylab.widgets.pages",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'penaltylab.widgets' has no attribute {name!r}")
