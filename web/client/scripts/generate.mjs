// Writes src/api.gen.ts from the committed OpenAPI description; with --check: fails when it differs.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString, COMMENT_HEADER } from "openapi-typescript";

const description = new URL("../../../docs/api/openapi.json", import.meta.url);
const target = new URL("../src/api.gen.ts", import.meta.url);
const ast = await openapiTS(JSON.parse(await readFile(description, "utf8")));
const text = `${COMMENT_HEADER}${astToString(ast)}`;
if (process.argv.includes("--check")) {
  if ((await readFile(target, "utf8")) !== text) {
    console.error("src/api.gen.ts differs from docs/api/openapi.json. Run: npm run generate");
    process.exit(1);
  }
} else {
  await writeFile(target, text);
}
