// The parts of a timeline that are not drawn: tools, legend, and the card that describes a slice.

import { fillOf } from "./palette.js";

/** An element with a class and, set as text and never as markup, what it says. */
export function make(tag, name, parent, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

/** The row of buttons; returns how to say what the scene holds. */
export function tools(root, timeline) {
  const bar = make("div", "penaltylab-tools", root);
  const button = (text, title, act) => {
    const made = make("button", "", bar, text);
    made.title = title;
    made.addEventListener("click", act);
    return made;
  };
  button("\u2212", "zoom out (s)", () => timeline.zoom(1.6, timeline.middle));
  button("+", "zoom in (w)", () => timeline.zoom(1 / 1.6, timeline.middle));
  button("start", "the stretch it opened on", () => timeline.home());
  button("fit", "all of the runs, or the chosen slice (f)", () => timeline.fit());
  const previous = button("\u2039 stall", "the stall before (p)", () => timeline.nextStall(-1));
  const next = button("stall \u203a", "the next stall (n)", () => timeline.nextStall(1));
  const calls = button("calls", "show or hide what the host calls", () => {
    timeline.calls = !timeline.calls;
    calls.setAttribute("aria-pressed", String(timeline.calls));
    timeline.arrange();
  });
  calls.setAttribute("aria-pressed", "true");
  const keys = "wheel or w s: zoom \u00b7 drag or a d: pan \u00b7 f: fit \u00b7 n p: stalls";
  make("span", "penaltylab-keys", bar, keys);
  const count = make("span", "penaltylab-count", bar);
  const message = make("span", "penaltylab-message", bar);
  message.setAttribute("role", "status");
  return {
    say(scene, stalls) {
      count.textContent = `${scene.slices.toLocaleString("en")} slices`;
      previous.disabled = next.disabled = !stalls;
    },
    report(text) {
      message.textContent = text;
    },
  };
}

/** The swatches of the sorts of slice that are there. */
export function legend(element, layout, styles) {
  const bands = layout.runs.flatMap((placed) => placed.bands);
  const tracks = bands.flatMap((band) => band.lane.tracks);
  const seen = new Set(tracks.flatMap((track) => [...new Set(track.sort)]));
  element.replaceChildren();
  for (const [sort, style] of Object.entries(styles)) {
    if (!seen.has(Number(sort))) continue;
    const item = make("span", "", element);
    const swatch = make("canvas", "", item);
    const ratio = window.devicePixelRatio || 1;
    [swatch.width, swatch.height] = [22 * ratio, 12 * ratio];
    const context = swatch.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = fillOf(context, style, ratio);
    context.fillRect(0, 0, 22, 12);
    context.strokeStyle = style.edge ?? style.fill;
    context.strokeRect(0.5, 0.5, 21, 11);
    item.append(style.legend);
  }
}

/** The card beside the pointer. */
export function card(stage) {
  const element = make("div", "penaltylab-card", stage);
  element.hidden = true;
  return {
    element,
    hide() {
      element.hidden = true;
    },
    show({ title, name, lines }, run, x, y) {
      element.replaceChildren();
      if (title) make("div", "penaltylab-title", element, title);
      make("bdi", "penaltylab-name", element, name);
      for (const [heading, text] of lines) {
        const line = make("div", "", element);
        if (heading) make("span", "penaltylab-heading", line, heading);
        make("bdi", "", line, text);
      }
      make("div", "penaltylab-run", element, run);
      element.hidden = false;
      const room = stage.clientWidth - element.offsetWidth - 4;
      element.style.left = `${Math.max(0, x + 16 > room ? x - 16 - element.offsetWidth : x + 16)}px`;
      const below = y + 18 + element.offsetHeight <= stage.clientHeight + 24;
      element.style.top = `${below ? y + 18 : Math.max(0, y - 14 - element.offsetHeight)}px`;
    },
  };
}
