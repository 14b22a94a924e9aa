// The scene that penaltylab/widgets/slices.py packs: a gzipped header, then columns that are mapped, not read.

const VERSION = 1;
const COLUMNS = [
  ["start", Float64Array], ["bytes", Float64Array], ["dur", Float32Array],
  ["name", Uint32Array], ["site", Uint32Array], ["note", Uint32Array], ["sort", Uint8Array],
];

/** The scene in these gzipped bytes: runs with lanes with tracks, whose columns are views into one buffer. */
export async function unpack(packed) {
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(plain).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const scene = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  if (scene.version !== VERSION) throw new Error(`this page cannot draw version ${scene.version} of a timeline`);
  let offset = 4 + length;
  const columns = {};
  for (const [name, Kind] of COLUMNS) {
    columns[name] = new Kind(buffer, offset, scene.slices);
    offset += Kind.BYTES_PER_ELEMENT * scene.slices;
  }
  let first = 0;
  for (const run of scene.runs) {
    for (const lane of run.lanes) {
      for (const track of lane.tracks) {
        for (const [name] of COLUMNS) track[name] = columns[name].subarray(first, first + track.count);
        first += track.count;
      }
    }
  }
  return scene;
}

/** The stretch of time that any run of the scene has. */
export function extentOf(scene) {
  return {
    from: Math.min(...scene.runs.map((run) => run.extent[0])),
    to: Math.max(...scene.runs.map((run) => run.extent[1])),
  };
}

/** The stretch that the scene opens on: the longest window of its runs, with a little air. */
export function windowOf(scene) {
  const length = Math.max(...scene.runs.map((run) => run.window));
  return { from: -0.005 * length, to: 1.005 * length };
}
