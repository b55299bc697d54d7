// The agents of the group, every AGENTS_MS; what they have offers the other parts their choices.
import { offerExchanges } from "./exchange.js";
import { showGauges } from "./gauges.js";
import { ask, at, choices, repeat, row, several, size } from "./page.js";
import { offerTracks } from "./tracks.js";
const AGENTS_MS = 2000;
let moved = new Map();

async function agents() {
  const told = await ask("agents"), now = performance.now(), before = moved;
  moved = new Map();
  choices(at("pool"), told.pools);
  offerTracks(told.tracks);
  offerExchanges(told.exchanges);
  showGauges(told);
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
repeat(agents, AGENTS_MS);
