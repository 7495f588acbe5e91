//! Hands the user clusters of a KKP seed over to the manager, and back, with one field of KKP's
//! Cluster. They are handed over in waves: the first has one cluster, and none follows a wave that
//! is not served. A cluster whose documents would change stays where it is.

mod kkp_cluster;
mod seed;
mod wait;

use std::{num::NonZeroUsize, time::Duration};

pub use self::kkp_cluster::command;
use self::seed::Seed;
use super::{
    count::Count,
    plan::{Answer, Question, Verdict, plan},
    selection::Selection,
};
use crate::fleet::discovery::kkp::namespace_of;
use crate::tenant::inventory::Inventory;

/// Who is to serve the user clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The manager of the seed.
    ToUs,
    /// KKP's manager of each.
    Back,
}

/// What is to be handed over.
#[derive(Debug)]
pub struct HandOver {
    /// The settings of the manager, and the seed.
    pub question: Question,
    /// The user clusters, by KKP's names. If empty, all.
    pub ids: Vec<String>,
    /// Who is to serve them.
    pub direction: Direction,
    /// The number of user clusters in a wave.
    pub at_once: NonZeroUsize,
    /// How long a wave may take.
    pub patience: Duration,
}

/// What is to happen with a user cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// KKP's name of it.
    pub id: String,
    /// What is to happen.
    pub action: Action,
}

impl Step {
    /// Returns the namespace of the user cluster in the seed.
    pub fn namespace(&self) -> String {
        namespace_of(&self.id)
    }
}

/// What is to happen with a user cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: it is where it is to be.
    Nothing,
    /// It stays where it is. The text is for operators.
    Refuse(String),
    /// It is handed over.
    HandOver,
}

/// The end of a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The number of user clusters that were handed over.
    pub handed_over: usize,
    /// The number of those that stay where they are, and should not.
    pub refused: usize,
}

/// Returns what would happen with each user cluster, and what the manager would write into those
/// that are handed over to it. Writes nothing.
///
/// # Errors
///
/// A call to the seed's API server fails, or a user cluster does not exist.
pub async fn look(
    mut hand_over: HandOver,
    count: &Count,
) -> anyhow::Result<(Vec<Step>, Vec<Answer>)> {
    let mut steps = Seed::read(&hand_over).await?.steps(&hand_over)?;
    let answers = hand_over.plan(&mut steps, count).await?;
    Ok((steps, answers))
}

/// Hands the user clusters over, and reports each step with a call of `progress`. It can be run
/// again after a failure.
///
/// # Errors
///
/// A call to the seed's API server fails, a user cluster does not exist, or one of a wave is not
/// served in time.
pub async fn hand_over(
    mut hand_over: HandOver,
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<Ended> {
    let seed = Seed::read(&hand_over).await?;
    let mut remaining = seed.steps(&hand_over)?;
    remaining.retain(|it| it.action != Action::Nothing);
    let mut ended = Ended::default();
    while !remaining.is_empty() {
        let size = if ended.handed_over == 0 {
            1
        } else {
            hand_over.at_once.get()
        };
        let mut wave: Vec<Step> = remaining.drain(..size.min(remaining.len())).collect();
        hand_over.plan(&mut wave, &Count::default()).await?;
        let mut patched = Vec::new();
        for Step { id, action } in wave {
            if let Action::Refuse(why) = action {
                ended.refused += 1;
                progress(format!("{id}: stays, because {why}"));
                continue;
            }
            seed.patch(&id, hand_over.direction).await?;
            patched.push(id);
        }
        if !patched.is_empty() {
            let these = patched.join(", ");
            progress(format!("patched: {these}; {} remain", remaining.len()));
        }
        ended.handed_over += patched.len();
        seed.wait(patched, &hand_over, progress).await?;
    }
    Ok(ended)
}

impl HandOver {
    /// Returns what the manager would write into the clusters that are handed over to it. Refuses
    /// those whose documents would change, or that would not be served.
    async fn plan(&mut self, steps: &mut [Step], count: &Count) -> anyhow::Result<Vec<Answer>> {
        let handed_over = steps.iter().filter(|it| it.action == Action::HandOver);
        let namespaces: Vec<String> = handed_over.map(Step::namespace).collect();
        if namespaces.is_empty() || self.direction == Direction::Back {
            return Ok(Vec::new());
        }
        self.question.settings.inventories = [Inventory::Kkp].into();
        self.question.selection = Selection {
            namespaces,
            ..Selection::default()
        };
        let answers = plan(&self.question, count).await?;
        for step in steps.iter_mut() {
            let namespace = step.namespace();
            let mut of_it = answers.iter().filter(|it| it.tenant == namespace);
            if let Some(why) = of_it.find_map(why_not) {
                step.action = Action::Refuse(why);
            }
        }
        Ok(answers)
    }
}

/// Returns why a user cluster with this answer is not handed over.
fn why_not(answer: &Answer) -> Option<String> {
    let name = answer.machine_deployment.as_deref();
    let what = match (answer.verdict, name) {
        (Verdict::Rotated, Some(name)) => format!("the documents of {name} would change"),
        (Verdict::Refused | Verdict::Unknown, Some(name)) => format!("{name} would not be served"),
        (Verdict::Refused | Verdict::Unknown, None) => "it cannot be served".to_owned(),
        _ => return None,
    };
    let why = answer.message.as_deref().map(|it| format!(": {it}"));
    Some(what + &why.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_handed_over_unless_something_would_change_or_not_be_served() {
        let answer = |verdict, name: Option<&str>, message: Option<&str>| Answer {
            message: message.map(str::to_owned),
            ..Answer::new("cluster-a", name.map(str::to_owned), verdict)
        };
        let workers = Some("kube-system/workers");
        for (answer, expected) in [
            (answer(Verdict::Unchanged, workers, None), None),
            (answer(Verdict::Written, None, None), None),
            // It waits for something that KKP's manager would wait for, too.
            (answer(Verdict::Waiting, workers, Some("no revision")), None),
            (
                answer(Verdict::Rotated, workers, None),
                Some("the documents of kube-system/workers would change"),
            ),
            (
                answer(Verdict::Refused, workers, Some("no profile")),
                Some("kube-system/workers would not be served: no profile"),
            ),
            (
                answer(Verdict::Unknown, None, Some("no answer")),
                Some("it cannot be served: no answer"),
            ),
        ] {
            assert_eq!(why_not(&answer).as_deref(), expected, "{answer:?}");
        }
    }
    #[test]
    fn the_page_has_the_command_that_hands_a_cluster_over() {
        let page = include_str!("../../docs/kkp.md").replace(" \\\n  ", " ");
        let command = command("abc123", Direction::ToUs);
        assert!(page.contains(&command), "{command}");
        let back = super::command("abc123", Direction::Back);
        assert!(back.ends_with(r#"{"replicas":null}}}}'"#), "{back}");
    }
}
