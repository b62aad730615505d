// Line icons, 24 × 24. Decorative: whatever contains one has a label of its own.
const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20 20l-4-4",
  settings: "M4 7h10M18 7h2M14 5v4M4 17h2M10 17h10M8 15v4M4 12h4M12 12h8M10 10v4",
  close: "M6 6l12 12M18 6L6 18",
  back: "M15 5l-7 7 7 7",
  chevron: "M9 6l6 6-6 6",
  down: "M6 9l6 6 6-6",
  send: "M5 12h13M13 6l6 6-6 6",
  stop: "M7 7h10v10H7z",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  attach: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 5 5l-8.5 8.5a1.700 1.700 0 0 1-2.400-2.400L15 7.5",
  at: "M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zm0 0v1.5a2.5 2.5 0 0 0 5 0V12a9 9 0 1 0-4 7.5",
  slash: "M15 4L9 20",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  folder: "M3 6h6l2 2h10v11H3z",
  terminal: "M4 5h16v14H4zM7 9l3 3-3 3M12 15h5",
  branch: "M7 4v16M17 4v4a6 6 0 0 1-6 6H7M17 4a1 1 0 1 0 0 .01M7 20a1 1 0 1 0 0 .01",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  chat: "M4 5h16v11H10l-5 4v-4H4z",
  diff: "M12 4v8M8 8h8M8 19h8M4 3h16v18H4z",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  up: "M12 19V5M6 11l6-6 6 6",
  downward: "M12 5v14M6 13l6 6 6-6",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  bell: "M6 17V11a6 6 0 1 1 12 0v6l2 1H4zM10 21h4",
  check: "M5 13l4 4L19 7",
  phone: "M7 3h10v18H7zM11 18h2",
  external: "M9 5H5v14h14v-4M13 5h6v6M19 5l-9 9",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, small }: { name: IconName; small?: boolean }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false" data-small={small ? "" : undefined}>
      <path d={PATHS[name]} />
    </svg>
  );
}
