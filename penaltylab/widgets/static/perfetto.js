// Handing a trace to the Perfetto UI in another tab: PING until PONG, then the buffer. The trace goes from this page to
// that tab and nowhere else. https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui

const EVERY_MS = 50;
const PATIENCE_MS = 60000;
const OFFLINE = "Without a network: penaltylab view TRACE";

/**
 * Opens the UI and gives it a trace; to be called inside a click, or the browser refuses the new tab.
 *
 * `trace` gives the bytes, plain or gzipped; `report` is told in words how it goes.
 */
export async function openInPerfetto(ui, name, trace, report) {
  const origin = new URL(ui).origin;
  const tab = window.open(ui);
  if (!tab) {
    report("The browser did not allow a new tab: allow pop-ups of this page, then click again.");
    return;
  }
  report("Perfetto opens\u2026");
  try {
    const [buffer] = await Promise.all([trace(), answered(tab, origin)]);
    tab.postMessage({ perfetto: { buffer, title: name, fileName: name } }, origin, [buffer]);
    report("Perfetto has the trace, handed over inside this browser. If it asks whether you trust this page, answer Yes.");
  } catch (error) {
    report(error.message);
  }
}

function answered(tab, origin) {
  return new Promise((resolve, reject) => {
    const began = Date.now();
    const hear = (event) => {
      if (event.source === tab && event.origin === origin && event.data === "PONG") finish(resolve);
    };
    const ping = setInterval(() => {
      if (tab.closed) finish(reject, new Error("The Perfetto tab was closed."));
      else if (Date.now() - began > PATIENCE_MS) finish(reject, new Error(`No answer from ${origin}. ${OFFLINE}`));
      else tab.postMessage("PING", origin);
    }, EVERY_MS);
    const finish = (settle, value) => {
      clearInterval(ping);
      removeEventListener("message", hear);
      settle(value);
    };
    addEventListener("message", hear);
  });
}
