"""An executed notebook as a page: text, code and outputs, nothing that runs and nothing from elsewhere."""

import re
from pathlib import Path
from typing import Any

import msgspec

from penaltylab.study.records import write_atomically

TAGS = ["table", "thead", "tbody", "tr", "th", "td", "div", "p", "strong", "em", "code", "br", "ul", "ol", "li"]


def write_notebook_pages(folder: Path) -> None:
    """Write `notebooks/NAME.html` beside every executed notebook of the run in `folder`. One that is torn gets none."""
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        try:
            cells = msgspec.json.decode(path.read_bytes())["cells"]
            page = render(path.stem, cells)
        except (msgspec.DecodeError, KeyError, TypeError):
            continue
        write_atomically(path.with_suffix(".html"), page.encode())


def render(name: str, cells: list[dict[str, Any]]) -> str:
    """The page of a notebook's cells. Text of outputs is escaped; of their HTML only tables and plain marks stay."""
    from penaltylab.study.pages import environment

    shown = [shown for cell in cells if (shown := _cell(cell))]
    return environment().get_template("notebook.html").render(name=name, cells=shown)


def _cell(cell: dict[str, Any]) -> dict[str, Any] | None:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        import mistune

        return {"markup": mistune.create_markdown(escape=True, plugins=["table", "url"])(source)}
    if cell["cell_type"] != "code" or not source.strip():
        return None
    return {"code": source, "outputs": [_output(output) for output in cell.get("outputs", [])]}


def _output(output: dict[str, Any]) -> dict[str, str]:
    data = output.get("data", {})
    if "image/png" in data:
        address = re.sub(r"[^A-Za-z0-9+/=]", "", "".join(data["image/png"]))
        return {"image": f"data:image/png;base64,{address}", "text": "".join(data.get("text/plain", ""))}
    if "text/html" in data:
        return {"markup": _plain_markup("".join(data["text/html"]))}
    if output.get("output_type") == "error":
        return {"text": f"{output.get('ename')}: {output.get('evalue')}"}
    return {"text": "".join(data.get("text/plain", output.get("text", "")))}


def _plain_markup(markup: str) -> str:
    import bleach

    without_styles = re.sub(r"<(style|script)\b.*?</\1>", "", markup, flags=re.S | re.I)
    cleaned: str = bleach.clean(
        without_styles, tags=TAGS, attributes={"*": ["colspan", "rowspan", "scope"]}, strip=True
    )
    return cleaned
