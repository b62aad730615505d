//! The four ways to continue a session whose agent does not know what was said, as a chat takes them.

use piton_api::session::{ContextChoice as Context, ResumeRequest};
use piton_core::resume::ContextChoice;

/// What `/resume` takes, for a message about a word that it does not know.
pub(crate) const RESUME_WORDS: &str =
    "/resume takes nothing, `retry`, `history` or `fresh`. Nothing was sent.";

/// What is typed for a choice in a chat; `None`: it is another session, which not every chat can begin.
fn typed(choice: ContextChoice) -> Option<&'static str> {
    match choice {
        ContextChoice::Retry => Some("/resume retry"),
        ContextChoice::ContinueWithHistory => Some("/resume history"),
        ContextChoice::ContinueWithoutContext => Some("/resume fresh"),
        ContextChoice::NewSession => None,
    }
}

/// All choices, each with what is typed for it. `new_session`: how this chat begins another session.
pub(crate) fn choices(new_session: &str) -> String {
    let shown = ContextChoice::ALL
        .map(|choice| format!("{}: {}", choice.label(), typed(choice).unwrap_or(new_session)));
    shown.join(" · ")
}

/// What `/resume` asks for with this behind it; `None`: it is no choice.
pub(crate) fn resume_request(argument: &str) -> Option<ResumeRequest> {
    let context = match argument {
        "" => None,
        "retry" => Some(Context::Native),
        "history" => Some(Context::Injected),
        "fresh" => Some(Context::None),
        _ => return None,
    };
    Some(ResumeRequest { continue_run: Some(true), context })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wants to show: what is shown for a choice is taken when it is typed, and asks for that choice.
    #[test]
    fn every_choice_that_is_shown_can_be_typed() {
        let shown = choices("/new");
        for choice in ContextChoice::ALL {
            assert!(shown.contains(choice.label()), "{shown}");
            let Some(typed) = typed(choice) else { continue };
            assert!(shown.contains(&format!("{}: {typed}", choice.label())), "{shown}");
            let request = resume_request(typed.strip_prefix("/resume ").unwrap()).unwrap();
            let asked = serde_json::to_value(request.context).unwrap();
            let wanted = choice.context().unwrap();
            assert_eq!(asked, serde_json::to_value(wanted).unwrap(), "{typed}");
        }
        assert!(shown.ends_with("New session: /new"), "{shown}");
        assert_eq!(resume_request("").unwrap().context, None);
        assert_eq!(resume_request("histroy"), None);
    }
}
