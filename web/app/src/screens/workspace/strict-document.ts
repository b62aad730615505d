// The terminal makes `<style>` elements and style attributes, which the Content-Security-Policy refuses. This document
// gives it elements that do the same through the CSS object model, which the policy allows.

function styleSubstitute(page: Document): HTMLElement {
  const element = page.createElement("span");
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  page.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", {
    get: () => "",
    set: (text: string) => sheet.replaceSync(text),
  });
  element.remove = () => {
    page.adoptedStyleSheets = page.adoptedStyleSheets.filter((other) => other !== sheet);
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}

/** `setAttribute("style", …)` is refused; `style.cssText` is not. */
function withStyles<T extends Element>(element: T): T {
  if (!(element instanceof HTMLElement)) return element;
  const set = element.setAttribute.bind(element);
  element.setAttribute = (name: string, value: string) => {
    if (name === "style") element.style.cssText = value;
    else set(name, value);
  };
  return element;
}

export function strictDocument(page: Document): Document {
  return new Proxy(page, {
    get: (target, name) => {
      if (name === "createElement") {
        return (tag: string) => (tag.toLowerCase() === "style" ? styleSubstitute(page) : withStyles(page.createElement(tag)));
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** One part of the terminal takes the page's own document: it is given the same elements while it is built. */
export function withStrictStyles(page: Document, build: () => void): void {
  const make = page.createElement.bind(page);
  const strict = (tag: string, options?: ElementCreationOptions) => (tag.toLowerCase() === "style" ? styleSubstitute(page) : make(tag, options));
  Object.defineProperty(page, "createElement", { configurable: true, value: strict });
  try {
    build();
  } finally {
    Reflect.deleteProperty(page, "createElement");
  }
}
