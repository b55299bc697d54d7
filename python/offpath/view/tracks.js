// Paths of particles through time: lines of one column over another, asked for anew every TRACKS_MS.
import { ask, at, choices, colour, number, onOtherColours, repeat } from "./page.js";
const TRACKS_MS = 2000, WIDE = 640, HIGH = 480, COLOURS = 8;
let columnsOf = "", drawn = null;

export function offerTracks(names) {
  at("tracks").hidden = names.length === 0;
  choices(at("tracks-pool"), names);
}
function extent(paths, axis) {
  let low = Infinity, high = -Infinity;
  for (const path of paths) for (const value of path[axis]) {
    if (value === null) continue;
    low = Math.min(low, value); high = Math.max(high, value);
  }
  return low <= high ? [low, high] : null;
}
function draw(told) {
  const canvas = at("tracks-picture"), context = canvas.getContext("2d");
  canvas.width = WIDE; canvas.height = HIGH;
  const across = extent(told.paths, "x"), upward = extent(told.paths, "y");
  at("tracks-legend").replaceChildren();
  if (!across || !upward) {
    at("tracks-text").textContent = "none of these identifiers has a track yet";
    return;
  }
  const place = (value, [low, high], length) => 4 + (high > low ? (value - low) / (high - low) : 0.5) * (length - 8);
  told.paths.forEach((path, i) => {
    const stroke = colour(`--line${i % COLOURS}`);
    context.strokeStyle = context.fillStyle = stroke;
    context.lineWidth = 2;
    context.beginPath();
    let begun = false;
    path.x.forEach((x, at) => {
      const y = path.y[at];
      if (x === null || y === null) { begun = false; return; }
      const to = [place(x, across, WIDE), HIGH - place(y, upward, HIGH)];
      if (begun) context.lineTo(...to); else { context.moveTo(...to); context.fillRect(to[0] - 2, to[1] - 2, 4, 4); }
      begun = true;
    });
    context.stroke();
    const name = at("tracks-legend").appendChild(document.createElement("span"));
    name.textContent = `${path.id} (${path.rows} steps)`;
    name.style.color = stroke;
  });
  at("tracks-text").textContent = `${told.axes[0]} from ${number(across[0])} to ${number(across[1])}, ` +
    `${told.axes[1]} from ${number(upward[0])} to ${number(upward[1])}` +
    (told.paths.some((path) => path.x.length < path.rows) ? "; long tracks are thinned out" : "");
}
async function learnColumns(name) {
  const told = await ask("track-columns", { tracks: name });
  choices(at("tracks-x"), ["step", ...told.columns], "step");
  choices(at("tracks-y"), ["step", ...told.columns], told.columns.includes("x") ? "x" : told.columns[0]);
  at("tracks-ids").value = told.examples.join(" ");
  if (told.columns.length) columnsOf = name;
}
async function follow() {
  const name = at("tracks-pool").value;
  if (!name) return;
  if (columnsOf !== name) await learnColumns(name);
  const [ids, x, y] = [at("tracks-ids").value.trim(), at("tracks-x").value, at("tracks-y").value];
  if (!ids || !x || !y || columnsOf !== name) return;
  const told = await ask("paths", { tracks: name, ids, x, y });
  draw(drawn = { ...told, axes: [x, y] });
}
onOtherColours(() => { if (drawn) draw(drawn); });
repeat(follow, TRACKS_MS);
