// Opens pages and pictures in a browser, as `cargo xtask pages` says. Prints a line for each thing that is wrong.
//
//   node check.mjs BROWSER PICTURES FILE...
//
// Exit code: 0, nothing is wrong; 1, something is; 2, the check itself failed.

import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const ARGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const WIDTHS = [400, 1600];
const SCHEMES = ["light", "dark"];

/** What is wrong with text: contrast, numbers, places. Runs in the page. */
function look() {
  const wrong = [];
  const channels = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (of) => (of / 255 <= 0.04045 ? of / 255 / 12.92 : ((of / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const paper = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.5) return colour;
    }
    return dark ? [0, 0, 0] : [255, 255, 255];
  };
  const shown = (text) => `'${text.trim().slice(0, 40)}'`;
  const ownText = (element) =>
    [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("");
  for (const element of document.querySelectorAll("body *")) {
    const text = ownText(element);
    if (!text.trim() || element.closest("svg, script, style")) continue;
    const style = getComputedStyle(element);
    const ratio = contrast(channels(style.color), paper(element));
    if (ratio < 4.5) wrong.push(`contrast ${ratio.toFixed(1)} of ${shown(text)}`);
    if (!element.closest("code, pre") && /(?<!\w)\d+(\.\d+)?e[-+]?\d/.test(text)) wrong.push(`exponent in ${shown(text)}`);
  }
  for (const svg of document.querySelectorAll("svg:not(svg svg)")) {
    const frame = svg.getBoundingClientRect();
    const isFlame = svg.querySelector("#frames") !== null;
    const texts = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
    const boxes = texts.filter((one) => !isFlame || one.closest("#frames") === null)
      .map((one) => [one, one.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0 && box.height > 0);
    const inner = (box) => ({ l: box.left + 1, r: box.right - 1, t: box.top + box.height / 4, b: box.bottom - box.height / 4 });
    boxes.forEach(([one, box], at) => {
      const a = inner(box);
      if (/(?<!\w)\d+(\.\d+)?e[-+]?\d/.test(one.textContent)) wrong.push(`exponent in ${shown(one.textContent)}`);
      if (a.l < frame.left || a.r > frame.right || a.t < frame.top || a.b > frame.bottom) {
        wrong.push(`cut: ${shown(one.textContent)}`);
      }
      for (const [other, its] of boxes.slice(at + 1)) {
        const b = inner(its);
        if (a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b) {
          wrong.push(`${shown(one.textContent)} lies on ${shown(other.textContent)}`);
        }
      }
    });
  }
  return wrong;
}

/** Sorts each table by each column, by mouse and by keyboard. */
async function sort(page) {
  const wrong = [];
  for (const table of await page.locator("table.sortable").all()) {
    await table.evaluate((one) => { for (let at = one; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true; });
    const column = (at) => table.evaluate((one, at) => [...one.tBodies[0].rows].map((row) => {
      const { dataset, textContent } = row.cells[at];
      return dataset.value === undefined ? textContent : Number(dataset.value);
    }), at);
    const heads = await table.locator("th").all();
    for (const [at, head] of heads.entries()) {
      const name = await head.innerText();
      const turns = [];
      for (const turn of ["click", "key"]) {
        if (turn === "click") await head.locator("button").click();
        else await head.locator("button").press("Enter");
        const order = await head.getAttribute("aria-sort");
        turns.push(order);
        const values = await column(at);
        const sign = order === "ascending" ? 1 : -1;
        const compare = (a, b) => sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
        if (values.some((value, n) => n > 0 && compare(values[n - 1], value) > 0)) wrong.push(`by '${name}', ${order}: not sorted`);
      }
      if (turns.sort().join() !== "ascending,descending") wrong.push(`by '${name}': sorted ${turns}`);
    }
    if (await table.locator("th[aria-sort]").count() !== 1) wrong.push("a table is sorted by several columns");
  }
  return wrong;
}

/** Zooms and searches in a flame graph, which `frame` shows. */
async function flame(page, frame) {
  const wrong = [];
  const boxes = frame.locator("#frames > g");
  const count = await boxes.count();
  if (count < 2) return ["a flame graph has no boxes"];
  const names = await boxes.locator("title").allTextContents();
  // A click hits the innermost of the boxes, which may be too narrow for a hand.
  const widths = await boxes.locator("rect").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().width));
  const visible = widths.findIndex((width, at) => width > 12 && width < 0.95 * Math.max(...widths));
  if (visible >= 0) {
    const box = boxes.nth(visible).locator("rect");
    await boxes.nth(visible).click();
    const width = await box.getAttribute("width");
    if (parseFloat(width) !== 100) wrong.push(`zoomed in on ${names[visible]}, it is ${width} wide`);
    await frame.locator("#unzoom").click();
    if (parseFloat(await box.getAttribute("width")) === 100) wrong.push(`'Reset Zoom' doesn't reset ${names[visible]}`);
  }
  const name = names[names.length - 1].replace(/ \([^(]*\)$/, "");
  page.once("dialog", (dialog) => dialog.accept(name.replace(/[^\w]/g, ".")));
  await frame.locator("#search").click();
  const found = await frame.locator("#matched").textContent();
  if (!/^Matched: [\d.]+%/.test(found)) wrong.push(`a search for '${name}' says '${found}'`);
  await frame.locator("#search").click();
  return wrong;
}

/** `sim/report.html`: many files have the same name. */
const label = (file) => [basename(dirname(resolve(file))), basename(file)];

async function one(browser, file, scheme, width, pictures) {
  const wrong = [];
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 900 } });
  context.setDefaultTimeout(5000);
  const page = await context.newPage();
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) wrong.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => wrong.push(`script: ${error.message}`));
  page.on("request", (request) => { if (!/^(file|data|about|blob):/.test(request.url())) wrong.push(`asks for ${request.url()}`); });
  await page.goto(pathToFileURL(resolve(file)).href);
  await page.waitForTimeout(100); // inferno lays its boxes out after the page is loaded
  const isPage = file.endsWith(".html");
  if (isPage) {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    if (wide > width) wrong.push(`${wide} px wide: scrolls sideways`);
  }
  await page.screenshot({ path: join(pictures, `${label(file).join("-")}-${width}-${scheme}.png`), fullPage: isPage });
  const tries = async (what) => wrong.push(...await what().catch((error) => [error.message.split("\n")[0]]));
  await tries(() => page.evaluate(look));
  // What the scripts do doesn't depend on colours.
  if (scheme === "light") await tries(() => sort(page));
  const frames = [];
  for (const element of await page.locator("iframe.flame").all()) frames.push(await (await element.elementHandle()).contentFrame());
  if (await page.locator("svg > svg#frames").count() > 0) frames.push(page.mainFrame());
  for (const frame of frames) {
    await tries(() => frame.evaluate(look));
    if (scheme === "light") await tries(() => flame(page, frame));
  }
  await context.close();
  return wrong.map((what) => `${label(file).join("/")}, ${width} px, ${scheme}: ${what}`);
}

const [executablePath, pictures, ...files] = process.argv.slice(2);
try {
  mkdirSync(pictures, { recursive: true });
  const browser = await chromium.launch({ executablePath, args: ARGS });
  const wrong = [];
  for (const file of files) {
    for (const width of WIDTHS) for (const scheme of SCHEMES) wrong.push(...await one(browser, file, scheme, width, pictures));
  }
  await browser.close();
  for (const line of wrong) console.log(line);
  process.exitCode = wrong.length > 0 ? 1 : 0;
} catch (error) {
  console.error(String(error));
  process.exitCode = 2;
}
