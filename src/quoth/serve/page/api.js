// Calls to the server: the token, errors in one kind sentence, patience while it is busy.

import { askForToken } from "./token.js";

const TOKEN = "quoth-token";
const PATIENCE = 4; // times that a busy server is asked again
const LONGEST = 10; // seconds between two of them

/**
 * Call the server and give the response, which is a good one. An error has words for a user.
 *
 * path: such as "v1/ask", relative to the page, so that it works behind a proxy under any prefix.
 * json, body: what is sent, as JSON or as it is. waiting(seconds): called before a pause if the server is busy.
 * patience: how often a busy server is asked again.
 */
export async function call(path, { method, json, body, signal, waiting, patience = PATIENCE } = {}) {
  let refused = false;
  for (let busy = 0; ; ) {
    const response = await send(path, { method, json, body, signal });
    if (response.ok) return response;
    if (response.status === 401) {
      const token = await askForToken(refused);
      if (token === null) throw new Error("This server answers only with its token.");
      refused = true;
      sessionStorage.setItem(TOKEN, token);
    } else if ((response.status === 429 || response.status === 503) && busy < patience) {
      busy += 1;
      const asked = Number(response.headers.get("Retry-After"));
      const seconds = Math.min(LONGEST, Math.max(1, Number.isFinite(asked) ? asked : 1));
      waiting?.(seconds);
      await pause(seconds, signal);
    } else {
      throw new Error(await problem(response));
    }
  }
}

export async function getJson(path, options) {
  return (await call(path, options)).json();
}

async function send(path, { method, json, body, signal }) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (json !== undefined) headers["Content-Type"] = "application/json";
  else if (body !== undefined) headers["Content-Type"] = "application/octet-stream";
  const sent = json === undefined ? body : JSON.stringify(json);
  try {
    return await fetch(new URL(path, document.baseURI), {
      method: method ?? (sent === undefined ? "GET" : "POST"),
      headers,
      body: sent,
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
}

/** The sentence that the server gives, or one for the status. */
async function problem(response) {
  try {
    const { message } = (await response.json()).error;
    return `${message[0].toUpperCase()}${message.slice(1)}${/[.!?]$/.test(message) ? "" : "."}`;
  } catch {
    // not an error of ours: a proxy, perhaps
  }
  if (response.status === 413) return "That is more than this server takes.";
  if (response.status === 429 || response.status === 503) return "The server is busy. Try again in a moment.";
  return `The server could not do that (status ${response.status}).`;
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    });
  });
}
