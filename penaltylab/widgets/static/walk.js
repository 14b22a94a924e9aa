// Finding the visible slices of a track. They do not overlap and are in order of start, so a search needs no index.

/** The first slice that starts at `time` or later, looked for from `low` on: near it at first, for walks go forward. */
export function firstFrom(start, time, low = 0) {
  let step = 1;
  let high = low;
  while (high < start.length && start[high] < time) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = Math.min(high, start.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Calls `wide(index, x0, x1)` for each visible slice of a pixel or more, and `slivers(x0, x1, index)` for each stretch of
 * neighbours that are narrower, merged; `index` is the first of them. The work depends on pixels, not on slices.
 */
export function walk(track, view, wide, slivers) {
  const { start, dur } = track;
  let index = Math.max(firstFrom(start, view.from) - 1, 0);
  let merged = null;
  const flush = () => {
    if (merged) slivers(merged.x0, merged.x1, merged.index);
    merged = null;
  };
  while (index < start.length && start[index] <= view.to) {
    const x0 = view.x(start[index]);
    const x1 = view.x(start[index] + dur[index]);
    if (x1 < view.left) {
      index += 1;
    } else if (x1 - x0 >= 1) {
      flush();
      wide(index, x0, x1);
      index += 1;
    } else {
      const pixel = Math.floor(x0);
      let next = firstFrom(start, view.time(pixel + 1), index + 1);
      // Only the last slice that starts within a pixel can be wide: the others end before it starts.
      if (next - 1 > index && dur[next - 1] * view.scale >= 1) next -= 1;
      if (merged && pixel <= merged.x1) {
        merged.x1 = pixel + 1;
      } else {
        flush();
        merged = { x0: pixel, x1: pixel + 1, index };
      }
      index = next;
    }
  }
  flush();
}

/** The slice at a time, or the nearest one within `slack`; -1 where there is none. */
export function sliceAt(track, time, slack) {
  const { start, dur } = track;
  const after = firstFrom(start, time);
  let best = -1;
  let nearest = slack;
  for (const index of [after - 1, after]) {
    if (index < 0 || index >= start.length) continue;
    const away = Math.max(start[index] - time, time - start[index] - dur[index], 0);
    if (away <= nearest) {
      best = index;
      nearest = away;
    }
  }
  return best;
}
