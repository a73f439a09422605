// Bundles src/ into one page, src/view/viewer.html, which the library carries. `--check` compares instead of writing.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../src/view/viewer.html");
const bundled = await build({
  entryPoints: [join(here, "src/main.ts")],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  write: false,
});
const script = bundled.outputFiles[0].text.trim();
const minified = await build({ entryPoints: [join(here, "src/style.css")], minify: true, write: false });
const style = minified.outputFiles[0].text.trim();
for (const part of [script, style])
  if (part.includes("</script") || part.includes("</style") || part.includes("<!--") || part.includes(')EGRETPAGE"') || part.includes("RECORD_GOES_HERE"))
    throw new Error("what is bundled would end its element");
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`;
const page = readFileSync(join(here, "src/page.html"), "utf8")
  .replace("{{policy}}", () => policy)
  .replace("{{style}}", () => style)
  .replace("{{script}}", () => script);
if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== page) {
    console.error("src/view/viewer.html is not what viewer/ builds: run `./x viewer`");
    process.exit(1);
  }
} else {
  writeFileSync(target, page);
  console.log(`${target}: ${page.length} bytes`);
}
