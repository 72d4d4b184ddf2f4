// Reads /stats each second, and shows what it says. All text goes in as text, never as HTML.
"use strict";

const KEPT = 121; // samples: two minutes
const TIMEOUT_MS = 3000;
const samples = [];
let last = null;

const $ = (id) => document.getElementById(id);
const show = (id, text) => { $(id).textContent = text; };
const number = (value, digits) =>
  value === null || !Number.isFinite(value) ? "\u2013" : value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
const ms = (us) => number(us / 1000, us < 100000 ? 2 : 0);
const percent = (share) => number(share === null ? null : share * 100, share !== null && share < 0.1 ? 2 : 0);

function state(kind, text) {
  $("state").dataset.state = kind;
  show("state", text);
}

function duration(seconds) {
  const whole = Math.floor(seconds);
  const parts = [[Math.floor(whole / 3600), "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const from = parts.findIndex(([count]) => count > 0);
  return (from < 0 ? [parts[2]] : parts.slice(from)).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

// What a counter of seconds grew by, in seconds of each second.
function share(now, before, of) {
  const [end, begin] = [of(now), of(before)];
  return end === null || begin === null ? null : (end - begin) / (now.uptime_s - before.uptime_s);
}

const waiting = (stats) => (stats.cpu_watcher === null ? null : stats.cpu_watcher + stats.cpu_tasks);

function update(now) {
  const { about } = now;
  show("device", about.device);
  // It may break behind its commas and plus signs.
  const parts = about.plan.split(/(?<=[+,])/);
  $("plan").replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
  show("batch-max", `of at most ${about.batch_max}`);
  show("window", `${ms(about.window_us)} ms`);
  show("queue", `${number(now.queued, 0)} of ${number(about.queue_max, 0)}`);
  show("flight", `${now.in_flight} of ${about.in_flight_max}`);
  show("ended", `${number(now.answered, 0)}, ${number(now.refused, 0)}`);
  show("uptime", duration(now.uptime_s));
  state(now.fault === null ? "good" : "bad", now.fault === null ? "healthy" : `unhealthy: ${now.fault}`);
  const { latency_us: latency, step_us: step } = now;
  const some = (quantiles, value) => (quantiles.count > 0 ? value : null);
  show("p50", latency.count ? ms(latency.p50) : "\u2013");
  show("p99", latency.count ? ms(latency.p99) : "\u2013");
  show("slowest", latency.count ? `${ms(latency.max)} ms` : "\u2013");
  show("step", step.count ? `${ms(step.p50)} ms (p50), ${ms(step.p99)} ms (p99)` : "none lately");
  // A server that was started again counts from the beginning.
  if (last !== null && last.uptime_s < now.uptime_s) {
    const batches = now.batches - last.batches;
    const sample = {
      p50: some(latency, latency.p50 / 1000), p99: some(latency, latency.p99 / 1000), step: some(step, step.p50 / 1000),
      cpu: share(now, last, (stats) => stats.cpu_process), waiting: share(now, last, waiting),
    };
    show("rate", number(share(now, last, (stats) => stats.answered), 0));
    show("batch", batches > 0 ? number((now.rows - last.rows) / batches, 1) : "\u2013");
    show("cpu", percent(sample.cpu));
    show("waiting", percent(sample.waiting));
    const of = (part) => `${percent(share(now, last, part))} %`;
    show("share", now.cpu_watcher === null ? "\u2013" : `${of((stats) => stats.cpu_watcher)}, ${of((stats) => stats.cpu_tasks)}`);
    samples.push(sample);
    if (samples.length > KEPT) samples.shift();
    chart("latency", [["three", "step"], ["one", "p50"], ["two", "p99"]], decades, 1);
    chart("cpus", [["one", "cpu"], ["two", "waiting"]], linear, 100);
  }
  last = now;
}

// An axis: where a value lies from 0 to 1, and the values of its lines.

function linear(values) {
  const most = Math.max(...values, 0.01);
  const ten = 10 ** Math.floor(Math.log10(most));
  const top = ten * ([1, 2, 5].find((step) => step * ten >= most) ?? 10);
  return { at: (value) => value / top, lines: [0, top / 2, top] };
}

function decades(values) {
  const some = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...some, 1)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...some, 10))), low + 1);
  const lines = Array.from({ length: high - low + 1 }, (_, place) => 10 ** (low + place));
  return { at: (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low), lines };
}

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}

function chart(id, lines, axis, scale) {
  const [width, height] = [480, 160];
  const scaled = samples.map((sample) => lines.map(([, key]) => (sample[key] === null ? null : sample[key] * scale)));
  const { at, lines: marks } = axis(scaled.flat().filter((value) => value !== null));
  const y = (value) => (height * (1 - at(value))).toFixed(1);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(...marks.map((mark) => element("line", { x1: 0, x2: width, y1: y(mark), y2: y(mark) })));
  lines.forEach(([kind], line) => {
    let d = "";
    let is_on = false;
    scaled.forEach((values, place) => {
      const value = values[line];
      const x = width * (1 - (samples.length - 1 - place) / (KEPT - 1));
      if (value !== null) d += `${is_on ? "L" : "M"}${x.toFixed(1)} ${y(value)}`;
      is_on = value !== null;
    });
    svg.append(element("path", { class: kind, d }));
  });
  const labels = marks.map((mark) => {
    const label = document.createElement("span");
    label.textContent = mark.toLocaleString("en", { maximumSignificantDigits: 3 });
    label.style.top = `${12 + height * (1 - at(mark))}px`;
    return label;
  });
  $(id).replaceChildren(svg, ...labels);
}

async function tick() {
  try {
    const response = await fetch("/stats", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    update(await response.json());
  } catch (error) {
    state("bad", `no answer from the server (${error.message})`);
  }
  setTimeout(tick, 1000);
}
tick();
