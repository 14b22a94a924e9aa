// Where everything stands: one band a lane, run below run, all on one time axis.

export const GUTTER = 118;
export const MARGIN = 24;
export const AXIS = 22;
export const TICK_PIXELS = 110;
const HEAD = 40;
const STEPS = 14;
const BETWEEN = 4;
const BELOW_RUN = 14;
const HEIGHTS = { host: 26, stream: 26, copies: 24 };
const CALL_ROW = 14;

/** The bands of a scene in order; `calls` says whether the lanes of calls are shown. */
export function layOut(scene, calls) {
  const runs = [];
  let y = AXIS + 6;
  for (const run of scene.runs) {
    const top = y;
    y += HEAD + (run.steps.length ? STEPS : 0);
    const lanesTop = y;
    const bands = [];
    for (const lane of run.lanes) {
      if (lane.kind === "calls" && !calls) continue;
      const height = lane.kind === "calls" ? CALL_ROW * lane.rows : HEIGHTS[lane.kind];
      bands.push({ lane, y, height, row: height / lane.rows });
      y += height + BETWEEN;
    }
    runs.push({ run, top, lanesTop, bottom: y - BETWEEN, bands });
    y += BELOW_RUN;
  }
  return { runs, height: y };
}

/** What stands at a height: the run, the band, and the row of it. */
export function bandAt(layout, y) {
  for (const placed of layout.runs) {
    const band = placed.bands.find((one) => y >= one.y - BETWEEN / 2 && y < one.y + one.height + BETWEEN / 2);
    if (band) {
      const row = Math.floor((y - band.y) / band.row);
      return { placed, band, row: Math.min(Math.max(row, 0), band.lane.rows - 1) };
    }
  }
  return null;
}
