// What the parts of the page share: asking the server, words for numbers, rows of tables, choices, and repetition.
export const at = (id) => document.getElementById(id);

export async function ask(name, fields = {}) {
  const answer = await fetch(`${name}?${new URLSearchParams(fields)}`);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit++; }
  return `${bytes.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}
export function number(value) { return Number(value.toPrecision(4)).toString(); }
export function several(count, name) { return `${count} ${name}${count === 1 ? "" : "s"}`; }
export function row(cells, kind = "td") {
  const made = document.createElement("tr");
  for (const cell of cells) {
    const place = made.appendChild(document.createElement(kind));
    place.append(cell);
  }
  return made;
}
export function choices(select, names, wanted) {
  const before = select.value;
  const same = select.options.length === names.length && names.every((name, i) => select.options[i].value === name);
  if (same) return;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  select.value = names.includes(before) ? before : (names.includes(wanted) ? wanted : names[0] ?? "");
}
export function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
export function onOtherColours(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

const problems = [];
function complain() {
  const error = problems.map((each) => each.error).find(Boolean);
  at("alarm").hidden = !error;
  at("alarm").textContent = error ? error.message : "";
}
// One request of each kind at a time. A failure stays on the page until the same work succeeds.
export async function repeat(work, every) {
  const problem = {};
  problems.push(problem);
  for (;;) {
    try { await work(); problem.error = null; } catch (error) { problem.error = error; }
    complain();
    await new Promise((done) => setTimeout(done, every));
  }
}
