"""What a notebook measures with: each run leaves a row, a trace or a figure in the folder of the study."""

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penaltylab import devices
from penaltylab.engine.run import Decode, decode
from penaltylab.params import Params
from penaltylab.study.recording import record
from penaltylab.study.records import Row, append_row

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
        if self._out is not None:
            for folder in ("traces", "figures"):
                (self._out / folder).mkdir(parents=True, exist_ok=True)

    def with_changes(self, **changes: Any) -> dict[str, Any]:
        """The notebook's parameters with some of them changed, for `pl.decode` and its like."""
        return self._given | changes

    def decode(self, arm: str, **changes: Any) -> Decode:
        """`pl.decode` with the notebook's parameters and `changes`; leaves a row called `arm`."""
        run = decode(**self.with_changes(**changes))
        self.keep(
            arm,
            run.params,
            step_us_median=run.median("step_us"),
            cumulate_us_median=run.median("cumulate_us"),
            stall_us_median=run.median("stall_us"),
            wait_us_median={kind: median(values[run.params.warmup :]) for kind, values in run.wait_us.items()},
            tokens_per_s=run.tokens_per_s,
            fwd_occupancy=run.fwd_occupancy,
            hazards=len(run.hazards),
        )
        return run

    def keep(self, arm: str, params: Params, **measured: Any) -> None:
        """Leave a row called `arm` for what was measured elsewhere; `measured` are fields of `Row`."""
        if self._out is None:
            return
        simulated = self.device["simulated"]
        row = Row(
            cell=self._cell,
            arm=arm,
            params=params.asdict(),
            params_hash=params.hash(),
            device=self.device["name"],
            simulated=simulated,
            host_time=params.host_time if simulated else None,
            **measured,
        )
        append_row(self._out, row)

    def record(self, arm: str, **changes: Any) -> str:
        """`pl.record` with the notebook's parameters and `changes`; returns the trace's path, named after `arm`."""
        folder = Path(tempfile.mkdtemp(prefix="penaltylab-")) if self._out is None else self._out / "traces"
        return record(out=folder / f"{self._cell}.{_slug(arm)}.json.gz", **self.with_changes(**changes))

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


def median(values: Any) -> float:
    """The median; NaN of nothing, and where any value is NaN."""
    return float(np.median(values)) if len(values) else float("nan")


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-=" else "_" for letter in text)
