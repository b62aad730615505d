/** No key, for agents that insist on one. It is masked, so it is no common word. */
export const NO_KEY = "no-key-is-needed-here";
