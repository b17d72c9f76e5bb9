// What the explorer's pages gain by a script: the next page is added in place, and changes are shown as they come.
// Invariant: what is stored reaches the page as text, never as markup.
"use strict";

// ---- the next page, in place ----

async function addNextPage(link) {
  const list = link.closest("[data-page]");
  const answer = await fetch(link.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(String(answer.status));
  const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-page]");
  const rows = [...next.querySelector("[data-rows]").children];
  list.querySelector("[data-rows]").append(...rows);
  list.querySelector("[data-more]").replaceWith(next.querySelector("[data-more]"));
  rows[0]?.querySelector("a")?.focus();
}

document.addEventListener("click", (click) => {
  const link = click.target.closest?.("[data-page] a[rel=next]");
  if (!link || click.button || click.ctrlKey || click.metaKey || click.shiftKey) return;
  click.preventDefault();
  addNextPage(link).catch(() => location.assign(link.href));
});

// ---- live changes ----

const ROWS_MAX = 500;

function follow(view) {
  const status = view.querySelector("[data-status]");
  const table = view.querySelector("[data-changes]");
  const button = view.querySelector("[data-pause]");
  let source = null;
  let last = "";

  function add(cells, href) {
    const row = table.insertRow(0);
    cells.forEach((text, place) => {
      const cell = row.insertCell();
      const code = document.createElement(place === 2 ? "code" : "span");
      code.textContent = text;
      if (place === 2 && href) {
        const link = document.createElement("a");
        link.href = href;
        link.append(code);
        cell.append(link);
      } else {
        cell.append(code);
      }
    });
    while (table.rows.length > ROWS_MAX) table.deleteRow(-1);
  }

  function keep(event) {
    if (event.lastEventId) last = event.lastEventId;
    return JSON.parse(event.data);
  }

  function end(text) {
    source.close();
    status.textContent = text;
    button.hidden = true;
  }

  function start() {
    const url = new URL(view.dataset.stream, location);
    if (last) url.searchParams.set("after", last);
    source = new EventSource(url);
    for (const kind of ["inserted", "changed", "removed"]) {
      source.addEventListener(kind, (event) => {
        const change = keep(event);
        add([String(change.revision), change.kind, change.key, change.summary], change.href);
      });
    }
    source.addEventListener("damaged", (event) => {
      const { message, detail } = keep(event);
      add([String(detail.revision ?? ""), "damaged", String(detail.raw_key ?? ""), message], "");
    });
    source.addEventListener("open", (event) => {
      if (event.data) keep(event);
      status.textContent = "Connected: changes appear as they are committed.";
    });
    source.addEventListener("here", keep);
    source.addEventListener("closing", () => { status.textContent = "The server stops; trying again."; });
    source.addEventListener("compacted", () => end("The history is gone: reload this page to begin anew."));
    source.addEventListener("failed", () => end("The watch failed: reload this page to begin anew."));
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) end("The server refused: reload this page to begin anew.");
      else status.textContent = "The connection was lost; trying again.";
    });
    button.hidden = false;
    button.textContent = "Pause";
  }

  button.addEventListener("click", () => {
    if (source.readyState === EventSource.CLOSED) {
      start();
    } else {
      source.close();
      button.textContent = "Go on";
      status.textContent = "Paused: what happens meanwhile is shown when it goes on.";
    }
  });
  start();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-stream]").forEach(follow));
