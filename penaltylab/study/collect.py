"""What a notebook measures with: each run leaves a row, a trace or a figure in the folder of the study."""

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penaltylab import devices
from penaltylab.engine.run import Decode, decode
from penaltylab.params import Params
from penaltylab.study import gpu_state
from penaltylab.study.measure import CONTROL, Measurement, measure
from penaltylab.study.metrics import metrics, row
from penaltylab.study.recording import record
from penaltylab.study.records import append_row

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.figure import Figure


class Collector:
    """The measurements of one notebook, under one name (`cell`) and one set of parameters.

    With `out_dir` None, as in JupyterLab, all is shown and nothing is kept, but for traces in a temporary folder.
    """

    def __init__(self, out_dir: str | None = None, cell: str = "notebook", **params: Any) -> None:
        self._given = params
        self._cell = cell
        self._out = None if out_dir is None else Path(out_dir)
        self.params = Params.of(**params)
        self.torch_device = devices.resolve(self.params.device)
        devices.configure(self.torch_device, self.params.machine, self.params.host_time)
        self.device = devices.describe(self.torch_device)
        self._doubts: list[str] = []
        if self._out is not None:
            for folder in ("traces", "figures"):
                (self._out / folder).mkdir(parents=True, exist_ok=True)

    def with_changes(self, **changes: Any) -> dict[str, Any]:
        """The notebook's parameters with some of them changed, for `pl.decode` and its like."""
        return self._given | changes

    @property
    def label(self) -> str:
        """What every figure and table says of its numbers: the device, and a control that did not come out well."""
        return " -- ".join([self.device["name"], *dict.fromkeys(self._doubts)])

    def decode(self, arm: str, **changes: Any) -> Decode:
        """`pl.decode` with the notebook's parameters and `changes`; leaves a row called `arm`."""
        return self._run(arm, changes, pair=None)

    def compare(self, arms: dict[str, dict[str, Any]]) -> tuple[dict[str, list[Decode]], Measurement]:
        """Run `arms`, name to changes, the baseline first; each run leaves a row.

        Modelled time takes one run an arm, any other interleaved rounds with a control; see `measure`.
        """
        runs: dict[str, list[Decode]] = {arm: [] for arm in [*arms, CONTROL]}
        baseline = next(iter(arms))

        def run(arm: str, pair: int) -> float:
            changes = arms[baseline if arm == CONTROL else arm]
            name = f"{baseline}: {CONTROL}" if arm == CONTROL else arm
            if pair < 0:
                return decode(**self.with_changes(**changes)).median("step_us")
            runs[arm].append(self._run(name, changes, None if self.modelled else pair))
            return runs[arm][-1].median("step_us")

        measurement = measure(arms, run, modelled=self.modelled)
        self._doubts += [measurement.doubt] if measurement.doubt else []
        return runs, measurement

    @property
    def modelled(self) -> bool:
        """Whether runs are deterministic, so that one is enough."""
        return self.device["simulated"] and self.params.host_time == "modelled"

    def _run(self, arm: str, changes: dict[str, Any], pair: int | None) -> Decode:
        before = gpu_state.read(self.device.get("uuid", ""))
        run = decode(**self.with_changes(**changes))
        gpu = gpu_state.change(before, gpu_state.read(self.device.get("uuid", "")) if before else {})
        self.keep(arm, run.params, pair=pair, gpu=gpu, **metrics(run))
        return run

    def keep(self, arm: str, params: Params, **measured: Any) -> None:
        """Leave a row called `arm` for what was measured elsewhere; `measured` are fields of `Row`."""
        if self._out is not None:
            append_row(self._out, row(self._cell, arm, params, self.device, **measured))

    def record(self, arm: str, **changes: Any) -> str:
        """`pl.record` with the notebook's parameters and `changes`; returns the trace's path, named after `arm`."""
        folder = Path(tempfile.mkdtemp(prefix="penaltylab-")) if self._out is None else self._out / "traces"
        return record(out=folder / f"{self._cell}.{_slug(arm)}.json.gz", **self.with_changes(**changes))

    def timelines(self, name: str, traces: list[str], labels: list[str], caption: str) -> "Image":
        """Show traces on stacked stream timelines; the report gets the picture and a page to zoom in."""
        from penaltylab.traces.timeline import plot_timelines
        from penaltylab.widgets import timeline_html

        image = self.figure(name, plot_timelines(traces, labels=labels), caption)
        if self._out is not None:
            page = timeline_html(traces, labels, caption=caption, png=image.data)
            (self._out / "figures" / f"{self._cell}.{_slug(name)}.html").write_text(page, encoding="utf-8")
        return image

    def figure(self, name: str, figure: "Figure", caption: str) -> "Image":
        """Show a figure as a PNG, which an untrusted notebook shows too, and keep it with its caption."""
        from IPython.display import Image
        from matplotlib import pyplot

        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=144, bbox_inches="tight", metadata={"Description": caption})
        pyplot.close(figure)
        if self._out is not None:
            (self._out / "figures" / f"{self._cell}.{_slug(name)}.png").write_bytes(png.getvalue())
        return Image(png.getvalue(), width=960, alt=caption)


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-=" else "_" for letter in text)
