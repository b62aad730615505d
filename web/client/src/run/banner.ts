/** `<piton-resume-banner>`: shows an interrupted run, and asks. Set its property `recovery`. */
import type { Recovery, RecoveryState } from "./recovery.js";

export interface ResumeBannerElement extends HTMLElement {
  recovery: Recovery | null;
}

const NAME = "piton-resume-banner";

const STYLE = `
:host { display: block; font: inherit; }
:host([hidden]) { display: none; }
div { display: flex; flex-wrap: wrap; gap: 8px 12px; align-items: center; padding: 12px 16px; border-radius: 8px;
  color: var(--piton-banner-text, #1d1d1f); background: var(--piton-banner-surface, #fff4d6);
  border: 1px solid var(--piton-banner-border, #d9a400); }
p { margin: 0; flex: 1 1 16em; }
small { display: block; }
button { font: inherit; min-height: 44px; padding: 0 16px; border-radius: 8px; cursor: pointer;
  color: inherit; background: transparent; border: 1px solid currentColor; }
button.main { color: var(--piton-banner-accent-text, #fff); background: var(--piton-banner-accent, #0b57d0); border-color: transparent; }
button:focus-visible { outline: 3px solid var(--piton-banner-accent, #0b57d0); outline-offset: 2px; }
button[disabled] { opacity: .6; cursor: default; }
@media (prefers-color-scheme: dark) {
  div { color: var(--piton-banner-text, #f4f4f5); background: var(--piton-banner-surface, #3a2f0b); border-color: var(--piton-banner-border, #8a6d00); }
}`;

/**
 * Registers the element; more than once does no harm, and neither does a server that draws pages. Not done at import,
 * so that bundlers can leave it out.
 */
export function defineResumeBanner(): void {
  if (typeof customElements === "undefined" || customElements.get(NAME)) return;

  class ResumeBanner extends HTMLElement implements ResumeBannerElement {
    private current: Recovery | null = null;
    private unsubscribe: () => void = () => undefined;
    private readonly root = this.attachShadow({ mode: "open" });
    /** There before it says anything: screen readers announce what changes in it. */
    private readonly box = document.createElement("div");

    constructor() {
      super();
      this.box.setAttribute("role", "status");
      this.root.append(this.box);
      // A constructed sheet needs no `unsafe-inline` in the page's policy.
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(STYLE);
      this.root.adoptedStyleSheets = [sheet];
    }

    get recovery(): Recovery | null {
      return this.current;
    }

    set recovery(recovery: Recovery | null) {
      this.unsubscribe();
      this.current = recovery;
      this.unsubscribe = recovery ? recovery.subscribe(() => this.draw()) : () => undefined;
      this.draw();
    }

    connectedCallback(): void {
      // A property that was set before the element was defined hides the setter.
      if (Object.hasOwn(this, "recovery")) {
        const early = (this as { recovery: Recovery | null }).recovery;
        delete (this as Partial<ResumeBannerElement>).recovery;
        this.recovery = early;
      } else this.recovery = this.current;
    }

    disconnectedCallback(): void {
      this.unsubscribe();
    }

    private draw(): void {
      const state = this.current?.getState();
      const shown = state ? contentOf(state) : null;
      this.hidden = shown === null;
      if (!shown) return this.box.replaceChildren();
      const text = document.createElement("p");
      text.textContent = shown.sentence;
      if (shown.detail) {
        const detail = document.createElement("small");
        detail.textContent = shown.detail;
        text.append(detail);
      }
      this.box.replaceChildren(text, ...shown.buttons.map((button) => this.button(button)));
    }

    private button({ label, act }: Button): HTMLButtonElement {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      if (act === "resume") button.className = "main";
      button.addEventListener("click", () => {
        const { current } = this;
        if (!current) return;
        const done = act === "dismiss" ? current.dismiss() : current.resume({ withoutTruth: act === "resume_without_truth" });
        done.catch((error: unknown) => this.dispatchEvent(new CustomEvent("error", { detail: error })));
      });
      return button;
    }
  }

  customElements.define(NAME, ResumeBanner);
}

interface Button {
  label: string;
  act: "resume" | "resume_without_truth" | "dismiss";
}

interface Content {
  sentence: string;
  detail: string | null;
  buttons: Button[];
}

/** What a banner says of a state; `null`: nothing. */
export function contentOf(state: RecoveryState): Content | null {
  const dismiss: Button = { label: "Dismiss", act: "dismiss" };
  switch (state.status) {
    case "offered": {
      const resume: Button = { label: state.problem ? "Try again" : "Resume", act: "resume" };
      const without: Button[] = state.problem?.canResumeWithoutTruth
        ? [{ label: "Resume without it", act: "resume_without_truth" }]
        : [];
      return { sentence: state.sentence, detail: state.problem?.sentence ?? null, buttons: [resume, ...without, dismiss] };
    }
    // Also of a session that never begins: it must not keep the chat for ever.
    case "job":
      return { sentence: state.sentence, detail: null, buttons: [dismiss] };
    case "resuming":
    case "fresh":
      return { sentence: state.sentence, detail: null, buttons: [] };
    case "none":
      if (["no_checkpoint", "user_aborted", "owned_by_this_page"].includes(state.reason)) return null;
      return {
        sentence: state.sentence,
        detail: null,
        buttons: state.checkpoint && state.reason !== "owned_by_other_tab" ? [dismiss] : [],
      };
    default:
      return null;
  }
}
