// The text of a document as headings and paragraphs, with an answer and its sentence marked.

import { button, el } from "./dom.js";
import { unitOffsets } from "./offsets.js";

const SHOWN = 40000; // characters that are shown at first, around the answer; more on a click
const BLOCK_END = /\n{2,}/g;
const ITEM = /^\s*([-*•–]|\d{1,3}[.)])\s/; // how a line of a list begins

/**
 * The element that shows a text.
 *
 * document: `text` and `headings`. marked: null, or `answer` and `sentence`, each [start, end) in code points.
 */
export function textView({ text, headings = [] }, marked) {
  const points = [...(marked ? [...marked.answer, ...marked.sentence] : []), ...headings.map((one) => one.at)];
  const units = unitOffsets(text, points);
  const [start, end, first, past] = marked ? units.splice(0, 4) : [-1, -1, -1, -1];
  const levels = new Map(headings.map((one, i) => [units[i], one]));
  const blocks = split(text);
  const view = el("div", { class: "text" });
  const middle = Math.max(0, blocks.findIndex((block) => block.end > start));
  let [low, high] = around(blocks, middle);

  const make = (block) => blockElement(text, block, levels.get(block.start), { start, end, first, past });
  const earlier = button({ class: "more", onclick: () => before() }, "Show the text before this");
  const later = button({ class: "more", onclick: () => after() }, "Show the text after this");

  function before() {
    const [from] = around(blocks, low - 1);
    const height = view.scrollHeight;
    earlier.after(...blocks.slice(from, low).map(make));
    low = from;
    earlier.hidden = low === 0;
    const box = view.closest(".pane");
    if (box) box.scrollTop += view.scrollHeight - height; // what was read stays where it was
  }

  function after() {
    const [, to] = around(blocks, high);
    later.before(...blocks.slice(high, to).map(make));
    high = to;
    later.hidden = high === blocks.length;
  }

  view.append(earlier, ...blocks.slice(low, high).map(make), later);
  earlier.hidden = low === 0;
  later.hidden = high === blocks.length;
  return view;
}

/** The blocks [low, high) around one of them that have about SHOWN characters. */
function around(blocks, middle) {
  let [low, high] = [middle, Math.min(middle + 1, blocks.length)];
  for (let size = 0; size < SHOWN && (low > 0 || high < blocks.length); ) {
    if (low > 0) size += length(blocks[--low]);
    if (high < blocks.length) size += length(blocks[high++]);
  }
  return [low, high];
}

const length = (block) => block.end - block.start;

/** Where paragraphs begin and end. One of more than SHOWN characters is several. */
function split(text) {
  const blocks = [];
  let start = 0;
  const add = (end) => {
    for (; end - start > SHOWN; start += SHOWN) blocks.push({ start, end: start + SHOWN });
    if (end > start) blocks.push({ start, end });
  };
  for (const gap of text.matchAll(BLOCK_END)) {
    add(gap.index);
    start = gap.index + gap[0].length;
  }
  add(text.length);
  return blocks;
}

/** A heading if the block is one as a whole, else a paragraph, or lines such as those of a list or a table. */
function blockElement(text, block, heading, marks) {
  const words = text.slice(block.start, block.end);
  if (heading && words.trim() === heading.title.trim()) {
    return el(`h${Math.min(6, heading.level + 2)}`, { dir: "auto" }, pieces(text, block, marks));
  }
  if (!words.includes("\n")) return el("p", { dir: "auto" }, pieces(text, block, marks));
  return el("div", { class: "lines", dir: "auto" }, lines(text, block, marks));
}

/** Each line of a block; that of a list item has its mark before the others of the item. */
function lines(text, block, marks) {
  const made = [];
  for (let start = block.start; start < block.end; ) {
    const found = text.indexOf("\n", start);
    const end = found < 0 ? block.end : Math.min(found, block.end);
    const item = ITEM.test(text.slice(start, Math.min(end, start + 8)));
    made.push(el("p", { class: item ? "item" : null }, pieces(text, { start, end }, marks)));
    start = end + 1;
  }
  return made;
}

/** The text of a block, cut where the sentence and the answer begin and end. */
function pieces(text, block, { start, end, first, past }) {
  const inside = (at) => at > block.start && at < block.end;
  const places = new Set([block.start, ...[start, end, first, past].filter(inside), block.end]);
  const cuts = [...places].sort((a, b) => a - b);
  return cuts.slice(1).map((to, i) => {
    const from = cuts[i];
    const piece = text.slice(from, to);
    if (from >= start && to <= end) return el("mark", {}, piece);
    return from >= first && to <= past ? el("span", { class: "sentence" }, piece) : piece;
  });
}
