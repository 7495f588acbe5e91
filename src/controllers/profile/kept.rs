//! The result of a pass over a tenant's default profiles, and what is said about it.

use crate::api::{
    condition::ConditionType,
    names::PROFILE,
    reason::Reason,
    worker_cluster::{ProfileRollout, WorkerCluster},
};
use crate::controllers::{context::Context, state::rollout_slots::SlotState};
use crate::fleet::events::{self, Occurrence};
use crate::tenant::report::ConditionState;

/// The result of a pass: the default profiles that are not simply up to date.
#[derive(Debug, Default)]
pub struct Kept {
    pub pace: ProfileRollout,
    pub is_disabled: bool,
    pub created: Vec<String>,
    pub edited: Vec<String>,
    pub newer: Vec<String>,
    pub older: Vec<String>,
    pub awaiting: Vec<String>,
    pub overwritten: Vec<String>,
}

impl Kept {
    /// Returns true if something waits for the tenant's slot.
    pub fn waits(&self) -> bool {
        !self.awaiting.is_empty() && self.pace == ProfileRollout::Waves
    }

    pub fn finding(&self, slot: &SlotState) -> ConditionState {
        let reason = match (slot, self.pace) {
            _ if self.is_disabled => Reason::Disabled,
            _ if self.awaiting.is_empty() => Reason::Installed,
            (_, ProfileRollout::Manual) => Reason::AwaitingApproval,
            (SlotState::Paused(_), _) => Reason::RolloutPaused,
            _ => Reason::AwaitingTurn,
        };
        let mut message = self.remarks();
        if let (SlotState::Paused(why), Reason::RolloutPaused) = (slot, reason) {
            message.push(why.clone());
        }
        ConditionState {
            message: message.join("; "),
            ..ConditionState::well(reason)
        }
    }

    /// Returns remarks for people, as parts of a sentence.
    fn remarks(&self) -> Vec<String> {
        [
            (&self.edited, "edited, and kept as found"),
            (&self.newer, "of a newer release, and kept"),
            (&self.older, "older than ours, and kept"),
            (&self.awaiting, "to be replaced by a newer one"),
        ]
        .into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, what)| format!("{what}: {}", names.join(", ")))
        .collect()
    }
}

/// Emits Events about results that people may not expect: once for an edit that is kept, and each
/// time that content is overwritten.
pub async fn report_kept(context: &Context, kept: &Kept) {
    let (tenant_status, own) = (
        &context.engagement.tenant_status,
        context.engagement.worker_cluster.borrow().clone(),
    );
    let Some(own) = own else { return };
    let remarks = kept.remarks();
    let edited = remarks.first().filter(|_| !kept.edited.is_empty());
    if let Some(edited) = edited {
        let in_memory = tenant_status.read(|report| {
            let finding = report.findings.get(&ConditionType::ProfilesInstalled);
            finding.is_some_and(|finding| finding.message.contains(edited.as_str()))
        });
        let conditions = own.status.iter().flat_map(|status| &status.conditions);
        let in_status = conditions.into_iter().any(|it| it.message.contains(edited));
        if !in_memory && !in_status {
            let note = format!("{}; {edited}", extend_instead(&kept.edited));
            warn(context, &own, (Reason::DefaultProfileEdited, &note)).await;
        }
    }
    if !kept.overwritten.is_empty() {
        let profiles = kept.overwritten.join(", ");
        let how = extend_instead(&kept.overwritten);
        let note = format!("{how}; replaced by ours: {profiles}");
        warn(context, &own, (Reason::DefaultProfileReplaced, &note)).await;
    }
}

/// Says how to change a default profile so that its newer versions are still installed.
fn extend_instead(profiles: &[String]) -> String {
    let name = profiles.first().and_then(|it| it.split(' ').next());
    let name = name.unwrap_or_default();
    format!(
        "to change {name}, create a profile of another name with spec.extends: {name}, and name it \
         in the annotation {PROFILE}"
    )
}

async fn warn(context: &Context, own: &WorkerCluster, (reason, note): (Reason, &str)) {
    let occurrence = Occurrence {
        action: "InstallProfiles",
        reason,
        note,
    };
    let engagement = &context.engagement;
    let known = (&*engagement.tenant_status, &engagement.shared.clock);
    events::publish(&engagement.management, known, (own, occurrence)).await;
}
