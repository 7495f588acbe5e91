//! The steps of a machine from its Machine to a Ready node, and what to check next. Pure.

use serde::Serialize;

/// An answer from the API server, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known<T> {
    /// The answer.
    Is(T),
    /// The reason why there is none.
    Unknown(String),
}

/// The Machine object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// The time of its creation.
    pub(super) created: Option<String>,
    /// The error that machine-controller has recorded.
    pub(super) error: Option<String>,
}

/// The documents that are stored for the machine deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Documents {
    /// The machine deployment, as `namespace/name`.
    pub(super) deployment: String,
    /// The revision from machine-controller; empty before the first.
    pub(super) revision: String,
    /// The Secrets that should exist but do not.
    pub(super) missing: Vec<String>,
    /// The revisions for which the others were created.
    pub(super) made_for: Vec<String>,
}

/// A certificate signing request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateRequest {
    /// The name of the request.
    pub(super) name: String,
    /// The time of the request.
    pub(super) asked: Option<String>,
    /// True if it was approved.
    pub(super) approved: bool,
    /// The reason why it was denied or could not be signed.
    pub(super) refused: Option<String>,
    /// True if the certificate was issued.
    pub(super) issued: bool,
}

/// The Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// The time of its creation.
    pub(super) created: Option<String>,
    /// The operating system and the kubelet's version.
    pub(super) system: String,
    /// The condition `Ready`: its status, its last transition, and its message.
    pub(super) ready: Option<(String, Option<String>, String)>,
    /// The condition `DocumentApplied`, likewise, if the machine reports; and true if only a newer
    /// document differs.
    pub(super) applied: Option<(String, Option<String>, String)>,
    pub(super) is_behind: bool,
}

/// Everything that is known about a machine.
#[derive(Clone, Debug)]
pub(super) struct Observations {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) machine: Known<Option<Machine>>,
    pub(super) documents: Known<Documents>,
    /// The day on which the token was last used.
    pub(super) fetched: Known<Option<String>>,
    pub(super) client: Known<Vec<CertificateRequest>>,
    pub(super) serving: Known<Vec<CertificateRequest>>,
    pub(super) node: Known<Option<Node>>,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The machine has completed it.
    Done,
    /// The machine has not completed it.
    Waiting,
    /// It failed.
    Failed,
    /// It could not be determined.
    Unknown,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The name of the step.
    pub step: &'static str,
    /// The state of the step.
    pub state: State,
    /// The facts about the step.
    pub detail: String,
    /// The next check if the machine stops here.
    #[serde(skip)]
    next: Option<String>,
}

/// The steps of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The machine's name.
    pub machine: String,
    /// The steps, in their order.
    pub steps: Vec<Step>,
    /// True if the machine is a Ready node.
    pub ready: bool,
    /// The next check; `None` if it is ready.
    pub next: Option<String>,
}

impl Step {
    fn new(step: &'static str, state: State, detail: impl Into<String>) -> Self {
        Self {
            step,
            state,
            detail: detail.into(),
            next: None,
        }
    }

    fn look_at(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }
}

/// Evaluates the steps in their order. A step that the machine has passed is not a reason to check
/// anything.
pub(super) fn progress(observed: &Observations) -> Progress {
    let mut steps = vec![
        machine(observed),
        documents(observed),
        fetched(observed),
        client(observed),
        node(observed),
        serving(observed),
        ready(observed),
    ];
    let has_asked = matches!(&observed.client, Known::Is(requests) if !requests.is_empty());
    let has_joined = matches!(observed.node, Known::Is(Some(_)));
    for step in &mut steps {
        let is_proven = match step.step {
            FETCHED => has_asked || has_joined,
            // A request that waits or was refused is newer than what the node proves.
            CLIENT => has_joined && !has_asked,
            _ => false,
        };
        if is_proven {
            step.state = State::Done;
            step.detail = format!("yes, since a later step is done ({})", step.detail);
        }
    }
    let past = match (has_joined, has_asked) {
        (false, false) => MACHINE,
        _ => CLIENT,
    };
    let open = || {
        let from_there = steps.iter().skip_while(|it| it.step != past);
        from_there.filter(|it| it.next.is_some())
    };
    let first = |state: State| open().find(|it| it.state == state);
    let step = first(State::Failed)
        .or_else(|| first(State::Waiting))
        .or_else(|| first(State::Unknown));
    let next = step.and_then(|it| it.next.clone());
    let ready = steps.last().is_some_and(|it| it.state == State::Done);
    steps.extend(applied(observed));
    Progress {
        machine: observed.name.clone(),
        next: next.filter(|_| !ready),
        ready,
        steps,
    }
}

const MACHINE: &str = "machine";
const DOCUMENTS: &str = "documents";
const FETCHED: &str = "document fetched";
const CLIENT: &str = "client certificate";
const NODE: &str = "node";
const SERVING: &str = "serving certificate";
const READY: &str = "Ready";
const APPLIED: &str = "document applied";

fn unknown(step: &'static str, why: &str) -> Step {
    Step::new(step, State::Unknown, why).look_at(format!("{step} is unknown: {why}"))
}

fn machine(observed: &Observations) -> Step {
    let Observations {
        namespace, name, ..
    } = observed;
    match &observed.machine {
        Known::Unknown(why) => unknown(MACHINE, why),
        Known::Is(None) => Step::new(MACHINE, State::Waiting, "there is no Machine of this name")
            .look_at(format!(
                "list the machines: kubectl -n {namespace} get machines; they may have other \
                 names than their nodes"
            )),
        Known::Is(Some(machine)) => match &machine.error {
            Some(error) => Step::new(MACHINE, State::Failed, error.clone()).look_at(format!(
                "machine-controller reports an error: \
                 kubectl -n {namespace} describe machine {name}"
            )),
            None => Step::new(
                MACHINE,
                State::Done,
                since("created", machine.created.as_ref()),
            ),
        },
    }
}

fn documents(observed: &Observations) -> Step {
    let documents = match &observed.documents {
        Known::Is(documents) => documents,
        Known::Unknown(why) => return unknown(DOCUMENTS, why),
    };
    let explain = format!("run osm explain {}", documents.deployment);
    if !documents.missing.is_empty() {
        let detail = format!(
            "missing in cloud-init-settings: {}",
            documents.missing.join(", ")
        );
        return Step::new(DOCUMENTS, State::Failed, detail)
            .look_at(format!("the manager has not written them: {explain}"));
    }
    let (of, revision) = (&documents.deployment, &documents.revision);
    if documents.made_for.is_empty() {
        return Step::new(DOCUMENTS, State::Unknown, "written by another program");
    }
    if documents.made_for.iter().any(|it| it != revision) {
        let detail = format!("not yet written for revision {revision:?} of {of}");
        return Step::new(DOCUMENTS, State::Waiting, detail)
            .look_at(format!("the manager has not written them yet: {explain}"));
    }
    let written = if revision.is_empty() {
        format!("written for {of}, to which machine-controller has given no revision yet")
    } else {
        format!("written for revision {revision} of {of}")
    };
    Step::new(DOCUMENTS, State::Done, written)
}

fn fetched(observed: &Observations) -> Step {
    match &observed.fetched {
        Known::Unknown(why) => unknown(FETCHED, why),
        Known::Is(Some(day)) => Step::new(
            FETCHED,
            State::Unknown,
            format!("the token was last used on {day}, by any machine or the manager's check"),
        )
        .look_at(CONSOLE),
        Known::Is(None) => {
            Step::new(FETCHED, State::Waiting, "the token was never used").look_at(CONSOLE)
        }
    }
}

const CONSOLE: &str = "the machine has not asked for a certificate: look at its console for lines \
    with `bootstrap:` and `setup:`; the lines above `failed, next attempt in` say why it stopped. \
    Without any of them, cloud-init has not run, or the machine got no user data";

fn client(observed: &Observations) -> Step {
    let Some(request) = last(&observed.client) else {
        return match &observed.client {
            Known::Unknown(why) => unknown(CLIENT, why),
            Known::Is(_) => Step::new(
                CLIENT,
                State::Waiting,
                "not requested, or so long ago that the request is gone",
            )
            .look_at(CONSOLE),
        };
    };
    certificate(
        CLIENT,
        request,
        "kube-controller-manager's approving controller does not run, or the token's group is not \
         bound to system:certificates.k8s.io:certificatesigningrequests:nodeclient",
    )
}

fn serving(observed: &Observations) -> Step {
    let Some(request) = last(&observed.serving) else {
        return match &observed.serving {
            Known::Unknown(why) => unknown(SERVING, why),
            Known::Is(_) if matches!(observed.node, Known::Is(Some(_))) => Step::new(
                SERVING,
                State::Unknown,
                "no request is there; Kubernetes deletes them after an hour or two",
            ),
            Known::Is(_) => Step::new(SERVING, State::Waiting, "not requested"),
        };
    };
    certificate(
        SERVING,
        request,
        "machine-controller approves it once it knows the machine; until then, kubectl logs fails",
    )
}

fn certificate(step: &'static str, request: &CertificateRequest, waits: &str) -> Step {
    let name = &request.name;
    if let Some(why) = &request.refused {
        return Step::new(step, State::Failed, format!("{name}: {why}"))
            .look_at(format!("kubectl describe csr {name}"));
    }
    if request.issued {
        let asked = since("requested", request.asked.as_ref());
        return Step::new(step, State::Done, format!("issued, {asked}"));
    }
    if request.approved {
        let detail = format!("{name} is approved and not signed");
        return Step::new(step, State::Waiting, detail).look_at(
            "kube-controller-manager's signing controller does not run, or has no authority: look at \
             its --cluster-signing-cert-file and --cluster-signing-key-file",
        );
    }
    let detail = format!("{name} waits for approval");
    Step::new(step, State::Waiting, detail).look_at(format!(
        "{waits}; by hand: kubectl certificate approve {name}"
    ))
}

fn node(observed: &Observations) -> Step {
    match &observed.node {
        Known::Unknown(why) => unknown(NODE, why),
        Known::Is(Some(node)) => Step::new(
            NODE,
            State::Done,
            format!(
                "{}, {}",
                since("registered", node.created.as_ref()),
                node.system
            ),
        ),
        Known::Is(None) => Step::new(NODE, State::Waiting, "not registered").look_at(
            "the kubelet does not register: on the machine, journalctl -u kubelet -u containerd",
        ),
    }
}

fn ready(observed: &Observations) -> Step {
    match &observed.node {
        Known::Unknown(why) => unknown(READY, why),
        Known::Is(None) => Step::new(READY, State::Waiting, "there is no node"),
        Known::Is(Some(node)) => match &node.ready {
            Some((status, at, _)) if status == "True" => {
                Step::new(READY, State::Done, since("True", at.as_ref()))
            }
            Some((status, at, message)) => {
                let why = if status == "False" {
                    format!(
                        "the kubelet reports: {message}. Most often a network plugin is missing; \
                         else, on the machine, journalctl -u kubelet"
                    )
                } else {
                    "the kubelet no longer reports: check that the machine runs and reaches its \
                     API server"
                        .to_owned()
                };
                let status = since(status, at.as_ref());
                Step::new(READY, State::Waiting, format!("{status}: {message}")).look_at(why)
            }
            None => Step::new(READY, State::Waiting, "the kubelet has not reported yet")
                .look_at("the kubelet has not reported yet: on the machine, journalctl -u kubelet"),
        },
    }
}

/// Returns how the machine differs from its document, if it reports that.
fn applied(observed: &Observations) -> Option<Step> {
    let Known::Is(Some(node)) = &observed.node else {
        return None;
    };
    let (status, at, message) = node.applied.as_ref()?;
    let state = match status.as_str() {
        "True" => State::Done,
        "False" if node.is_behind => State::Waiting,
        "False" => State::Failed,
        _ => State::Unknown,
    };
    let status = since(status, at.as_ref());
    Some(Step::new(APPLIED, state, format!("{status}: {message}")))
}

fn last(requests: &Known<Vec<CertificateRequest>>) -> Option<&CertificateRequest> {
    match requests {
        Known::Is(requests) => requests.iter().max_by_key(|it| it.asked.as_deref()),
        Known::Unknown(_) => None,
    }
}

fn since(what: &str, at: Option<&String>) -> String {
    at.map_or_else(|| what.to_owned(), |at| format!("{what} {at}"))
}

#[cfg(test)]
mod tests;
