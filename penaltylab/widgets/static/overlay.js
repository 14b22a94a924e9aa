// What follows the pointer: a line through all runs with its time, and frames around the hovered and the chosen slice.

import { INK } from "./palette.js";
import { AXIS, TICK_PIXELS } from "./layout.js";
import { instant, tickStep } from "./words.js";

export function overlay(context, { view, layout, ratio = 1, pointer, hovered, selected }) {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, context.canvas.width / ratio, context.canvas.height / ratio);
  if (pointer && pointer.x >= view.left && pointer.x <= view.left + view.width) {
    const x = Math.round(pointer.x);
    context.fillStyle = "#00000055";
    context.fillRect(x, AXIS, 1, layout.height - AXIS);
    const said = instant(view.time(x), tickStep(2 / view.scale), tickStep(TICK_PIXELS / view.scale));
    context.font = "600 11px system-ui, sans-serif";
    const wide = context.measureText(said).width + 10;
    const from = Math.min(Math.max(x - wide / 2, view.left), view.left + view.width - wide);
    context.fillStyle = INK;
    context.fillRect(from, 2, wide, 17);
    context.fillStyle = "#ffffff";
    context.textBaseline = "middle";
    context.fillText(said, from + 5, 11);
  }
  for (const [found, width] of [[hovered, 1.5], [selected, 2.5]]) {
    if (found) frame(context, view, found, width);
  }
}

function frame(context, view, { band, track, index }, width) {
  const from = Math.max(view.x(track.start[index]), view.left - 4);
  const to = Math.min(view.x(track.start[index] + track.dur[index]), view.left + view.width + 4);
  if (to < view.left || from > view.left + view.width) return;
  context.strokeStyle = "#000000";
  context.lineWidth = width;
  const y = band.y + band.row * track.row;
  context.strokeRect(from - 1, y + 0.5, Math.max(to - from, 1) + 2, band.row - 2);
}
