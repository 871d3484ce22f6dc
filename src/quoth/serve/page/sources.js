// What a question is asked of: the folder, one document of it, a pasted text, a file.

import { getJson } from "./api.js";
import { $, announce, counted, el, icon } from "./dom.js";
import { documentBox } from "./documents.js";

const KINDS = ["documents", "text", "file"];
let chosen = { kind: "documents", document: null }; // document: null for the whole folder
let file = null; // the file that the server holds: { id, name, pages }
let changed = () => {};
let box = null;

/** Begin. change(source): called whenever another document, text or file is chosen. */
export function startSources(change) {
  changed = change;
  box = documentBox((document) => {
    chosen.document = document;
    changed(source());
  });
  for (const radio of document.querySelectorAll("input[name=source]")) {
    radio.addEventListener("change", () => useKind(radio.value));
  }
  $("text").addEventListener("change", () => changed(source()));
  $("file-button").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => $("file").files[0] && send($("file").files[0]));
  listenForDrops();
}

/**
 * What is asked now: { kind, id, name, text }.
 *
 * id is of a document of the server, text a pasted one; neither means the whole folder. ready is false if there is
 * nothing to ask yet.
 */
export function source() {
  const { kind, document } = chosen;
  if (kind === "text") return { kind, name: "Your text", text: $("text").value, ready: $("text").value.trim() !== "" };
  const one = kind === "file" ? file : document;
  return { kind, id: one?.id ?? null, name: one?.name ?? null, ready: kind !== "file" || file !== null };
}

/** Show one of the three. */
export function useKind(kind, focus = false) {
  chosen.kind = kind;
  document.querySelector(`input[name=source][value=${kind}]`).checked = true;
  for (const one of KINDS) $(`${one}-panel`).hidden = one !== kind;
  if (focus) ({ documents: box.focus, text: () => $("text").focus(), file: () => $("file-button").focus() })[kind]();
  changed(source());
}

/** Choose a document of the folder, or all with null. */
export function useDocument(document) {
  chosen.document = document;
  box.set(document);
  useKind("documents");
}

/** The server has no folder, or an empty one: only texts and files can be asked. */
export function withoutFolder() {
  $("documents-choice").hidden = true;
  if (chosen.kind === "documents") useKind("text");
}

/** What there is to say if there is nothing to ask yet. */
export function whatIsMissing() {
  if (chosen.kind === "text") {
    $("text").focus();
    return "Paste a text first: the question is asked of it.";
  }
  $("file-button").focus();
  return "Choose a file first, or drop one on the page.";
}

async function send(dropped) {
  useKind("file");
  const told = $("drop-text");
  $("drop").classList.remove("failed", "held");
  $("drop").classList.add("busy");
  told.replaceChildren(el("strong", { dir: "auto" }, `Reading ${dropped.name} …`));
  announce(`Reading ${dropped.name}`);
  try {
    const held = await getJson(`v1/files?name=${encodeURIComponent(dropped.name)}`, { body: dropped });
    file = { ...held, id: held.document };
    $("drop").classList.add("held");
    told.replaceChildren(el("strong", { dir: "auto" }, file.name), el("span", {}, described(held)));
    $("file-button").textContent = "Choose another file";
    announce(`${file.name} is ready for questions`);
    changed(source());
    $("question").focus();
  } catch (error) {
    file = null;
    $("drop").classList.add("failed");
    told.replaceChildren(el("strong", {}, "This file was not read"), el("span", { dir: "auto" }, error.message));
    announce(`This file was not read. ${error.message}`);
    changed(source());
  } finally {
    $("drop").classList.remove("busy");
    $("file").value = "";
  }
}

function described(held) {
  const size = held.pages ? counted(held.pages, "page") : counted(held.characters ?? 0, "character");
  return [size, "kept in memory for a while", ...(held.notes ?? [])].join(" · ");
}

/** Files may be dropped anywhere. */
function listenForDrops() {
  let inside = 0;
  const files = (event) => event.dataTransfer?.types.includes("Files");
  const cover = (over) => {
    inside = over;
    $("drop-cover").hidden = inside <= 0;
  };
  addEventListener("dragenter", (event) => files(event) && cover(inside + 1));
  addEventListener("dragleave", (event) => files(event) && cover(inside - 1));
  addEventListener("dragover", (event) => files(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!files(event)) return;
    event.preventDefault();
    cover(0);
    if (event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
  });
}
