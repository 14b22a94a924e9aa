"""The command line: what each verb takes. The work is in `penaltylab.commands`, imported when a verb is chosen.

Exit status: 0 done; 1 the thing asked about failed; 2 bad input or usage, with one line on standard error and never a
traceback.
Needs the standard library alone, so that `bench` and `upstream` run on a server that has torch and little else.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from penaltylab import __version__
from penaltylab.errors import InputError

Verb = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Raises InputError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see `{self.prog} --help`)")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its status."""
    try:
        status = run(argv)
        sys.stdout.flush()
    except InputError as error:
        print(f"penaltylab: {' '.join(str(error).split())}", file=sys.stderr)
        status = 2
    except BrokenPipeError:  # the reader of our output, `head` say, has gone; nothing is left to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt:
        print("penaltylab: interrupted", file=sys.stderr)
        status = 1
    sys.exit(status)


def run(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` (default: the process's own) and carry out its command. Raises InputError on any usage error."""
    arguments = _parser().parse_args(argv)
    verb: Verb = arguments.verb
    return verb(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="penaltylab", description="When does moving a few bytes to the GPU stop the CPU?", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"penaltylab {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_run,
        _add_compare,
        _add_inspect,
        _add_upstream,
        _add_bench,
        _add_view,
        _add_calibrate,
        _add_doctor,
    ):
        add(verbs)
    return parser


def _add(verbs: "argparse._SubParsersAction[_Parser]", name: str, summary: str, verb: Verb) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(verb=verb)
    return parser


def _add_run(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.run import Options, run_study

        return run_study(Options(**{name: value for name, value in vars(given).items() if name != "verb"}))

    parser = _add(verbs, "run", "run notebooks, or a sweep without them, and write records, traces and a report", verb)
    parser.add_argument(
        "notebooks", nargs="*", metavar="NOTEBOOK", help="name, number or path; default: all that ship, unless --sweep"
    )
    parser.add_argument("--device", choices=["auto", "emu", "cuda"], help="default: auto, the GPU where there is one")
    parser.add_argument("--out", metavar="DIR", help="an empty or new folder; default: runs/DATE-TIME")
    parser.add_argument("-p", dest="values", action="append", default=[], metavar="NAME=VALUE", help="set a parameter")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="NAME=V1,V2,...",
        help="run once for each value, or for `all`; several make the product. With NOTEBOOKs a cell is a notebook, "
        "without one it is a run of the engine, which starts no notebook",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="at a time; default: one, in a sweep one a GPU, or one a core where time is modelled",
    )
    parser.add_argument(
        "--deadline", type=float, default=900, metavar="S", help="seconds a cell may take (default: %(default)g)"
    )
    parser.add_argument("--quick", action="store_true", help="few steps: does it run at all?")
    parser.add_argument("--engine", choices=["local", "ray"], default="local", help="where the cells of a sweep run")
    parser.add_argument("--resume", action="store_true", help="go on in DIR: do only what is not there in this setting")
    parser.add_argument(
        "--pairs", type=int, default=20, metavar="N", help="rounds of a sweep in measured time (default: %(default)s)"
    )
    parser.add_argument("--traces", action="store_true", help="each cell of a sweep leaves a trace too")
    parser.add_argument("--yes", action="store_true", help="run a sweep of more than 10,000 cells")
    parser.add_argument("--with-names", action="store_true", help="record who ran it and on which host")


def _add_compare(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.compare import compare

        return compare(given.run_a, given.run_b, given.format, given.fail_above)

    parser = _add(verbs, "compare", "put two runs of the study side by side: what differs, and what changed", verb)
    parser.add_argument("run_a", metavar="RUN_A", help="the folder of a run")
    parser.add_argument("run_b", metavar="RUN_B", help="the folder of the run to judge")
    parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")
    parser.add_argument(
        "--fail-above",
        type=float,
        metavar="PERCENT",
        help="exit 1 when a step is slower by more, 2 where that is open",
    )


def _add_inspect(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.inspect import inspect

        return inspect(given.traces, given.format, given.fail_on, given.min_us)

    parser = _add(verbs, "inspect", "read torch.profiler traces and name every place where the host stood still", verb)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")
    parser.add_argument("--fail-on", metavar="KIND[,KIND]", help="exit 1 when there are stalls of these kinds")
    parser.add_argument("--min-us", type=float, default=0.0, metavar="N", help="leave out stalls shorter than this")


def _add_upstream(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.upstream import upstream

        return upstream(given.versions, given.path, given.values, given.format)

    parser = _add(verbs, "upstream", "run released sglang code on this device and show what its copy costs", verb)
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="as on the package index: 0.5.13 0.5.14")
    parser.add_argument("--path", choices=["normal", "eagle"], help="default: both")
    parser.add_argument("-p", dest="values", action="append", default=[], metavar="NAME=VALUE", help="set a parameter")
    parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")


def _add_view(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.view import view

        return view(given.trace)

    parser = _add(verbs, "view", "serve a trace with the Perfetto UI on this machine, offline, on loopback only", verb)
    parser.add_argument("trace", metavar="TRACE")


def _add_calibrate(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.calibrate import calibrate

        return calibrate(given.trace)

    parser = _add(verbs, "calibrate", "print a machine cost model measured from a real CUDA trace", verb)
    parser.add_argument("trace", metavar="TRACE")


def _add_bench(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.bench import bench

        return bench(given.suite, given.out)

    parser = _add(verbs, "bench", "measure this package's own costs", verb)
    parser.add_argument("suite", nargs="?", default="all", help="a suite, or all (default)")
    parser.add_argument("--out", metavar="FILE", help="also write the results, one JSON object a line")


def _add_doctor(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    def verb(given: argparse.Namespace) -> int:
        from penaltylab.commands.doctor import doctor

        return doctor()

    _add(verbs, "doctor", "say what this machine can run, and what is missing", verb)


if __name__ == "__main__":
    main()
