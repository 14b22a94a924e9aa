// Wheel, drag and keys, as in Perfetto: w and s zoom, a and d pan, f fits.

const KEY_ZOOM = 0.75;
const KEY_PAN = 0.12;
const WHEEL = 0.0016;
const PINCH = 0.01;
const LINE_PIXELS = 16;
const DRAG_PIXELS = 4;

/** Connects the gestures on `canvas` and the keys on `root` to a timeline. */
export function listen(root, canvas, timeline) {
  let pointer = null;
  let moved = null;
  let drag = null;

  canvas.addEventListener("wheel", (event) => {
    // A page that is scrolled past is not caught: the pointer must have moved on the timeline first.
    if (!moved && !event.ctrlKey) return;
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PIXELS : 1;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.pan(sideways * unit);
    else timeline.zoom(Math.exp(event.deltaY * unit * (event.ctrlKey ? PINCH : WHEEL)), event.offsetX);
  }, { passive: false });

  canvas.addEventListener("pointermove", (event) => {
    // Browsers report a move when the page scrolls under a pointer that rests.
    if (pointer && (pointer.screenX !== event.screenX || pointer.screenY !== event.screenY)) moved = true;
    pointer = { screenX: event.screenX, screenY: event.screenY, x: event.offsetX, y: event.offsetY };
    if (!drag) {
      timeline.hover(pointer);
      return;
    }
    if (Math.abs(event.offsetX - drag.start) > DRAG_PIXELS) drag.far = true;
    if (drag.far) {
      timeline.hover(null);
      timeline.pan(drag.x - event.offsetX);
    }
    drag.x = event.offsetX;
  });

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    root.focus({ preventScroll: true });
    moved = true;
    drag = { start: event.offsetX, x: event.offsetX, far: false };
    canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
  });

  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.far) timeline.select({ x: event.offsetX, y: event.offsetY });
    drag = null;
  });

  canvas.addEventListener("pointercancel", () => { drag = null; });

  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    moved = null;
    timeline.hover(null);
  });

  canvas.addEventListener("dblclick", (event) => timeline.fitSliceAt({ x: event.offsetX, y: event.offsetY }));

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("button, select, input")) return;
    const at = pointer ? pointer.x : timeline.middle;
    const keys = {
      w: () => timeline.zoom(KEY_ZOOM, at),
      s: () => timeline.zoom(1 / KEY_ZOOM, at),
      a: () => timeline.pan(-KEY_PAN * timeline.width),
      d: () => timeline.pan(KEY_PAN * timeline.width),
      f: () => timeline.fit(),
      n: () => timeline.nextStall(1),
      p: () => timeline.nextStall(-1),
      escape: () => timeline.select(null),
    };
    keys.arrowleft = keys.a;
    keys.arrowright = keys.d;
    const act = keys[event.key.toLowerCase()];
    if (!act) return;
    act();
    event.preventDefault();
    // A notebook has its own use for single letters.
    event.stopPropagation();
  });
}
