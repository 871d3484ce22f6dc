// The dialog that asks for the server's token. Several calls that need it wait for one dialog.

import { $ } from "./dom.js";

let waiting = null;

/** The token that the user types, null if the dialog is closed. refused: the last one was wrong. */
export function askForToken(refused) {
  waiting ??= new Promise((resolve) => show(refused, resolve)).finally(() => {
    waiting = null;
  });
  return waiting;
}

function show(refused, resolve) {
  const dialog = $("token-dialog");
  const field = $("token");
  let given = null;
  $("token-title").textContent = refused ? "That token is not the right one" : "This server asks for a token";
  field.value = "";
  $("token-form").onsubmit = (event) => {
    event.preventDefault();
    given = field.value.trim();
    if (given) dialog.close();
  };
  $("token-cancel").onclick = () => dialog.close();
  dialog.onclose = () => resolve(given || null);
  dialog.showModal();
  field.focus();
}
