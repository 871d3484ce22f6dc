// The document beside the answers: its text or, of a PDF, its pages; the answer is marked in place.

import { call, getJson } from "./api.js";
import { $, button, counted, el, icon } from "./dom.js";
import { textView } from "./text.js";

const kept = new Map(); // documents of the server by id
const KEPT = 8;
const WIDEST = 2000; // pixels of a page that the server draws
const SLOW = 300; // milliseconds without a word about waiting
const INVITATION = `Ask a question. The answer is a quotation, shown here where it stands.
  If the documents do not have one, Quoth says so.`;
const HINTS = [["/", "question"], ["↵", "ask"], ["?", "all shortcuts"]];
let shown = { source: null, document: null, answer: null, page: 1, view: "page" };
let turn = 0; // of what is shown; an older one that comes late is left out
let picture = null; // the address of the page image in memory

/** What stands there before anything is chosen. */
export function showEmpty() {
  turn += 1;
  shown = { ...shown, source: null, document: null, answer: null };
  $("viewer").replaceChildren(
    el(
      "div",
      { class: "empty" },
      icon("quote", "fill"),
      el("h2", {}, "Answers in the words of your documents"),
      el("p", {}, INVITATION),
      el("p", { class: "hints" }, HINTS.map(([key, does]) => el("span", {}, el("kbd", {}, key), ` ${does}`))),
    ),
  );
}

/**
 * Show a document, at an answer if there is one.
 *
 * source: { text } for a text of this tab, or { id } for a document of the server.
 * weakly: it is marked as one that the reader did not give.
 */
export async function show(source, answer = null, weakly = false) {
  const mine = ++turn;
  const slow = noteIfSlow("Opening the document …");
  try {
    const document = source.id ? await fetched(source.id) : { name: "Your text", text: source.text, kind: "text" };
    if (mine !== turn) return;
    shown = { ...shown, source, document, answer, page: answer?.page ?? 1 };
    $("viewer").classList.toggle("weakly", weakly);
    draw();
  } catch (error) {
    if (mine === turn) pane(note(`The document cannot be shown. ${error.message}`));
  } finally {
    clearTimeout(slow);
  }
}

/** Documents may have changed since they were fetched. */
export function forget() {
  kept.clear();
}

/** Go some pages on or back. */
export function turnPage(by) {
  const page = shown.page + by;
  if (!paged() || page < 1 || page > shown.document.pages) return;
  shown.page = page;
  draw();
}

async function fetched(id) {
  if (!kept.has(id)) {
    const document = await getJson(`v1/documents/${encodeURIComponent(id)}`);
    if (kept.size >= KEPT) kept.delete(kept.keys().next().value);
    kept.set(id, document);
  }
  return kept.get(id);
}

const paged = () => Boolean(shown.document?.pages);

function draw() {
  if (paged() && shown.view === "page") drawPage();
  else pane(textView(shown.document, marked(shown.answer)));
}

/** Where the answer and its sentence stand in the text, in code points. */
function marked(answer) {
  if (!answer) return null;
  const { text_start: start, text_end: end, in_sentence: within } = answer;
  const first = start - within[0];
  return { answer: [start, end], sentence: [first, first + [...answer.sentence].length] };
}

/** A page of a PDF. What is shown stays until it has come. */
async function drawPage() {
  const mine = ++turn;
  const { document, page, answer } = shown;
  const here = answer?.page === page ? answer : null;
  const slow = noteIfSlow(`Opening page ${page} …`);
  try {
    const width = Math.min(WIDEST, Math.ceil($("viewer").clientWidth * Math.min(2, devicePixelRatio)));
    const path = `v1/documents/${encodeURIComponent(document.id)}/pages/${page}.png?width=${width}`;
    const blob = await (await call(path)).blob();
    if (mine !== turn) return;
    if (picture) URL.revokeObjectURL(picture);
    picture = URL.createObjectURL(blob);
    const words = here ? `. Marked: ${here.answer}` : "";
    const image = el("img", { src: picture, alt: `Page ${page} of ${document.name}${words}` });
    await image.decode();
    if (mine === turn) pane(el("div", { class: "sheet" }, image, here ? marks(here) : null));
  } catch (error) {
    if (mine === turn) pane(note(`The page cannot be shown. ${error.message}`));
  } finally {
    clearTimeout(slow);
  }
}

/** Say what is waited for, if it takes long. The timer is cleared when it has come. */
function noteIfSlow(text) {
  const mine = turn;
  return setTimeout(() => mine === turn && pane(note(text)), SLOW);
}

const note = (text) => el("p", { class: "note" }, text);

/** The boxes over a page. Fractions of it, from the upper left corner. */
function marks(answer) {
  return answer.page_boxes.map(([x0, y0, x1, y1]) => {
    const box = el("div", { class: "box" });
    const size = { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
    for (const [side, value] of Object.entries(size)) box.style[side] = `${value * 100}%`;
    return box;
  });
}

/** The header, and below it a pane that scrolls. The focus stays on the control that it was on. */
function pane(content) {
  const viewer = $("viewer");
  const focused = viewer.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const box = el("div", { class: "pane", tabindex: "0", role: "region", "aria-label": "The document itself" }, content);
  viewer.replaceChildren(...(shown.document ? [head(shown.document)] : []), box);
  reveal();
  if (focused === null) return;
  const same = [...viewer.querySelectorAll("button:enabled")].find((one) => nameOf(one) === focused);
  (same ?? box).focus({ preventScroll: true });
}

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

function head(document) {
  return el(
    "header",
    { class: "viewer-head" },
    el(
      "div",
      { class: "name" },
      icon(document.kind === "text" && !document.id ? "text" : "file"),
      el("h2", { dir: "auto" }, document.name),
      el("p", {}, [document.title !== document.name && document.title, size(document)].filter(Boolean).join(" · ")),
    ),
    paged() && shown.view === "page" ? pager(document) : null,
    paged() ? switcher() : null,
  );
}

function size({ pages, text }) {
  return pages ? counted(pages, "page") : counted([...text].length, "character");
}

function pager(document) {
  const step = (by, name, sign) => {
    const past = shown.page + by < 1 || shown.page + by > document.pages;
    return button({ class: "square", "aria-label": name, disabled: past, onclick: () => turnPage(by) }, icon(sign));
  };
  const number = el("span", {}, `${shown.page} / ${document.pages}`);
  return el("div", { class: "pager" }, step(-1, "Page before", "left"), number, step(1, "Page after", "right"));
}

function switcher() {
  const choose = (view) => {
    shown.view = view;
    draw();
  };
  const one = (view, name) =>
    button({ "aria-pressed": String(shown.view === view), onclick: () => choose(view) }, name);
  return el("div", { class: "switch", role: "group", "aria-label": "View" }, one("page", "Page"), one("text", "Text"));
}

/** Scroll the pane, not the window, to the answer. */
function reveal() {
  const box = $("viewer").querySelector(".pane");
  const mark = box?.querySelector("mark, .box");
  if (!mark) return;
  const away = mark.getBoundingClientRect().top - box.getBoundingClientRect().top;
  box.scrollTop += away - box.clientHeight / 3;
}
