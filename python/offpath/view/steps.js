// The newest step of a pool: asked for every POLL_MS, drawn when it or the choice is another one.
import { ask, at, choices, colour, number, onOtherColours, repeat, row } from "./page.js";
const POLL_MS = 500;
const shown = { density: "", distribution: "", columnsOf: "" };

function drawDensity(told) {
  const canvas = at("density"), counts = told.counts, wide = counts.length, high = counts[0].length;
  canvas.width = wide; canvas.height = high;
  const context = canvas.getContext("2d");
  const most = Math.log1p(counts.reduce((high, each) => each.reduce((a, b) => Math.max(a, b), high), 0)) || 1;
  context.fillStyle = colour("--fill");
  for (let i = 0; i < wide; i++) for (let j = 0; j < high; j++) {
    if (!counts[i][j]) continue;
    context.globalAlpha = 0.12 + 0.88 * Math.log1p(counts[i][j]) / most;
    context.fillRect(i, high - 1 - j, 1, 1);
  }
  const [x, y] = told.edges;
  at("density-text").textContent = `step ${told.row}: ${told.counted} of ${told.rows} rows; ` +
    `${at("x").value} from ${number(x[0])} to ${number(x.at(-1))}, ` +
    `${at("y").value} from ${number(y[0])} to ${number(y.at(-1))}; a stronger colour means more rows, by the logarithm`;
}
function drawDistribution(told) {
  const canvas = at("distribution"), counts = told.counts, [edges] = told.edges;
  canvas.width = counts.length * 4; canvas.height = canvas.width * 3 / 4;
  const context = canvas.getContext("2d"), most = counts.reduce((a, b) => Math.max(a, b), 1);
  context.fillStyle = colour("--fill");
  counts.forEach((count, i) => {
    const high = count / most * canvas.height;
    context.fillRect(i * 4, canvas.height - high, 4, high);
  });
  at("distribution-text").textContent = `${at("x").value} from ${number(edges[0])} to ${number(edges.at(-1))}; ` +
    `the highest of ${counts.length} bins has ${most} rows`;
}
async function learnColumns(pool) {
  const { columns } = await ask("columns", { pool });
  const names = columns.filter((each) => each.drawn).map((each) => each.name);
  choices(at("x"), names, "x");
  choices(at("y"), names, names.includes("y") ? "y" : names[1]);
  at("columns").replaceChildren(...columns.map((each) => row([each.name, each.type])));
  if (columns.length) shown.columnsOf = pool;
}
async function follow() {
  const pool = at("pool").value;
  if (!pool) return;
  if (shown.columnsOf !== pool) await learnColumns(pool);
  const [x, y, bins] = [at("x").value, at("y").value, at("bins").value];
  if (!x || !y || shown.columnsOf !== pool) return;
  for (const [kind, second, draw] of [["density", y, drawDensity], ["distribution", "", drawDistribution]]) {
    const choice = JSON.stringify([pool, x, second, bins]);
    const state = shown[kind + "Of"] === choice ? shown[kind] : "";
    const told = await ask("density", { pool, x, y: second, bins, state });
    if (told.counts && pool === at("pool").value && x === at("x").value && y === at("y").value) {
      draw(told);
      shown[kind] = told.state;
      shown[kind + "Of"] = choice;
    }
  }
}
onOtherColours(() => { shown.density = shown.distribution = ""; });
repeat(follow, POLL_MS);
