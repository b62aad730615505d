//! The terminal client: a conversation below what the terminal printed before. What decides how it looks
//! and what keys mean is pure (rows, editor, conversation, view); `chat` alone talks to the server and to
//! the terminal. Everything that is drawn comes through [`rows::span`] or [`editor`], which make it
//! harmless.

mod asking;
pub(crate) mod chat;
pub(crate) mod commands;
pub(crate) mod conversation;
pub(crate) mod dashboard;
mod display;
mod editor;
mod highlight;
mod human;
mod images;
mod input;
pub(crate) mod keys;
mod markdown;
mod memory;
mod popup;
mod render;
mod rows;
pub(crate) mod tool;
mod transcript;
mod view;

use std::io::{self, IsTerminal as _};

use crate::ui::Ui;
pub(crate) use display::leave_full;

/// Whether there is a terminal that the client can draw on.
pub(crate) fn is_possible(ui: &Ui) -> bool {
    !ui.json && io::stdin().is_terminal() && Ui::is_screen()
}
