// Numbers for people.

export function duration(us) {
  if (us >= 999500) return `${(us / 1e6).toFixed(2)} s`;
  if (us >= 999.5) return `${(us / 1e3).toFixed(2)} ms`;
  return us >= 99.5 ? `${us.toFixed(0)} us` : `${Number(us.toPrecision(3))} us`;
}

export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}

/** A time with as many digits as a `step` needs, in the unit of an axis with ticks of `ticks`. */
export function instant(us, step, ticks = step) {
  const [unit, name] = ticks >= 1e5 ? [1e6, "s"] : ticks >= 100 ? [1e3, "ms"] : [1, "us"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  return `${(us / unit).toFixed(Math.min(digits, 6))} ${name}`;
}

/** The distance of ticks that are at least `least` apart: 1, 2 or 5 times a power of ten. */
export function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((times) => times * power >= least);
}
