// The box that chooses one document of the folder, or all of them: type to search, arrows and Enter to choose.

import { getJson } from "./api.js";
import { $, counted, el, icon } from "./dom.js";

const SHOWN = 50; // documents that are listed at once
const PAUSE = 120; // milliseconds after a key before the server is asked

/**
 * The box. chosen(document): called with a document, or null for all of them.
 *
 * Gives { set, focus }: set(document) shows one without a call, focus() opens the list.
 */
export function documentBox(chosen) {
  const field = $("document");
  const popup = $("document-popup");
  const list = $("document-list");
  let selected = null;
  let options = []; // what each row of the list stands for
  let active = -1;
  let timer = 0;
  let request = null;

  const size = ({ pages, kind }) => (pages ? counted(pages, "page") : kind);
  const name = (document) => (document ? document.name : "");
  const isOpen = () => !popup.hidden;

  async function search(text) {
    request?.abort();
    request = new AbortController();
    try {
      const found = await getJson(`v1/documents?limit=${SHOWN}&search=${encodeURIComponent(text)}`, request);
      fill(text ? found.documents : [null, ...found.documents]);
      $("document-note").textContent = note(found.documents.length, found.total);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill([]);
      $("document-note").textContent = error.message;
    }
  }

  function note(shown, total) {
    if (total === 0) return "No document has that in its name.";
    return shown < total ? `${shown} of ${counted(total, "document")}. Type to narrow them down.` : "";
  }

  function fill(documents) {
    options = documents;
    list.replaceChildren(...documents.map((document, i) => row(document, i)));
    activate(documents.length ? Math.max(0, documents.findIndex((one) => one?.id === selected?.id)) : -1);
  }

  function row(document, i) {
    const hold = (event) => event.preventDefault(); // the field keeps the focus
    return el(
      "li",
      { role: "option", id: `document-${i}`, "aria-selected": "false", onmousedown: hold, onclick: () => pick(i) },
      icon(document ? "file" : "folder"),
      el("span", { class: "option-name", dir: "auto" }, document ? document.name : "All documents"),
      document ? el("span", { class: "option-size" }, size(document)) : null,
    );
  }

  function activate(number) {
    active = number;
    for (const [i, option] of [...list.children].entries()) option.setAttribute("aria-selected", String(i === number));
    if (number < 0) return field.removeAttribute("aria-activedescendant");
    field.setAttribute("aria-activedescendant", `document-${number}`);
    list.children[number].scrollIntoView({ block: "nearest" });
  }

  function open() {
    if (isOpen()) return;
    popup.hidden = false;
    field.setAttribute("aria-expanded", "true");
    field.select();
    search("");
  }

  function close() {
    clearTimeout(timer);
    request?.abort();
    popup.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
    field.value = name(selected);
  }

  function set(document) {
    selected = document;
    field.value = name(document);
    $("document-clear").hidden = !document;
  }

  function pick(number) {
    set(options[number]);
    close();
    chosen(selected);
  }

  field.addEventListener("click", open);
  field.addEventListener("blur", close);
  field.addEventListener("input", () => {
    open();
    clearTimeout(timer);
    timer = setTimeout(() => search(field.value.trim()), PAUSE);
  });
  field.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps) {
      event.preventDefault();
      if (!isOpen()) return open();
      if (options.length) activate(Math.min(options.length - 1, Math.max(0, active + steps[event.key])));
    } else if (event.key === "Enter") {
      event.preventDefault(); // it does not ask
      if (isOpen() && active >= 0) pick(active);
    } else if (event.key === "Escape" && isOpen()) {
      event.stopPropagation();
      close();
    }
  });
  $("document-clear").addEventListener("click", () => {
    set(null);
    chosen(null);
    field.focus();
  });
  return {
    set,
    focus() {
      field.focus();
      open();
    },
  };
}
