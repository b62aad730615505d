//! What went wrong, as RFC 9457 wants it told: the code, the sentence, the hint.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use piton_api::problem::{self, CONTENT_TYPE};
use piton_core::access::AccessDenied;
use piton_core::decide::Refusal;
use piton_core::{Code, Reason};
use piton_exec::client::ClientError;
use piton_exec::executor::Fault;

/// A problem document (RFC 9457).
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    /// One sentence.
    pub(crate) title: String,
    /// Details of this occurrence.
    pub(crate) detail: Option<String>,
    /// Which thing is not as it should be, of those that the status knows.
    pub(crate) reason: Option<Reason>,
    /// After how many seconds it may be tried again.
    pub(crate) retry_after_s: Option<u64>,
    /// Instead of the code's own.
    status: Option<StatusCode>,
}

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    pub(crate) fn new(code: Code, title: impl Into<String>) -> Self {
        Self {
            code,
            title: title.into(),
            detail: None,
            reason: None,
            retry_after_s: None,
            status: None,
        }
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status: Some(status), ..self }
    }

    pub(crate) fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    pub(crate) fn because_of(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Code::RequestInvalid, "The request cannot be understood").with_detail(detail)
    }
}

/// What a code is in HTTP.
#[expect(clippy::too_many_lines, reason = "one arm for each code")]
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::IdInvalid
        | Code::AnswerInvalid
        | Code::RequestInvalid
        | Code::CursorInvalid
        | Code::Utf8Invalid
        | Code::PathOutside
        | Code::PathInvalid
        | Code::RepositoryInvalid
        | Code::BaseNotFound
        | Code::GraphInvalid
        | Code::GraphInputInvalid
        | Code::ConfigConflict
        | Code::OffsetMismatch => StatusCode::BAD_REQUEST,
        Code::Unauthenticated | Code::AccessTokenExpired => StatusCode::UNAUTHORIZED,
        Code::InsufficientScope
        | Code::HostRefused
        | Code::OriginRefused
        | Code::ResumeTokenMismatch => StatusCode::FORBIDDEN,
        Code::SessionNotFound
        | Code::TaskNotFound
        | Code::AgentNotFound
        | Code::AccessTokenNotFound
        | Code::WaitNotFound
        | Code::QueuedPromptNotFound
        | Code::RecordNotFound
        | Code::WorktreeNotFound
        | Code::SnapshotNotFound
        | Code::ArtifactNotFound
        | Code::CheckpointNotFound
        | Code::ResumeTokenNotFound
        | Code::ShellNotFound
        | Code::TerminalNotFound
        | Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::SessionExists
        | Code::SessionClosed
        | Code::SessionNotClosed
        | Code::SessionReadOnly
        | Code::SessionOwned
        | Code::TaskClosed
        | Code::ChoiceNotOffered
        | Code::TaskInUse
        | Code::RunNotFound
        | Code::RunInProgress
        | Code::RestoreInProgress
        | Code::RunNotOpen
        | Code::RunNotInterrupted
        | Code::ExecutorNotFound
        | Code::ExecutorAlive
        | Code::ExecutorInUse
        | Code::AgentctlRefused
        | Code::AgentNotRunning
        | Code::AgentProfileRequired
        | Code::AgentProfileConflict
        | Code::WorktreeExists
        | Code::WorktreeDirty
        | Code::WorkspaceConflict
        | Code::NothingToCommit
        | Code::MergeConflict
        | Code::PushRejected
        | Code::WorkspaceUnusable
        | Code::GitFailed
        | Code::ResumeTokenConsumed
        | Code::QueuedPromptConflict
        | Code::LimitReached
        | Code::SeqConflict
        | Code::EpochStale
        | Code::FileExists
        | Code::AgentUnusable
        | Code::AgentMissing
        | Code::AgentNotExecutable
        | Code::AgentStartFailed
        | Code::AgentExited
        | Code::AgentClosed
        | Code::AgentTimeout
        | Code::AgentVersion
        | Code::AgentProtocol
        | Code::AgentError
        | Code::AgentMessageTooLong
        | Code::AgentNotOffered
        | Code::AgentNoSession
        | Code::AgentRunning
        | Code::AgentBusy
        | Code::AgentAuthRequired
        | Code::AgentAuthFailed
        | Code::AgentAuthTimeout
        | Code::AgentAuthNotFound
        | Code::AgentSessionInUse
        | Code::SessionRefused
        | Code::ForkSourceRequired
        | Code::PromptTooLong
        | Code::TurnNotFound
        | Code::WorkspaceMissing
        | Code::ProtocolUnsupported
        | Code::CommandMismatch
        | Code::CommandInterrupted
        | Code::ExecutionExists
        | Code::ExecutionStuck
        | Code::ProcessesRemain
        | Code::SocketFolderUnsafe
        | Code::SocketPathTooLong
        | Code::PathIsFolder
        | Code::PathNotFolder
        | Code::PathNotFile
        | Code::FileTooLarge
        | Code::FileNotText
        | Code::FileNotPermitted
        | Code::GitMissing
        | Code::GitTimeout
        | Code::ShellStartFailed
        | Code::ShellWriteFailed
        | Code::GraphChanged
        | Code::MemoryValueRequired
        | Code::CheckpointNotResumable
        | Code::CheckpointDamaged
        | Code::CheckpointIncompatible
        | Code::CheckpointInUse
        | Code::SessionNotGraph
        | Code::SessionIsGraph
        | Code::StoreUnsupported
        | Code::ResponseNotKept => StatusCode::CONFLICT,
        Code::ResumeTokenExpired | Code::ResumeTokenRevoked | Code::WaitExpired => StatusCode::GONE,
        Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        Code::PayloadTooLarge | Code::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::ContentNotSupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::StorePoisoned
        | Code::StoreClosed
        | Code::StoreBusy
        | Code::StoreOverloaded
        | Code::AgentctlClosing
        | Code::AgentctlEnded
        | Code::AgentctlTimeout
        | Code::AgentctlUnreachable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<piton_runtime::Error> for Problem {
    fn from(error: piton_runtime::Error) -> Self {
        use piton_runtime::Error;
        let problem = Self::new(error.code(), error.to_string());
        match error {
            Error::Agentctl(Fault::Problem(theirs)) if theirs.code != problem.code => {
                problem.with_detail(theirs.code.to_string())
            }
            Error::Workspace(theirs) if theirs.code() != problem.code => {
                problem.with_detail(theirs.code().to_string())
            }
            Error::Graph(theirs) => problem.with_detail(theirs.hint()),
            Error::Invalid(detail) => Self::malformed(detail),
            Error::LinkInvalid => problem.with_detail("`piton open` makes a new one"),
            Error::StartError(start_error) => {
                Self::new(start_error.code, start_error.reason.sentence())
                    .with_detail(start_error.message)
                    .because_of(start_error.reason)
            }
            Error::StartFailed(failure) => {
                let title = format!("The agent `{}` could not be started", failure.agent);
                let choices = failure.choices().map(|choices| format!("\n{choices}"));
                let detail = format!("{}{}", failure.message, choices.unwrap_or_default());
                Self::new(failure.code(), title).with_detail(detail).because_of(failure.reason)
            }
            Error::Finish(fault) => Self { detail: fault.detail(), ..problem },
            Error::Worktree(fault) => {
                Self { detail: fault.detail(), reason: fault.reason(), ..problem }
            }
            Error::WorktreePending { session, error } => {
                let problem = Self::from(*error);
                let detail = problem.detail.iter().map(|detail| format!("{detail}; "));
                let made =
                    format!("session {session} is made, and tries it again when it is resumed");
                let detail = detail.chain([made]).collect::<String>();
                problem.with_detail(detail)
            }
            _ => problem,
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        piton_runtime::Error::from(error).into()
    }
}

impl From<piton_store::Error> for Problem {
    fn from(error: piton_store::Error) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), refusal.to_string())
    }
}

impl From<piton_core::id::Error> for Problem {
    fn from(error: piton_core::id::Error) -> Self {
        Self::new(Code::IdInvalid, error.to_string())
    }
}

impl From<AccessDenied> for Problem {
    fn from(denied: AccessDenied) -> Self {
        let code = match denied {
            AccessDenied::Unknown => Code::Unauthenticated,
            AccessDenied::Expired => Code::AccessTokenExpired,
            AccessDenied::Scope { .. } => Code::InsufficientScope,
        };
        Self::new(code, denied.to_string())
    }
}

impl Problem {
    fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| status_of(self.code))
    }

    pub(crate) fn document(self) -> problem::Problem {
        let status = self.status();
        let Self { code, title, detail, reason, .. } = self;
        problem::Problem {
            kind: format!("urn:piton:error:{code}"),
            title,
            status: status.as_u16(),
            code: code.into(),
            hint: code.hint().to_owned(),
            detail,
            reason: reason.map(Into::into),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (code, retry_after_s) = (self.code, self.retry_after_s);
        let status = self.status();
        let document = self.document();
        let mut response = (status, axum::Json(document)).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
