// The interactive timeline: a canvas for the scene, another on top for what follows the pointer, buttons and a card.

import { GUTTER, MARGIN, layOut } from "./layout.js";
import { STYLES } from "./palette.js";
import { View } from "./view.js";
import { card, legend, make, tools } from "./dom.js";
import { describe, find, stallsOf } from "./find.js";
import { extentOf, unpack, windowOf } from "./scene.js";
import { listen } from "./input.js";
import { overlay } from "./overlay.js";
import { paint } from "./paint.js";

const KEPT_PAINTS = 240;

export class Timeline {
  /**
   * Builds a timeline in `element`.
   *
   * `perfetto` has `runs`, a set of the runs whose trace is at hand, and `open(run)`, which is called inside the click.
   */
  constructor(element, { perfetto = null } = {}) {
    this.perfetto = perfetto;
    this.calls = true;
    this.selected = null;
    this.hovered = null;
    this.paints = [];
    this.root = make("div", "penaltylab-root", element);
    this.root.tabIndex = 0;
    this.root.dataset.lmSuppressShortcuts = "true";
    this.tools = tools(this.root, this);
    this.stage = make("div", "penaltylab-stage", this.root);
    this.canvas = make("canvas", "penaltylab-canvas", this.stage);
    this.above = make("canvas", "penaltylab-above", this.stage);
    this.buttons = make("div", "penaltylab-buttons", this.stage);
    this.card = card(this.stage);
    this.legend = make("div", "penaltylab-legend", this.root);
    listen(this.root, this.canvas, this);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.stage);
    element.penaltylab = this;
  }

  /** Shows the scene in these bytes, on the stretch on which it opens. */
  async show(packed) {
    const began = performance.now();
    const scene = await unpack(packed);
    this.scene = scene;
    this.view = new View(extentOf(scene), windowOf(scene), GUTTER, this.room);
    this.selected = this.hovered = null;
    this.card.hide();
    this.arrange();
    this.firstPaint = performance.now() - began;
  }

  arrange() {
    this.layout = layOut(this.scene, this.calls);
    this.stalls = stallsOf(this.layout);
    legend(this.legend, this.layout, STYLES);
    this.tools.say(this.scene, this.stalls.length);
    this.buttons.replaceChildren();
    for (const run of this.perfetto?.runs ?? []) this.offerPerfetto(this.layout.runs[run], run);
    const names = this.scene.runs.map((run) => `${run.label}: ${run.summary}`).join("; ");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Stream timelines. ${names}`);
    this.resize();
  }

  offerPerfetto(placed, run) {
    const button = make("button", "", this.buttons, "Open in Perfetto \u00b7 stays in this browser");
    button.title = "Hands this run's trace from this page to the Perfetto tab. Nothing is uploaded.";
    button.style.top = `${placed.top}px`;
    button.addEventListener("click", () => this.perfetto.open(run));
  }

  resize() {
    if (!this.layout || !this.stage.clientWidth) return;
    this.ratio = window.devicePixelRatio || 1;
    this.stage.style.height = `${this.layout.height}px`;
    for (const canvas of [this.canvas, this.above]) {
      canvas.width = Math.round(this.stage.clientWidth * this.ratio);
      canvas.height = Math.round(this.layout.height * this.ratio);
    }
    this.view.width = this.room;
    this.paint();
  }

  /** Draws at once; `changed` draws with the next frame, however often it is called before. */
  paint() {
    const began = performance.now();
    paint(this.canvas.getContext("2d", { alpha: false }), this.scene, this.layout, this.view, this.ratio ?? 1);
    if (this.pointer) this.hover(this.pointer);
    else this.paintAbove();
    this.paints.push(performance.now() - began);
    if (this.paints.length > KEPT_PAINTS) this.paints.shift();
  }

  paintAbove() {
    overlay(this.above.getContext("2d"), this);
  }

  changed() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.paint();
    });
  }

  get room() {
    return Math.max(this.stage.clientWidth - GUTTER - MARGIN, 50);
  }

  get middle() {
    return this.view.left + this.view.width / 2;
  }

  get width() {
    return this.view.width;
  }

  zoom(factor, x) {
    this.view.zoom(factor, Math.min(Math.max(x, this.view.left), this.view.left + this.view.width));
    this.changed();
  }

  pan(pixels) {
    this.view.pan(pixels);
    this.changed();
  }

  /** The selected slice with as much again on either side, else everything. */
  fit() {
    if (this.selected) this.fitSlice(this.selected);
    else this.view.set(this.view.extent.from, this.view.extent.to);
    this.changed();
  }

  fitSlice({ track, index }) {
    const length = Math.max(track.dur[index], 0.1);
    this.view.set(track.start[index] - length, track.start[index] + 2 * length);
    this.changed();
  }

  fitSliceAt(point) {
    const found = find(this.layout, this.view, point);
    if (found) this.fitSlice(found);
  }

  /** The stretch on which the timeline opened. */
  home() {
    const { from, to } = windowOf(this.scene);
    this.view.set(from, to);
    this.changed();
  }

  nextStall(by) {
    if (!this.stalls.length) return;
    const at = this.selected ? this.stalls.findIndex((one) => same(one, this.selected)) : -1;
    const onScreen = this.stalls.findIndex((one) => one.track.start[one.index] >= this.view.from);
    const next = at < 0 ? Math.max(onScreen, 0) : at + by + this.stalls.length;
    this.selected = this.stalls[next % this.stalls.length];
    const { track, index } = this.selected;
    const length = Math.max(this.view.to - this.view.from, track.dur[index] * 1.5);
    const from = track.start[index] + track.dur[index] / 2 - length / 2;
    this.view.set(from, from + length);
    this.changed();
    this.showCard(this.selected, null);
  }

  hover(point) {
    this.pointer = point;
    this.hovered = point && find(this.layout, this.view, point);
    this.canvas.style.cursor = this.hovered ? "pointer" : "grab";
    this.paintAbove();
    this.showCard(this.hovered ?? this.selected, this.hovered ? point : null);
  }

  select(point) {
    this.selected = point && find(this.layout, this.view, point);
    if (!this.layout) return;
    this.paintAbove();
    this.showCard(this.selected, point);
  }

  showCard(found, point) {
    if (!found) {
      this.card.hide();
      return;
    }
    const x = point?.x ?? this.view.x(found.track.start[found.index]);
    const y = point?.y ?? found.band.y + found.band.height;
    this.card.show(describe(this.scene, this.view, found), found.placed.run.label, x, y);
  }

  close() {
    this.observer.disconnect();
    this.root.remove();
  }
}

export function same(one, other) {
  return Boolean(one && other) && one.track === other.track && one.index === other.index;
}
