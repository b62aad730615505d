//! A question of the agent's becomes a wait; a standing rule may answer it in the same batch.

use serde_json::{Value, json};

use super::{IMPORT_CONTENT_BYTES_MAX, Importing};
use crate::decide::{Context, Wait, wait};
use crate::event::{PermissionAsked, PermissionDecided, WaitKind};
use crate::id::{RunId, WaitId};
use crate::limits::REATTACH_GRACE;
use crate::permission::{PermissionRequest, Subject, capped};
use crate::record::NewRecord;
use crate::state::Run;
use crate::token::NewToken;

impl Importing<'_> {
    pub(super) fn asked(
        &mut self,
        cx: &Context,
        run_id: Option<RunId>,
        wait_id: WaitId,
        kind: WaitKind,
        question: Value,
    ) {
        let fresh = self.fresh.next();
        let open = self.open_run(run_id.as_ref()).is_some_and(Run::is_open);
        let question = match kind {
            WaitKind::Permission => capped(&question, IMPORT_CONTENT_BYTES_MAX),
            _ => question,
        };
        if let (true, Some(run_id), Some(fresh)) = (open, run_id.clone(), fresh) {
            // However late it comes, there is time to answer.
            let at_least = self.cx.now.after(REATTACH_GRACE);
            let deadline_at = cx.now.after(cx.limits.wait(kind)).max(at_least);
            let asked = Wait {
                run_id: run_id.clone(),
                wait_id: wait_id.clone(),
                kind,
                deadline_at,
                fresh: fresh.clone(),
                question: question.clone(),
            };
            if let Ok(decision) = wait::wait(&self.state, cx, asked) {
                let is_new = !decision.records.is_empty();
                self.extend(Ok(decision));
                if is_new && kind == WaitKind::Permission {
                    self.rule(cx, run_id, wait_id, fresh, &question);
                }
                return;
            }
        }
        self.updated(cx, run_id, "question", json!({"wait_id": wait_id, "question": question}));
    }

    /// Answers a permission request that a rule decides, and records the rule that leaves it to a person.
    /// The wait is new in this batch, so no request is decided twice: after a crash either all of it is in
    /// the log or nothing.
    fn rule(
        &mut self,
        cx: &Context,
        run_id: RunId,
        wait_id: WaitId,
        fresh: NewToken,
        question: &Value,
    ) {
        if self.rules.is_empty() {
            return;
        }
        let request = PermissionRequest::new(question, []);
        let info = self.state.info.as_ref();
        let worktree = self.state.facts.worktree.as_ref();
        let worktree = worktree.map(|worktree| worktree.plan.path.as_str());
        let ruling = self.rules.decide(&Subject {
            request: &request,
            agent: info.and_then(|info| info.agent_profile_id.as_deref()),
            folder: worktree.or_else(|| info.and_then(|info| info.working_dir.as_deref())),
        });
        let Some(number) = ruling.number else { return };
        let rule = self.rules.name(number);
        let Some(option_id) = ruling.option_id else {
            // Who looks for why they were asked finds the rule, too.
            let action = self.rules.action(number).unwrap_or(ruling.action);
            let reason = ruling.unsure;
            let asked = PermissionAsked { run_id, wait_id, action, rule, reason };
            self.push(NewRecord::new(cx.now, asked));
            return;
        };
        let decided = PermissionDecided {
            run_id,
            wait_id: wait_id.clone(),
            action: ruling.action,
            rule,
            option_id: option_id.clone(),
        };
        self.push(NewRecord::new(cx.now, decided));
        let answer = json!({"option_id": option_id});
        let answered = wait::answer(&self.state, cx, wait_id, fresh, answer);
        self.extend(answered);
    }
}
