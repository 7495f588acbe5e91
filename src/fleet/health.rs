//! How a worker cluster is doing, from the calls that are made anyway: nothing is sent to find out.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use http::StatusCode;

use super::board::Board;
use crate::telemetry::logs::chain;
use crate::tenant::report::{ConditionType, Finding};

/// No call has been observed yet.
const UNKNOWN: u16 = 0;
/// The last call got no answer.
const UNREACHABLE: u16 = 1;
/// The last call got an answer that only a healthy cluster gives.
const HEALTHY: u16 = 2;

/// Observes the calls to one worker cluster, and writes changes to the tenant's board.
#[derive(Debug)]
pub struct Health {
    board: Arc<Board>,
    /// One of the states above, or the status of the last answer that was a failure: a call that
    /// changes nothing costs one comparison.
    state: AtomicU16,
}

impl Health {
    /// Writes to this board.
    pub fn new(board: Arc<Board>) -> Self {
        Self {
            board,
            state: AtomicU16::new(UNKNOWN),
        }
    }

    /// The cluster answered.
    pub fn answered(&self, status: StatusCode) {
        let state = if is_failure(status) {
            status.as_u16()
        } else {
            HEALTHY
        };
        if self.state.swap(state, Ordering::Relaxed) == state {
            return;
        }
        let finding = if state == HEALTHY {
            Finding::well("Healthy")
        } else {
            Finding::wrong("Degraded", format!("the API server answers {status}"))
        };
        self.board.found(ConditionType::Connected, finding);
    }

    /// The cluster did not answer.
    pub fn unreachable(&self, error: &(dyn Error + 'static)) {
        if self.state.swap(UNREACHABLE, Ordering::Relaxed) != UNREACHABLE {
            let why = chain(error).to_string();
            self.board
                .found(ConditionType::Connected, Finding::wrong("Unreachable", why));
        }
    }
}

/// Whether the answer says something about the cluster rather than about the request.
fn is_failure(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::UNAUTHORIZED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(board: &Board) -> (bool, &'static str, String) {
        let report = board.report();
        let finding = report.findings[&ConditionType::Connected].clone();
        (finding.holds, finding.reason, finding.message)
    }

    #[test]
    fn the_board_says_what_the_last_call_said() {
        let board = Arc::new(Board::default());
        let health = Health::new(Arc::clone(&board));
        for (status, holds, reason) in [
            (StatusCode::OK, true, "Healthy"),
            (StatusCode::SERVICE_UNAVAILABLE, false, "Degraded"),
            (StatusCode::NOT_FOUND, true, "Healthy"),
            (StatusCode::TOO_MANY_REQUESTS, false, "Degraded"),
            (StatusCode::CONFLICT, true, "Healthy"),
            (StatusCode::UNAUTHORIZED, false, "Degraded"),
            (StatusCode::FORBIDDEN, true, "Healthy"),
        ] {
            health.answered(status);
            assert_eq!(said(&board).0, holds, "{status}");
            assert_eq!(said(&board).1, reason, "{status}");
        }
        health.answered(StatusCode::INTERNAL_SERVER_ERROR);
        assert!(said(&board).2.contains("500"));
        health.answered(StatusCode::BAD_GATEWAY);
        assert!(said(&board).2.contains("502"), "another failure is news");
        health.unreachable(&std::io::Error::other("refused"));
        assert_eq!(said(&board), (false, "Unreachable", "refused".to_owned()));
        health.answered(StatusCode::OK);
        assert!(said(&board).0);
    }
}
