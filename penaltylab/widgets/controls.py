"""Controls beside two timelines: choose how a run copies and waits, and see what becomes of it."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

import ipywidgets

from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.recording import record
from penaltylab.widgets.notebook import Timeline, with_picture

if TYPE_CHECKING:
    from penaltylab.study.collect import Collector

BASELINE: Final = "blocking"
FORWARDS_MS: Final = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
_STEPS: Final = {"steps": 7, "warmup": 2}


def explorer(study: "Collector") -> "Explorer":
    """A panel with the study's parameters, of which path, strategy, barrier and forward time can be chosen.

    Above is always the run with `h2d="blocking"`, below the chosen strategy; both follow the other choices. On the
    emulated device a choice takes well under a second.
    """
    return Explorer(study.with_changes())


class Explorer(ipywidgets.VBox):  # type: ignore[misc]
    """The panel that `explorer` returns. `choices` are its controls by the name of their parameter."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._folder = Path(tempfile.mkdtemp(prefix="penaltylab-"))
        self._traces: dict[str, str] = {}
        params = Params.of(**given)
        self.choices: dict[str, Any] = {
            "path": ipywidgets.ToggleButtons(options=_values("path"), value=params.path, description="path"),
            "h2d": ipywidgets.Dropdown(options=_values("h2d"), value=params.h2d, description="strategy"),
            "barrier": ipywidgets.ToggleButtons(
                options=_values("barrier"), value=params.barrier, description="barrier"
            ),
            "forward_ms": ipywidgets.SelectionSlider(
                options=[(f"{ms:g} ms", ms) for ms in sorted({*FORWARDS_MS, params.forward_ms})],
                value=params.forward_ms,
                description="forward",
                continuous_update=False,
            ),
        }
        for control in self.choices.values():
            control.style.description_width = "60px"
            if isinstance(control, ipywidgets.ToggleButtons):
                control.style.button_width = "92px"
                control.layout.width = "max-content"
            control.observe(self._chosen, names="value")
        self.timeline = Timeline()
        self.said = ipywidgets.Label()
        rows = [ipywidgets.HBox([self.choices[name] for name in pair], layout={"flex_flow": "row wrap"})
                for pair in (("path", "barrier"), ("h2d", "forward_ms"))]  # fmt: skip
        super().__init__([*rows, self.said, self.timeline])
        self._chosen()

    def _chosen(self, _: Any = None) -> None:
        """Show the runs of the choices; what cannot be run is said."""
        chosen = {name: control.value for name, control in self.choices.items()}
        try:
            traces = [self._trace({**chosen, "h2d": h2d}) for h2d in (BASELINE, chosen["h2d"])]
        except InputError as error:
            self._say(str(error))
            return
        place = f"{chosen['path']} path, {chosen['barrier']} barrier, forward {chosen['forward_ms']:g} ms"
        self.timeline.show(traces, [f"{h2d}: {place}" for h2d in (BASELINE, chosen["h2d"])])
        self._say("")

    def _say(self, text: str) -> None:
        self.said.value = text
        self.said.layout.display = None if text else "none"

    def _trace(self, changes: dict[str, Any]) -> str:
        given = {**self._given, **_STEPS, **changes}
        key = Params.of(**given).hash()
        if key not in self._traces:
            self._traces[key] = record(out=self._folder / f"{changes['h2d']}-{key}.json.gz", **given)
        return self._traces[key]

    def __repr__(self) -> str:
        return f"Explorer of {', '.join(self.timeline.titles)}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return with_picture(super()._repr_mimebundle_(**kwargs), self.timeline.png())


def _values(name: str) -> tuple[str, ...]:
    return get_args(get_type_hints(Params)[name])
