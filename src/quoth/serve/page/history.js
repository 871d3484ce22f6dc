// The questions of this tab. Kept in sessionStorage, not for longer: the same address may serve another folder later.

import { $, button, el, icon, percent } from "./dom.js";

const KEY = "quoth-history";
const KEPT = 50;
let entries = [];
let asked = () => {};

/** Begin. ask(entry): called when a question is to be asked again. */
export function startHistory(ask) {
  asked = ask;
  try {
    entries = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
  } catch {
    entries = [];
  }
  $("history-clear").addEventListener("click", () => {
    entries = [];
    store();
    $("question").focus();
  });
  draw();
}

/**
 * Remember a question, its source and its answer. The same question of the same source is remembered once.
 *
 * A pasted text and a file are not remembered, only that there was one.
 */
export function remember({ question, source, result }) {
  const { kind, id, name } = source;
  const entry = { question, kind, id: id ?? null, name, answer: result.answer, score: result.score };
  entries = [entry, ...entries.filter((one) => !same(one, entry))].slice(0, KEPT);
  store();
}

/** Where the keyboard goes for the history: its first question. */
export function focusHistory() {
  $("history-list").querySelector("button")?.focus();
}

const same = (one, other) => one.question === other.question && one.kind === other.kind && one.id === other.id;

function store() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(entries));
  } catch {
    // it holds until the page is loaded again
  }
  draw();
}

function draw() {
  const within = $("history-list").contains(document.activeElement);
  $("history").hidden = entries.length === 0;
  $("history-list").replaceChildren(...entries.map(row));
  if (within) focusHistory(); // the question that was asked again is the first now
}

function row(entry) {
  const answer = entry.answer === null ? "no answer" : entry.answer;
  return el(
    "li",
    {},
    button(
      { onclick: () => asked(entry) },
      icon("history"),
      el("span", { class: "asked", dir: "auto" }, entry.question),
      el("span", { class: entry.answer === null ? "gave none" : "gave", dir: "auto" }, answer),
      el("span", { class: "of" }, [entry.name ?? "All documents", percent(entry.score)].join(" · ")),
    ),
  );
}
