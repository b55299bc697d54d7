"use strict";
// Asks for the newest step every POLL_MS, and draws it when it is another one. One request of each kind at a time.
const POLL_MS = 500, AGENTS_MS = 2000;
const at = (id) => document.getElementById(id);
const shown = { density: "", distribution: "", columnsOf: "" };
let moved = new Map();

async function ask(name, fields = {}) {
  const answer = await fetch(`${name}?${new URLSearchParams(fields)}`);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}
function complain(error) {
  at("alarm").hidden = !error;
  at("alarm").textContent = error ? error.message : "";
}
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit++; }
  return `${bytes.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}
function number(value) { return Number(value.toPrecision(4)).toString(); }
function several(count, name) { return `${count} ${name}${count === 1 ? "" : "s"}`; }
function row(cells) {
  const made = document.createElement("tr");
  for (const cell of cells) {
    const place = made.appendChild(document.createElement("td"));
    place.append(cell);
  }
  return made;
}
function choices(select, names, wanted) {
  const before = select.value;
  const same = select.options.length === names.length && names.every((name, i) => select.options[i].value === name);
  if (same) return;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  select.value = names.includes(before) ? before : (names.includes(wanted) ? wanted : names[0] ?? "");
}
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

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
  if (pool) {
    if (shown.columnsOf !== pool) await learnColumns(pool);
    const [x, y, bins] = [at("x").value, at("y").value, at("bins").value];
    if (x && y && shown.columnsOf === pool) {
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
  }
}
async function agents() {
  const told = await ask("agents"), now = performance.now(), before = moved;
  moved = new Map();
  choices(at("pool"), told.pools);
  at("about").textContent = `${several(told.members.length, "agent")}, ${several(told.pools.length, "pool")}`;
  at("agents").replaceChildren(...told.members.map((each) => {
    if (!each.answers) return row([each.name, each.state, "-", "", "-", "-"]);
    const key = `${each.name}/${each.pid}`, old = before.get(key);
    moved.set(key, [now, each.moved_bytes]);
    const bar = document.createElement("progress");
    bar.max = each.bytes_max; bar.value = each.used_bytes;
    bar.setAttribute("aria-label", `memory of ${each.name}`);
    const rate = old ? `${size((each.moved_bytes - old[1]) / (now - old[0]) * 1000)}/s` : "-";
    const waits = each.waiting ? `${each.waiting} streams, ${each.longest_wait_s.toFixed(1)} s` : "none";
    return row([each.name, each.state, `${size(each.used_bytes)} of ${size(each.bytes_max)}`, bar, rate, waits]);
  }));
}
async function repeat(work, every, failed) {
  for (;;) {
    try { await work(); failed.error = null; } catch (error) { failed.error = error; }
    complain(problems.map((each) => each.error).find(Boolean));
    await new Promise((done) => setTimeout(done, every));
  }
}
const problems = [{}, {}];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  shown.density = shown.distribution = "";
});
repeat(agents, AGENTS_MS, problems[0]);
repeat(follow, POLL_MS, problems[1]);
