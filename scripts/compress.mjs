// Writes NAME.gz beside each file of a folder that gets smaller by it: the server sends those to browsers.
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const folder = process.argv[2];
if (!folder) throw new Error("compress.mjs FOLDER");
const COMPRESSIBLE = /\.(html|js|css|json|svg|webmanifest|txt)$/;
const names = await readdir(folder, { recursive: true });
for (const name of names.filter((one) => one.endsWith(".gz"))) await rm(join(folder, name));
for (const name of names.filter((one) => COMPRESSIBLE.test(one))) {
  const bytes = await readFile(join(folder, name));
  const smaller = gzipSync(bytes, { level: 9 });
  if (smaller.length < bytes.length) await writeFile(join(folder, `${name}.gz`), smaller);
}
