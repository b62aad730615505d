// The shell blocks of a page, and what its comments say about them.

/** @returns {{line: number, text: string, setup: string[], exit: number, notRun: string|null}[]} */
export function blocks(text) {
  const found = [];
  const lines = text.split('\n');
  let setup = [];
  let exit = 0;
  let notRun = null;
  for (let i = 0; i < lines.length; i += 1) {
    const comment = lines[i].match(/^\s*<!-- (setup|exit|not run): (.*) -->$/);
    if (comment?.[1] === 'setup') setup.push(comment[2]);
    else if (comment?.[1] === 'exit') exit = Number(comment[2]);
    else if (comment) notRun = comment[2];
    else if (/^\s*```/.test(lines[i])) {
      const indent = lines[i].match(/^\s*/)[0].length;
      const isShell = lines[i].trim() === '```sh';
      const from = i + 1;
      for (i += 1; i < lines.length && lines[i].trim() !== '```'; i += 1);
      const body = lines.slice(from, i).map((line) => line.slice(indent)).join('\n');
      if (isShell) found.push({ line: from, text: body, setup, exit, notRun });
      setup = [];
      exit = 0;
      notRun = null;
    }
  }
  return found;
}
