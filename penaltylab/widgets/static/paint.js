// Drawing a scene on a canvas: the axis, and run below run its head, its steps and its lanes.

import { FAINT, INK, LINE, SOFT, SORT, STYLES, fillOf } from "./palette.js";
import { AXIS, GUTTER, TICK_PIXELS } from "./layout.js";
import { duration, instant, tickStep } from "./words.js";
import { walk } from "./walk.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";
const LETTER = 6.1;
const STEP_PIXELS = 14;

export function paint(context, scene, layout, view, ratio) {
  const width = view.left + view.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, context.canvas.width / ratio, context.canvas.height / ratio);
  context.direction = "ltr";
  paintAxis(context, layout, view);
  for (const placed of layout.runs) {
    paintHead(context, placed, width);
    context.save();
    context.beginPath();
    context.rect(view.left, placed.top, view.width, placed.bottom - placed.top + 1);
    context.clip();
    paintSteps(context, placed, view);
    for (const band of placed.bands) {
      for (const track of band.lane.tracks) paintTrack(context, scene, band, track, view, ratio);
    }
    context.restore();
    for (const band of placed.bands) {
      write(context, band.lane.label, GUTTER - 8, band.y + band.height / 2, { align: "right", most: GUTTER - 12 });
    }
    if (placed.run.simulated) paintSimulated(context, placed, width);
  }
}

function write(context, text, x, y, { font = `11px ${FONT}`, color = INK, align = "left", most } = {}) {
  context.font = font;
  context.fillStyle = color;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(text, x, y, most);
}

function paintAxis(context, layout, view) {
  const step = tickStep(TICK_PIXELS / view.scale);
  context.fillStyle = FAINT;
  for (let tick = Math.ceil(view.from / step); tick * step <= view.to; tick += 1) {
    const x = Math.round(view.x(tick * step));
    for (const placed of layout.runs) context.fillRect(x, placed.lanesTop, 1, placed.bottom - placed.lanesTop);
    context.fillRect(x, AXIS - 5, 1, 5);
    write(context, instant(tick * step, step), x, AXIS - 12, { color: SOFT, align: "center" });
    context.fillStyle = FAINT;
  }
  context.fillStyle = LINE;
  context.fillRect(view.left, AXIS, view.width, 1);
}

function paintHead(context, placed, width) {
  const { run, top } = placed;
  write(context, run.label, 8, top + 11, { font: `600 13px ${FONT}`, most: width - 260 });
  const more = run.note ? `   \u00b7   ${run.note}` : "";
  write(context, run.summary + more, 8, top + 28, { color: SOFT, most: width - 16 });
}

function paintSimulated(context, placed, width) {
  context.fillStyle = INK;
  context.fillRect(width + 5, placed.lanesTop, 14, placed.bottom - placed.lanesTop);
  context.save();
  context.translate(width + 12, (placed.lanesTop + placed.bottom) / 2);
  context.rotate(Math.PI / 2);
  write(context, "SIMULATED", 0, 0.5, { font: `700 9px ${FONT}`, color: "#ffffff", align: "center" });
  context.restore();
}

function paintSteps(context, placed, view) {
  const { run, lanesTop, bottom } = placed;
  let written = -Infinity;
  let drawn = -Infinity;
  context.strokeStyle = SOFT;
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.beginPath();
  for (const [start, number] of run.steps) {
    if (start > view.to) break;
    const x = Math.round(view.x(start)) + 0.5;
    if (x < view.left || x - drawn < STEP_PIXELS) continue;
    drawn = x;
    context.moveTo(x, lanesTop - 12);
    context.lineTo(x, bottom);
    if (x - written < 58) continue;
    written = x;
    write(context, `step ${number}`, x + 4, lanesTop - 8, { font: `10px ${FONT}`, color: SOFT });
  }
  context.stroke();
  context.setLineDash([]);
}

function paintTrack(context, scene, band, track, view, ratio) {
  const { lane } = band;
  const gap = lane.kind === "calls" ? 1 : lane.rows > 1 ? 2 : 3;
  const y = band.y + band.row * track.row + (lane.kind === "calls" ? 0 : gap);
  const height = band.row - (lane.kind === "calls" ? 1 : 2 * gap);
  const right = view.left + view.width;
  walk(
    track,
    view,
    (index, x0, x1) => {
      const from = Math.max(x0, view.left - 3);
      const to = Math.min(x1, right + 3);
      block(context, scene, track, index, from, to, y, height, ratio);
    },
    (x0, x1, index) => {
      const style = STYLES[track.sort[index]];
      // Stalls and copies never vanish, however far away one looks from.
      const wide = Math.max(x1 - x0, style.least ?? 1);
      context.fillStyle = style.thin ?? fillOf(context, style, ratio);
      context.globalAlpha = style.least ? 1 : 0.75;
      context.fillRect(x0, style.hatch === "lines" ? y - 3 : y, wide, style.hatch === "lines" ? height + 6 : height);
      context.globalAlpha = 1;
    },
  );
}

function block(context, scene, track, index, x0, x1, y, height, ratio) {
  const sort = track.sort[index];
  const style = STYLES[sort];
  const stalled = sort === SORT.STALL;
  if (stalled) {
    y -= 2;
    height += 4;
  }
  const wide = Math.max(x1 - x0, style.least ?? 1);
  // Neighbours of one colour are told apart by a thin gap.
  const shown = style.edge || wide < 3 ? wide : wide - 0.6;
  context.fillStyle = (wide < 4 && style.thin) || fillOf(context, style, ratio);
  context.fillRect(x0, y, shown, height);
  if (style.edge && wide > 4) {
    context.strokeStyle = style.edge;
    context.lineWidth = stalled ? 1.5 : 0.8;
    context.strokeRect(x0, y, shown, height);
  }
  if (stalled || sort === SORT.WAIT) plate(context, track, index, x0, wide, y + height / 2, stalled);
  else if (style.text && wide > 26 && height > 9) inside(context, scene.names[track.name[index]], x0, wide, y + height / 2, style);
}

/** How long a stall or wait is, on a plate that the hatching does not reach. */
function plate(context, track, index, x0, wide, y, stalled) {
  const long = duration(track.dur[index]);
  context.font = `${stalled ? "700 " : ""}11px ${FONT}`;
  const texts = [stalled ? `STALLED ${long}` : `waits ${long}`, long];
  const said = wide > 30 && texts.find((text) => context.measureText(text).width + 14 < wide);
  if (!said) return;
  const plated = context.measureText(said).width + 8;
  const middle = x0 + wide / 2;
  context.fillStyle = "#ffffff";
  context.fillRect(middle - plated / 2, y - 7.5, plated, 15);
  if (stalled) {
    context.strokeStyle = INK;
    context.lineWidth = 0.8;
    context.strokeRect(middle - plated / 2, y - 7.5, plated, 15);
  }
  write(context, said, middle, y + 0.5, { font: context.font, color: stalled ? INK : SOFT, align: "center" });
}

function inside(context, name, x0, wide, y, style) {
  const fits = Math.floor((wide - 6) / LETTER);
  if (fits < 4) return;
  const text = name.length <= fits ? name : `${name.slice(0, fits - 1)}\u2026`;
  write(context, text, x0 + 4, y + 0.5, { font: `10.5px ${FONT}`, color: style.text, most: wide - 6 });
}
