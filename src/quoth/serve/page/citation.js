// Where an answer stands, in words, and the citation that is copied.

/** A place in words, such as ["handbook.md", "line 14"] or ["report.pdf", "page iv"]. A pasted text has no name. */
export function placeParts({ file, page, label, part, line }) {
  const within = page ? [`page ${label || page}`] : [part, line && `line ${line}`];
  return [file || "pasted text", ...within].filter(Boolean);
}

/** “The sentence.” — file, place, headings. The sentence is as in the document, in one line. */
export function citation(answer) {
  const sentence = answer.sentence.replace(/\s+/g, " ").trim();
  const where = [...placeParts(answer), answer.headings.join(" › ")].filter(Boolean).join(", ");
  return `“${sentence}” — ${where}`;
}

/** Put a text on the clipboard. Without https or loopback, browsers have only the old way. */
export async function copy(text) {
  if (navigator.clipboard && isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // not allowed: the old way
    }
  }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden-text";
  field.setAttribute("aria-hidden", "true");
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus?.();
  return done;
}
