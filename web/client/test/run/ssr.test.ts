/** On a server there is no page: a component with the hook is drawn there, too. */
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { expect, test } from "vitest";

import { defineResumeBanner } from "../../src/run/banner.js";
import { useResumableRun } from "../../src/run/react.js";
import { sandbox, say } from "./helpers.js";

test("the hook draws on a server, where nothing is stored and no run begins", () => {
  expect(typeof document).toBe("undefined");
  const Chat = () => {
    const { status, recovery } = useResumableRun({
      chatId: "ssr", provider: "p", model: "m", sandbox: sandbox(),
      stream: async function* () {
        yield say("never");
      },
    });
    return createElement("p", null, `${status} ${recovery.status}`);
  };
  expect(renderToString(createElement(Chat))).toBe("<p>idle checking</p>");
});

test("a server that defines the banner does no harm", () => {
  expect(() => defineResumeBanner()).not.toThrow();
});
