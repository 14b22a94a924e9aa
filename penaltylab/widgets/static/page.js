// The timelines of a page without a kernel: each stands as base64 beside its picture, and is built once it comes in view.

import { Timeline } from "./timeline.js";
import { openInPerfetto } from "./perfetto.js";

function bytesOf(script) {
  return Uint8Array.from(atob(script.textContent.trim()), (letter) => letter.charCodeAt(0));
}

async function mount(figure) {
  const scene = figure.querySelector("script[data-scene]");
  const traces = new Map();
  for (const one of figure.querySelectorAll("script[data-trace]")) traces.set(Number(one.dataset.run), one);
  const place = document.createElement("div");
  figure.prepend(place);
  const open = (run) => {
    const given = async () => bytesOf(traces.get(run)).buffer;
    openInPerfetto(figure.dataset.perfetto, traces.get(run).dataset.trace, given, (text) => timeline.tools.report(text));
  };
  const timeline = new Timeline(place, { perfetto: { runs: new Set(traces.keys()), open } });
  try {
    await timeline.show(bytesOf(scene));
    figure.classList.add("penaltylab-live");
  } catch (error) {
    // The picture stays.
    timeline.close();
    console.warn(error);
  }
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    seen.unobserve(entry.target);
    mount(entry.target);
  }
}, { rootMargin: "400px" });

for (const figure of document.querySelectorAll("figure.penaltylab-timeline:not([data-taken])")) {
  figure.dataset.taken = "";
  seen.observe(figure);
}
