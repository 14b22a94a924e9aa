// Which stretch of time is on screen, and where.

const SHORTEST_US = 0.05;

export class View {
  /** `extent` is all there is; `left` and `width` say which pixels the stretch takes. */
  constructor(extent, range, left, width) {
    this.extent = extent;
    this.left = left;
    this.width = width;
    this.set(range.from, range.to);
  }

  get scale() {
    return this.width / (this.to - this.from);
  }

  x(time) {
    return this.left + (time - this.from) * this.scale;
  }

  time(x) {
    return this.from + (x - this.left) / this.scale;
  }

  /** Shows this stretch, or the nearest one that is neither too short nor outside all there is. */
  set(from, to) {
    const all = this.extent.to - this.extent.from;
    const length = Math.min(Math.max(to - from, SHORTEST_US), Math.max(all * 1.04, SHORTEST_US));
    const middle = (from + to) / 2;
    const air = Math.min(length / 2, all * 0.02 + length * 0.25);
    this.from = Math.min(Math.max(middle - length / 2, this.extent.from - air), this.extent.to + air - length);
    this.to = this.from + length;
  }

  /** Zooms by a factor (below 1 comes closer) around the time under pixel `x`. */
  zoom(factor, x) {
    const time = this.time(x);
    const all = (this.extent.to - this.extent.from) * 1.04;
    const limited = Math.min(Math.max((this.to - this.from) * factor, SHORTEST_US), all) / (this.to - this.from);
    this.set(time - (time - this.from) * limited, time + (this.to - time) * limited);
  }

  pan(pixels) {
    const by = pixels / this.scale;
    this.set(this.from + by, this.to + by);
  }
}
