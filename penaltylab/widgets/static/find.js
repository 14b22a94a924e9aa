// Which slice is under the pointer, and what to say of it.

import { bandAt } from "./layout.js";
import { SORT } from "./palette.js";
import { duration, instant, size } from "./words.js";
import { firstFrom, sliceAt } from "./walk.js";

const SLACK_PIXELS = 3;

/** The slice at a point, the one drawn last first: `{placed, band, track, index}`, or null. */
export function find(layout, view, point) {
  if (point.x < view.left || point.x > view.left + view.width) return null;
  const at = bandAt(layout, point.y);
  if (!at) return null;
  const time = view.time(point.x);
  for (const track of at.band.lane.tracks.filter((one) => one.row === at.row).reverse()) {
    const index = sliceAt(track, time, SLACK_PIXELS / view.scale);
    if (index >= 0) return { placed: at.placed, band: at.band, track, index };
  }
  return null;
}

/** A slice in words: title, name, and lines of `[heading, text]`, the heading empty where the text speaks for itself. */
export function describe(scene, view, found) {
  const { placed, band, track, index } = found;
  const sort = track.sort[index];
  const name = scene.names[track.name[index]] || "the host runs";
  const lines = [
    ["lasts", duration(track.dur[index])],
    ["starts", instant(track.start[index], 0.1, Math.abs(track.start[index]) < 1000 ? 0.1 : 100)],
    ["on", band.lane.label],
  ];
  if (!Number.isNaN(track.bytes[index])) lines.push(["bytes", size(track.bytes[index])]);
  if (track.site[index]) lines.push(["called at", scene.sites[track.site[index]]]);
  const step = stepOf(placed.run, track.start[index]);
  if (step !== null) lines.push(["step", String(step)]);
  if (track.note[index]) lines.push(...scene.notes[track.note[index]].split("\n").map((text) => ["", text]));
  const near = neighbours(track, view, index);
  if (near > 1) lines.push(["", `${near} slices within this pixel: zoom in to tell them apart`]);
  return { title: sort === SORT.STALL ? "Host stalled" : sort === SORT.WAIT ? "Host waits" : "", name, lines };
}

function stepOf(run, time) {
  const at = firstFrom(run.steps.map(([start]) => start), time + 1e-6) - 1;
  return at < 0 ? null : run.steps[at][1];
}

function neighbours(track, view, index) {
  const pixel = 1 / view.scale;
  if (track.dur[index] > pixel) return 1;
  const start = track.start[index];
  return firstFrom(track.start, start + pixel / 2, index) - firstFrom(track.start, start - pixel / 2);
}

/** The stalls of all runs in order of start: the copies' first of all, else the waits. */
export function stallsOf(layout) {
  const found = [];
  for (const sort of [SORT.STALL, SORT.WAIT]) {
    for (const placed of layout.runs) {
      for (const band of placed.bands) {
        for (const track of band.lane.tracks) {
          for (let index = 0; band.lane.kind === "host" && index < track.start.length; index += 1) {
            if (track.sort[index] === sort) found.push({ placed, band, track, index });
          }
        }
      }
    }
    if (found.length) break;
  }
  return found.sort((one, other) => one.track.start[one.index] - other.track.start[other.index]);
}
