// The shell blocks of a page, and what its comments say about them.

/** The commands of a page's transcripts: what follows `$ ` in a block of text. */
export function transcripts(text) {
  const inBlocks = [...text.matchAll(/^[ \t]*```text\n([\s\S]*?)^[ \t]*```$/gm)].flatMap(([, body]) => body.split('\n'));
  return inBlocks.filter((line) => line.startsWith('$ ')).map((line) => line.slice(2));
}

/**
 * The blocks that are run. One that is a file has the file's name, and is written instead.
 * @returns {{line: number, text: string, setup: string[], exit: number, notRun: string|null, file: string|null}[]}
 */
export function blocks(text) {
  const found = [];
  const lines = text.split('\n');
  let setup = [];
  let exit = 0;
  let notRun = null;
  let file = null;
  for (let i = 0; i < lines.length; i += 1) {
    const comment = lines[i].match(/^\s*<!-- (setup|exit|not run|file): (.*) -->$/);
    if (comment?.[1] === 'setup') setup.push(comment[2]);
    else if (comment?.[1] === 'exit') exit = Number(comment[2]);
    else if (comment?.[1] === 'file') file = comment[2];
    else if (comment) notRun = comment[2];
    else if (/^\s*```/.test(lines[i])) {
      const indent = lines[i].match(/^\s*/)[0].length;
      const isShell = lines[i].trim() === '```sh';
      const from = i + 1;
      for (i += 1; i < lines.length && lines[i].trim() !== '```'; i += 1);
      const body = lines.slice(from, i).map((line) => line.slice(indent)).join('\n');
      if (isShell || file) found.push({ line: from, text: body, setup, exit, notRun, file });
      setup = [];
      exit = 0;
      notRun = null;
      file = null;
    }
  }
  return found;
}
