// Keys without a modifier work while nothing is typed. They can be switched off, as WCAG 2.1.4 wants.

import { $, el } from "./dom.js";

const KEY = "quoth-single-keys";

/**
 * Begin. keys: a list of [key, what it does, function]; several keys for one thing are written "j ↓".
 *
 * escape(): Esc outside of dialogs.
 */
export function startShortcuts(keys, escape) {
  const actions = new Map();
  for (const [names, , action] of keys) for (const name of names.split(" ")) actions.set(name, action);
  let on = stored();

  $("keys-list").replaceChildren(
    ...keys.map(([names, does]) => row(names, does)),
    row("↵", "Ask, in the question; choose, in a list"),
    row("Esc", "Stop a question that takes long; leave a field"),
  );
  $("keys-button").addEventListener("click", () => $("keys-dialog").showModal());
  $("keys-on").checked = on;
  $("keys-on").addEventListener("change", () => {
    on = $("keys-on").checked;
    try {
      localStorage.setItem(KEY, on ? "on" : "off");
    } catch {
      // it holds until the page is loaded again
    }
  });

  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") return escape();
    const action = actions.get(event.key === "ArrowDown" ? "↓" : event.key === "ArrowUp" ? "↑" : event.key);
    if (!action || !on || event.ctrlKey || event.metaKey || event.altKey || busyWithKeys(event)) return;
    event.preventDefault();
    action();
  });
}

function row(names, does) {
  const shown = names.split(" ").map((name, i) => [i ? " " : null, el("kbd", {}, name)]);
  return el("div", {}, el("dt", {}, shown), el("dd", {}, does));
}

function stored() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}

/** Whether the focused element takes this key itself: a field all of them, a pane that scrolls the arrows. */
function busyWithKeys({ target, key }) {
  if (target.closest("input:not([type=radio]):not([type=checkbox]), textarea, select")) return true;
  return key.startsWith("Arrow") && !target.closest("#result") && target !== document.body;
}
