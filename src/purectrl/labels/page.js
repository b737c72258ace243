
"use strict";
(() => {
  const settings = JSON.parse(document.getElementById("settings").textContent);
  const at = (id) => document.getElementById(id);
  const POLL = 1000;
  let state = null; // what the server knows
  let later = []; // images that were put off, in this page only
  let again = null; // an image that is asked about again
  let busy = false;

  const show = (id, visible) => { at(id).hidden = !visible; };
  const text = (id, value) => { at(id).textContent = value; };
  const picture = (id) => `image/${id}`;

  function current() {
    const open = state.images.filter((one) => one.level === null);
    const chosen = state.images.find((one) => one.id === again);
    return chosen ?? open.find((one) => !later.includes(one.id)) ?? open[0] ?? null;
  }

  function draw() {
    const done = state.images.filter((one) => one.level !== null).length;
    const one = current();
    text("count", state.images.length ? `${done} of ${state.images.length} labelled` : `${state.submitted} labels sent`);
    at("progress").max = state.images.length || 1;
    at("progress").value = state.images.length ? done : 1;
    show("asking", one !== null);
    show("review", one === null && state.images.length > 0);
    show("idle", state.images.length === 0);
    if (one !== null) ask(one);
    else if (state.images.length) review();
    else idle();
  }

  function ask(one) {
    const image = at("image");
    if (image.dataset.id !== one.id) {
      image.dataset.id = one.id;
      image.src = picture(one.id);
      const next = state.images.find((other) => other.level === null && other.id !== one.id);
      if (next) new Image().src = picture(next.id);
    }
    text("condition", `It should show: ${one.condition}`);
    text("most", String(state.levels));
    const buttons = Array.from({ length: state.levels }, (_, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = String(index + 1);
      button.setAttribute("aria-pressed", String(one.level === index + 1));
      button.addEventListener("click", () => answer(index + 1));
      return button;
    });
    at("levels").replaceChildren(...buttons);
  }

  function review() {
    text("send", `Send ${state.images.length} labels (Enter)`);
    const entries = state.images.map((one) => {
      const button = document.createElement("button"), image = document.createElement("img");
      const name = document.createElement("span"), level = document.createElement("strong");
      button.type = "button";
      image.src = picture(one.id);
      image.alt = "";
      name.className = "name";
      name.textContent = one.condition;
      level.textContent = `${one.level} of ${state.levels}`;
      button.append(image, name, level);
      button.addEventListener("click", () => { again = one.id; draw(); });
      return button;
    });
    at("grid").replaceChildren(...entries);
  }

  function idle() {
    text("idle-title", state.finished ? "The run has finished" : "The run is computing");
    text("idle-text", state.finished
      ? `${state.submitted} labels were sent. This page can be closed.`
      : `The next images appear here. If the run was stopped, continue it with: ${settings.command}`);
  }

  function complain(message) {
    text("notice", message);
    show("notice", message !== "");
  }

  async function request(place, body) {
    const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    let answered;
    try {
      answered = await fetch(place, { cache: "no-store", ...options });
    } catch {
      throw new Error("purectrl label does not answer: start it again and open the address that it prints. "
        + "Labels that were shown as given are kept.");
    }
    const found = await answered.json();
    if (!answered.ok) throw new Error(found.error);
    return found;
  }

  async function change(place, body) {
    if (busy) return null;
    busy = true;
    try {
      state = await request(place, body);
      complain("");
      return state;
    } catch (error) {
      complain(error.message);
      if (body) state = await request("state").catch(() => state); // the run, or another page, may have moved on
      return null;
    } finally {
      busy = false;
      if (state) draw();
    }
  }

  async function answer(level) {
    const one = state && current();
    if (!one || level > state.levels) return;
    const chosen = again;
    again = null;
    if (await change("answer", { id: one.id, level }) === null) again = chosen;
    later = later.filter((id) => id !== one.id);
  }

  async function undo() {
    const found = await change("undo", {});
    if (found && found.undone) {
      again = found.undone;
      draw();
    }
  }

  function putOff() {
    const one = state && current();
    if (!one || one.level !== null) return;
    later = [...later.filter((id) => id !== one.id), one.id];
    const open = state.images.filter((other) => other.level === null);
    if (open.every((other) => later.includes(other.id))) later = [one.id];
    again = null;
    draw();
  }

  async function send() {
    if (await change("submit", {})) { later = []; again = null; draw(); }
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
    const key = event.key.toLowerCase();
    const reviewing = !at("review").hidden;
    if (/^[1-9]$/.test(key) && !at("asking").hidden) answer(Number(key));
    else if (key === "u" || key === "backspace") undo();
    else if (key === "s" && !at("asking").hidden) putOff();
    else if (key === "enter" && reviewing && !(event.target.closest && event.target.closest("#grid, #back"))) send();
    else return;
    event.preventDefault();
  });
  at("send").addEventListener("click", send);
  at("back").addEventListener("click", undo);
  at("image").addEventListener("load", (event) => {
    event.target.classList.toggle("large", event.target.naturalWidth >= 128);
  });

  async function poll() {
    if (!busy && (!state || !state.images.length)) await change("state");
    if (!(state && state.finished)) setTimeout(poll, POLL);
  }

  text("run", settings.run);
  text("question", settings.question);
  poll();
})();
