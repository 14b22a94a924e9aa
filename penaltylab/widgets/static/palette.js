// What each sort of slice looks like. The colours are those of Okabe and Ito, which colour-blind eyes tell apart, and
// those of the PNG; neighbours differ in lightness or hatching too.

export const SORT = {
  RUNNING: 0, STALL: 1, WAIT: 2, KERNEL: 3, H2D: 4, D2H: 5, ANNOTATION: 8, OPERATOR: 9, CALL: 10, MEMSET: 11,
};

export const INK = "#1b1b1b";
export const SOFT = "#444444";
export const LINE = "#8a8a8a";
export const FAINT = "#e4e4e4";

export const STYLES = {
  [SORT.RUNNING]: { fill: "#c9c9c9", legend: "host runs" },
  [SORT.STALL]: { fill: "#D55E00", edge: INK, hatch: "lines", least: 3, legend: "host stalled by a copy" },
  [SORT.WAIT]: { fill: "#ffffff", edge: LINE, hatch: "dots", least: 2, legend: "host waits for a result" },
  [SORT.KERNEL]: { fill: "#0072B2", text: "#ffffff", legend: "kernels" },
  [SORT.MEMSET]: { fill: "#56B4E9", text: INK, legend: "memset" },
  [SORT.H2D]: { fill: "#E69F00", edge: INK, text: INK, least: 2, legend: "copy to device (upper)" },
  [SORT.D2H]: { fill: "#CDEAFA", thin: "#56B4E9", edge: INK, text: INK, least: 2, legend: "copy to host (lower)" },
  [SORT.ANNOTATION]: { fill: "#f0e9c9", text: INK, legend: "annotation" },
  [SORT.OPERATOR]: { fill: "#dcdcdc", text: INK, legend: "operator" },
  [SORT.CALL]: { fill: "#009E73", text: "#ffffff", legend: "runtime call" },
};

const patterns = new Map();

/** The fill of a style: its colour, or its hatching as a pattern at this ratio of device pixels. */
export function fillOf(context, style, ratio) {
  if (!style.hatch) return style.fill;
  const key = `${style.fill} ${style.hatch} ${ratio}`;
  if (!patterns.has(key)) {
    const pattern = context.createPattern(tile(style, ratio), "repeat");
    // The tile is drawn in device pixels, so that its lines are sharp.
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    patterns.set(key, pattern);
  }
  return patterns.get(key);
}

function tile(style, ratio) {
  const size = Math.round((style.hatch === "lines" ? 7 : 5) * ratio);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  context.fillStyle = style.fill;
  context.fillRect(0, 0, size, size);
  if (style.hatch === "lines") {
    context.strokeStyle = INK;
    context.lineWidth = 1.1 * ratio;
    context.beginPath();
    for (const shift of [-size, 0, size]) {
      context.moveTo(shift - 1, size + 1);
      context.lineTo(shift + size + 1, -1);
    }
    context.stroke();
  } else {
    context.fillStyle = LINE;
    context.fillRect(size / 2 - ratio / 2, size / 2 - ratio / 2, ratio, ratio);
  }
  return canvas;
}
