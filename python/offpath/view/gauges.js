// Gauges of programs over time. The page keeps what it has seen since it was opened: a value each time agents are asked.
import { at, colour, number } from "./page.js";
const POINTS_MAX = 300, WIDE = 200, HIGH = 36;
const kept = new Map();

function draw(canvas, points) {
  canvas.width = WIDE; canvas.height = HIGH;
  const context = canvas.getContext("2d");
  const low = Math.min(...points), high = Math.max(...points);
  context.strokeStyle = colour("--fill");
  context.lineWidth = 1.5;
  context.beginPath();
  points.forEach((value, i) => {
    const x = points.length > 1 ? i / (points.length - 1) * WIDE : 0;
    context.lineTo(x, HIGH - 3 - (high > low ? (value - low) / (high - low) : 0.5) * (HIGH - 6));
  });
  context.stroke();
}
export function showGauges({ gauges, gauges_left_out: leftOut }) {
  at("gauges").hidden = gauges.length === 0;
  const names = new Set(gauges.map((each) => each.name));
  for (const name of kept.keys()) if (!names.has(name)) kept.delete(name);
  at("gauge-rows").replaceChildren(...gauges.map((each) => {
    const points = kept.get(each.name) ?? [];
    points.push(each.value);
    if (points.length > POINTS_MAX) points.shift();
    kept.set(each.name, points);
    const made = document.createElement("tr"), picture = document.createElement("canvas");
    const low = Math.min(...points), high = Math.max(...points);
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", `${each.name} from ${number(low)} to ${number(high)}`);
    for (const cell of [each.name, `${number(each.value)} ${each.unit}`, picture, `${number(low)} to ${number(high)}`])
      made.appendChild(document.createElement("td")).append(cell);
    draw(picture, points);
    return made;
  }));
  at("gauges-text").textContent = leftOut ? `${leftOut} more are not shown` : "";
}
