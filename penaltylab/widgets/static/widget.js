// The timeline as a widget of a notebook: the scene is a trait, a trace comes from the kernel when it is asked for.

import { Timeline } from "./timeline.js";
import { openInPerfetto } from "./perfetto.js";

const KERNEL_PATIENCE_MS = 60000;

/** The trace of a run, cropped by the kernel where it is large. */
function askForTrace(model, run) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => finish(reject, new Error("The kernel does not answer: run the cell again.")), KERNEL_PATIENCE_MS);
    const hear = (message, buffers) => {
      if (message.run !== run) return;
      if (message.error) finish(reject, new Error(message.error));
      else finish(resolve, new Uint8Array(buffers[0].buffer, buffers[0].byteOffset, buffers[0].byteLength).slice().buffer);
    };
    const finish = (settle, value) => {
      clearTimeout(timer);
      model.off("msg:custom", hear);
      settle(value);
    };
    model.on("msg:custom", hear);
    model.send({ ask: "trace", run });
  });
}

/** Whether page and kernel are on one machine, so that the kernel can serve the Perfetto UI to the page. */
function onThisMachine() {
  return ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
}

function render({ model, el }) {
  const report = (text) => timeline.tools.report(text);
  const perfetto = {
    runs: new Set(model.get("titles").keys()),
    open: (run) => {
      const ui = model.get("local_ui") || model.get("public_ui");
      openInPerfetto(ui, model.get("titles")[run], () => askForTrace(model, run), report);
    },
  };
  el.classList.add("penaltylab-timeline");
  const timeline = new Timeline(el, { perfetto });
  const show = () => timeline.show(model.get("scene")).catch((error) => report(error.message));
  show();
  if (onThisMachine()) model.send({ ask: "ui" });
  model.on("change:scene", show);
  return () => {
    model.off("change:scene", show);
    timeline.close();
  };
}

export default { render };
