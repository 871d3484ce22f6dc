// The page: a question goes to the server, the answers and their place in the document come back.

import { copyCitation, focusAnswer, move, onOpen, showInstead, showResult } from "./answers.js";
import { getJson } from "./api.js";
import { $, announce, button, counted, el } from "./dom.js";
import { focusHistory, remember, startHistory } from "./history.js";
import { startShortcuts } from "./shortcuts.js";
import { source, startSources, useDocument, useKind, whatIsMissing, withoutFolder } from "./sources.js";
import { forget, show, showEmpty, turnPage } from "./viewer.js";

const WEAK = 0.01; // the least probability of weak answers …
const MOST = 20; // … and how many of them are shown
let running = null; // the AbortController of the question that is being answered

/** Ask what stands in the form. weak: answers that the reader would not give are wanted, too. */
async function ask(weak = false) {
  const question = $("question").value.trim();
  if (!question) return $("question").focus();
  const from = source();
  if (!from.ready) return showProblem(whatIsMissing());
  running?.abort();
  const mine = (running = new AbortController());
  const within = $("result").contains(document.activeElement); // a button there, which goes away
  showWaiting();
  const began = performance.now();
  try {
    const json = { question, all: true };
    if (from.text) json.context = from.text;
    if (from.id) json.document = from.id;
    if (weak) Object.assign(json, { min_score: WEAK, top: MOST });
    const waiting = (seconds) => showWaiting(`The server is busy. Asking again in ${counted(seconds, "second")} …`);
    const result = await getJson("v1/ask", { json, signal: mine.signal, waiting });
    if (mine !== running) return;
    forget();
    onOpen((answer, weakly) => show(from.text ? from : { id: answer.document }, answer, weakly));
    if (result.no_answer && !result.rejected) sourceChanged(from);
    showResult(result, { milliseconds: performance.now() - began, weak, showWeak: () => ask(true) });
    if (within) focusAnswer();
    if (!weak) remember({ question, source: from, result });
  } catch (error) {
    if (mine !== running) return;
    sourceChanged(from); // no mark of another question stays
    if (error.name === "AbortError") showInstead();
    else showProblem(error.message, () => ask(weak));
  } finally {
    if (mine === running) {
      running = null;
      document.body.classList.remove("asking");
    }
  }
}

function showWaiting(text = "Reading …") {
  document.body.classList.add("asking");
  announce(text);
  const words = el("p", {}, text, " ", button({ class: "quiet", onclick: stop }, "Stop"));
  showInstead(el("div", { class: "waiting" }, el("div", { class: "line" }), words));
}

function showProblem(message, again = null) {
  showInstead(
    el(
      "div",
      { class: "problem", role: "alert" },
      el("h2", {}, again ? "That did not work" : "One thing is missing"),
      el("p", {}, message),
      again ? button({ onclick: again }, "Try again") : null,
    ),
  );
}

function stop() {
  running?.abort();
}

/** Show the source without a mark: what was shown belongs to another source or question. */
function sourceChanged(from) {
  if (from.id || from.text) show(from);
  else showEmpty();
}

function askAgain(entry) {
  $("question").value = entry.question;
  if (entry.kind === "documents") useDocument(entry.id ? { id: entry.id, name: entry.name } : null);
  else useKind(entry.kind);
  ask();
}

function escape() {
  if (running) stop();
  else document.activeElement?.blur();
}

/** How many documents there are. A server that has just been started may still read them. */
async function greet() {
  try {
    const waiting = () => ($("served").textContent = "starting …");
    const { total } = await getJson("v1/documents?limit=1", { waiting, patience: Infinity });
    $("served").textContent = counted(total, "document");
    $("document").placeholder = `All ${counted(total, "document")}`;
    if (total === 0) withoutFolder();
  } catch (error) {
    showProblem(error.message, () => location.reload());
  }
}

startSources(sourceChanged);
startHistory(askAgain);
startShortcuts(
  [
    ["/", "Go to the question", () => $("question").select()],
    ["d", "Choose a document", () => useKind("documents", true)],
    ["t", "Paste a text", () => useKind("text", true)],
    ["f", "Choose a file", () => useKind("file", true)],
    ["j ↓", "Next answer", () => move(1)],
    ["k ↑", "Answer before", () => move(-1)],
    ["c", "Copy the citation", copyCitation],
    ["n", "Next page of a PDF", () => turnPage(1)],
    ["p", "Page before", () => turnPage(-1)],
    ["h", "Questions asked before", focusHistory],
    ["?", "These shortcuts", () => $("keys-dialog").showModal()],
  ],
  escape,
);
$("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
});
showEmpty();
greet();
$("question").focus();
