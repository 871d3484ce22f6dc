// What a question gave: answers, best first, or an honest "no answer" with the best candidate.

import { citation, copy, placeParts } from "./citation.js";
import { $, announce, button, counted, el, icon, percent } from "./dom.js";
import { cut } from "./offsets.js";

const NEAR = 50; // characters before an answer that are shown in any case

let items = []; // { answer, rejected, element }, in the order shown
let current = -1;
let opened = () => {};

/** Call `open(answer, rejected)` when one of the answers is chosen. */
export function onOpen(open) {
  opened = open;
}

/** The answer that is chosen, or null. */
export const chosen = () => items[current]?.answer ?? null;

/**
 * Show a result of /v1/ask. weak: whether weak answers are among them.
 *
 * showWeak(): called when the user wants to see them.
 */
export function showResult(result, { milliseconds, weak, showWeak }) {
  items = [];
  current = -1;
  const groups = result.no_answer ? (result.rejected ? [result.rejected] : []) : result.answers;
  const list = el("ol", { class: "answers" }, groups.map((group, i) => groupElement(group, i, result.no_answer)));
  $("result").replaceChildren(
    result.no_answer ? abstention(result) : el("h2", { class: "hidden-text" }, "Answers"),
    groups.length ? list : "",
    el("p", { class: "foot" }, footer(result, milliseconds, weak, showWeak)),
  );
  announce(summary(result, groups));
  if (items.length) choose(0);
}

/** Go to the next answer or to the one before. */
export function move(by) {
  const next = Math.min(items.length - 1, Math.max(0, current + by));
  if (next === current || !items.length) return;
  choose(next);
  focusAnswer();
  items[next].element.scrollIntoView({ block: "nearest" });
}

/** Put the focus on the chosen answer, or on the question if there is none. */
export function focusAnswer() {
  (items[current]?.element.querySelector(".show") ?? $("question")).focus({ preventScroll: true });
}

/** Copy the citation of the chosen answer. */
export function copyCitation() {
  items[current]?.element.querySelector(".cite")?.click();
}

/** Empty the place of the answers, or put something else there. */
export function showInstead(...content) {
  items = [];
  current = -1;
  $("result").replaceChildren(...content);
}

function choose(number) {
  for (const [i, { element }] of items.entries()) {
    const here = i === number;
    element.classList.toggle("chosen", here);
    element.querySelector(".show").setAttribute("aria-pressed", String(here));
    element.querySelector(".actions").hidden = !here;
  }
  current = number;
  opened(items[number].answer, items[number].rejected);
}

function abstention(result) {
  const score = el("strong", {}, percent(result.score));
  return el(
    "div",
    { class: "abstention" },
    el("h2", {}, "No answer found"),
    el("p", {}, "The probability that what was read does not hold the answer is ", score, "."),
    result.rejected ? el("p", { class: "label" }, "The best candidate, not given as an answer") : null,
  );
}

/** An answer and all its places; the first answer is the large one. */
function groupElement(group, number, rejected) {
  const places = group.places ?? [group];
  return el(
    "li",
    { class: `group ${number === 0 ? "first" : ""} ${rejected ? "rejected" : ""}` },
    places.map((place, i) => placeElement(place, i === 0, places.length, rejected)),
  );
}

function placeElement(answer, best, places, rejected) {
  const number = items.length;
  const [before, words, after] = cut(answer.sentence, ...answer.in_sentence);
  const count = places > 1 ? el("span", { class: "count" }, ` ${counted(places, "place")}`) : null;
  const show = button(
    { class: "show", "aria-pressed": "false", onclick: () => choose(number) },
    best ? el("span", { class: "head" }, el("span", { class: "words", dir: "auto" }, answer.answer), count) : null,
    score(answer.score),
    el("span", { class: "quote", dir: "auto" }, begun(before), el("mark", {}, words), after),
    where(answer),
  );
  const element = el("div", { class: best ? "answer best" : "answer" }, show, actions(answer));
  items.push({ answer, rejected, element });
  return element;
}

/** What stands before the answer in its sentence. If that is long, only the end is shown until the answer is chosen. */
function begun(before) {
  const cutAt = before.length > NEAR ? before.indexOf(" ", before.length - NEAR) + 1 : 0;
  if (!cutAt) return before;
  return [el("span", { class: "far" }, before.slice(0, cutAt)), el("span", { class: "dots" }, "… "), before.slice(cutAt)];
}

function score(probability) {
  const bar = el("span", { class: "bar-fill" });
  bar.style.width = `${probability * 100}%`;
  return el(
    "span",
    { class: "score", title: "Probability that this is right" },
    el("span", { class: "bar-line", "aria-hidden": "true" }, bar),
    el("span", {}, percent(probability)),
    el("span", { class: "hidden-text" }, " probability of being right"),
  );
}

function where(answer) {
  return el(
    "span",
    { class: "where", dir: "auto" },
    placeParts(answer).map((part, i) => [i ? " · " : null, el("span", { class: i ? "" : "file" }, part)]),
    answer.headings.length ? el("span", { class: "headings" }, answer.headings.join(" › ")) : null,
  );
}

function actions(answer) {
  return el(
    "div",
    { class: "actions", hidden: true },
    copyButton("Copy citation", "cite", "cite", () => citation(answer)),
    copyButton("Copy answer", "copy", "", () => answer.answer),
    button({ class: "quiet narrow", onclick: showDocument }, icon("down"), "Show in the document"),
  );
}

function showDocument() {
  $("viewer").scrollIntoView();
}

function copyButton(name, sign, extra, text) {
  const label = el("span", {}, name);
  const made = button({ class: `quiet ${extra}`, onclick: press }, icon(sign), label);
  async function press() {
    const done = await copy(text());
    label.textContent = done ? "Copied" : "Not allowed by the browser";
    made.classList.toggle("done", done);
    announce(label.textContent);
    setTimeout(() => {
      label.textContent = name;
      made.classList.remove("done");
    }, 1600);
  }
  return made;
}

function footer(result, milliseconds, weak, showWeak) {
  const read = result.passages
    ? `Read ${result.read.toLocaleString("en")} of ${counted(result.passages, "passage")} in ${seconds(milliseconds)}.`
    : "";
  const more = weak ? null : button({ class: "quiet", onclick: showWeak }, "Show weak answers too");
  return [el("span", {}, read), more];
}

function seconds(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

function summary(result, groups) {
  if (result.no_answer) return `No answer found, probability ${percent(result.score)}.`;
  const others = groups.length > 1 ? ` ${counted(groups.length - 1, "other answer")}.` : "";
  return `Answer: ${result.answer}, ${percent(result.score)}, ${placeParts(groups[0]).join(", ")}.${others}`;
}
