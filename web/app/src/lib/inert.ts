// Every text that reaches the page passes here: names, titles, options and commands of agents, errors, file names. What
// would be drawn in another order or not at all is shown by its name, wherever it comes from, so that no place that shows
// a text has to remember it.
import { options } from "preact";
import { visible } from "./text.ts";

const ATTRIBUTES = ["title", "aria-label", "alt", "placeholder"] as const;

export function showUnseenCharacters(): void {
  const before = options.vnode;
  options.vnode = (vnode) => {
    const node = vnode as { type: unknown; props: unknown };
    if (node.type === null) {
      if (typeof node.props === "string") node.props = visible(node.props);
    } else if (typeof node.type === "string") {
      const props = node.props as Record<string, unknown>;
      for (const name of ATTRIBUTES) {
        const given = props[name];
        if (typeof given === "string") props[name] = visible(given);
      }
    }
    before?.(vnode);
  };
}
