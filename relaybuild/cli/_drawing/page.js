"use strict";
const byId = (id) => document.getElementById(id);
const canvas = byId("canvas"), scene = byId("scene"), overview = byId("overview"), frame = byId("window");
const nodes = [...scene.querySelectorAll(".node")];
const width = Number(canvas.dataset.width), height = Number(canvas.dataset.height), margin = Number(canvas.dataset.margin);
const view = { x: 0, y: 0, scale: 1 };

function show() {
  scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  const { clientWidth, clientHeight } = canvas;
  frame.setAttribute("x", -view.x / view.scale);
  frame.setAttribute("y", -view.y / view.scale);
  frame.setAttribute("width", clientWidth / view.scale);
  frame.setAttribute("height", clientHeight / view.scale);
}

function centre(x, y) {
  view.x = canvas.clientWidth / 2 - x * view.scale;
  view.y = canvas.clientHeight / 2 - y * view.scale;
  show();
}

function start() {
  view.scale = Math.min(1, Math.max(0.5, canvas.clientWidth / (width + 2 * margin)));
  const first = nodes.length ? nodes[0].transform.baseVal[0].matrix : { e: width / 2, f: 0 };
  const fits = width * view.scale <= canvas.clientWidth;
  view.x = canvas.clientWidth / 2 - (fits ? width / 2 : first.e + 50) * view.scale;
  view.y = margin * view.scale;
  show();
}

function fit() {
  view.scale = Math.min(canvas.clientWidth / (width + 2 * margin), canvas.clientHeight / (height + 2 * margin));
  centre(width / 2, height / 2);
}

function zoom(factor, x, y) {
  const scale = Math.min(4, Math.max(0.01, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  show();
}

function goTo(node) {
  const place = node.transform.baseVal[0].matrix, box = node.querySelector("rect");
  view.scale = Math.max(view.scale, 0.8);
  centre(place.e + box.width.baseVal.value / 2, place.f + box.height.baseVal.value / 2);
  describe(node);
}

function describe(node) {
  byId("detail").textContent = node.querySelector("title").textContent;
  for (const other of scene.querySelectorAll(".pinned")) other.classList.remove("pinned");
  node.classList.add("pinned");
}

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const bounds = canvas.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY / 400), event.clientX - bounds.left, event.clientY - bounds.top);
}, { passive: false });

let held = null;
canvas.addEventListener("pointerdown", (event) => {
  held = { x: event.clientX - view.x, y: event.clientY - view.y };
  canvas.setPointerCapture(event.pointerId);
  canvas.classList.add("dragged");
});
canvas.addEventListener("pointermove", (event) => {
  if (held) {
    view.x = event.clientX - held.x;
    view.y = event.clientY - held.y;
    show();
  }
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, () => { held = null; canvas.classList.remove("dragged"); });
}
for (const node of nodes) node.addEventListener("pointerenter", () => describe(node));

overview.addEventListener("pointerdown", (event) => {
  const bounds = overview.getBoundingClientRect();
  centre(width / 2, ((event.clientY - bounds.top) / bounds.height) * (height + 2 * margin) - margin);
});

let matches = [], current = -1;
function search() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  matches = words.length ? nodes.filter((node) => {
    const text = node.textContent.toLowerCase();
    return words.every((word) => text.includes(word));
  }) : [];
  current = -1;
  canvas.classList.toggle("searching", words.length > 0);
  const found = new Set(matches);
  for (const node of nodes) node.classList.toggle("match", found.has(node));
  byId("found").textContent = words.length ? `${matches.length} found` : "";
}
function next(step) {
  if (!matches.length) return;
  current = (current + step + matches.length) % matches.length;
  goTo(matches[current]);
  byId("found").textContent = `${current + 1} of ${matches.length}`;
}
byId("search").addEventListener("input", search);
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
});

for (const entry of document.querySelectorAll("li")) {
  const groups = entry.dataset.groups.split(" ").filter(Boolean);
  let turn = -1;
  entry.addEventListener("click", () => {
    const all = groups.length
      ? groups.map((group) => scene.querySelector(`.node[data-group="${CSS.escape(group)}"]`))
      : nodes.filter((node) => node.classList.contains(entry.className));
    if (all.length) goTo(all[turn = (turn + 1) % all.length]);
  });
}

byId("fit").addEventListener("click", fit);
byId("actual").addEventListener("click", () => zoom(1 / view.scale, canvas.clientWidth / 2, canvas.clientHeight / 2));
window.addEventListener("resize", show);
start();
