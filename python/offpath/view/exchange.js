// The newest view of an exchange as a heat map: a row for each member, a column for each field, shades by column.
import { ask, at, choices, colour, number, onOtherColours, repeat, row } from "./page.js";
const EXCHANGE_MS = 1000;
let drawn = null;

export function offerExchanges(names) {
  at("exchanges").hidden = names.length === 0;
  choices(at("exchange"), names);
}
function draw(told) {
  at("exchange-text").textContent = told.epoch === null ? "no round has ended yet" :
    `round ${told.epoch}: ${told.present} of ${told.expected} members; a stronger colour means a larger value of its column`;
  const fields = told.fields.map((each) => each.unit ? `${each.name} (${each.unit})` : each.name);
  at("exchange-head").replaceChildren(row(["member", ...fields], "th"));
  const ranges = told.fields.map((_, i) => {
    const values = told.members.map((each) => each.values[i]).filter((value) => value !== null);
    return [Math.min(...values), Math.max(...values)];
  });
  const fill = colour("--fill");
  at("exchange-rows").replaceChildren(...told.members.map((each) => {
    const made = row([each.name, ...each.values.map((value) => value === null ? "–" : number(value))]);
    if (!each.present) made.className = "absent";
    each.values.forEach((value, i) => {
      if (value === null) return;
      const [low, high] = ranges[i], share = high > low ? (value - low) / (high - low) : 0;
      made.children[i + 1].style.background = `color-mix(in srgb, ${fill} ${Math.round(share * 70)}%, transparent)`;
    });
    return made;
  }));
}
async function follow() {
  const name = at("exchange").value;
  if (name) draw(drawn = await ask("exchange", { name }));
}
onOtherColours(() => { if (drawn) draw(drawn); });
repeat(follow, EXCHANGE_MS);
