//! A machine's way to a node in the order in which it goes, and the first thing to look at. Pure.

use serde::Serialize;

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known<T> {
    /// It is so.
    Is(T),
    /// Nobody could say, and this is why.
    Unknown(String),
}

/// The Machine object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// When it was created.
    pub(super) created: Option<String>,
    /// The error that machine-controller has noted.
    pub(super) error: Option<String>,
}

/// What is stored for the machine deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Documents {
    /// The machine deployment, as `namespace/name`.
    pub(super) deployment: String,
    /// The revision that machine-controller has given to it; empty before the first.
    pub(super) revision: String,
    /// The Secrets that should be there and are not.
    pub(super) missing: Vec<String>,
    /// The revisions that the others were made for.
    pub(super) made_for: Vec<String>,
}

/// A request for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateRequest {
    /// Its name.
    pub(super) name: String,
    /// When the kubelet asked.
    pub(super) asked: Option<String>,
    /// Somebody has approved it.
    pub(super) approved: bool,
    /// Why it was denied, or could not be signed.
    pub(super) refused: Option<String>,
    /// The certificate is there.
    pub(super) issued: bool,
}

/// The Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// When it was created.
    pub(super) created: Option<String>,
    /// The operating system and the kubelet's version.
    pub(super) system: String,
    /// The condition `Ready`: its status, since when, reason and message.
    pub(super) ready: Option<(String, Option<String>, String)>,
}

/// Everything that could be learned about a machine.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) machine: Known<Option<Machine>>,
    pub(super) documents: Known<Documents>,
    /// The day on which the token was last used.
    pub(super) fetched: Known<Option<String>>,
    pub(super) client: Known<Vec<CertificateRequest>>,
    pub(super) serving: Known<Vec<CertificateRequest>>,
    pub(super) node: Known<Option<Node>>,
}

/// How a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The machine is past it.
    Done,
    /// It is not.
    Waiting,
    /// It went wrong.
    Failed,
    /// Nobody could say.
    Unknown,
}

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What the step is.
    pub step: &'static str,
    /// How it is.
    pub state: State,
    /// What is known of it.
    pub detail: String,
    /// What to look at, where the machine stops here.
    #[serde(skip)]
    next: Option<String>,
}

/// The way of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The machine's name.
    pub machine: String,
    /// The steps, in their order.
    pub steps: Vec<Step>,
    /// Whether the machine is a Ready node.
    pub ready: bool,
    /// What to look at next, where it is not.
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

/// Puts the steps in order. A step is done, too, where a later one proves it.
pub(super) fn way(facts: &Facts) -> Way {
    let mut steps = vec![
        machine(facts),
        documents(facts),
        fetched(facts),
        client(facts),
        node(facts),
        serving(facts),
        ready(facts),
    ];
    let has_asked = matches!(&facts.client, Known::Is(requests) if !requests.is_empty());
    let has_joined = matches!(facts.node, Known::Is(Some(_)));
    for step in &mut steps {
        let is_proven = match step.step {
            FETCHED => has_asked || has_joined,
            CLIENT => has_joined,
            _ => false,
        };
        if is_proven && step.state != State::Done {
            step.state = State::Done;
            step.detail = format!("yes, since a later step is done ({})", step.detail);
        }
    }
    let ready = steps.last().is_some_and(|it| it.state == State::Done);
    let stops_at = |states: &[State]| {
        let step = steps.iter().find(|it| states.contains(&it.state));
        step.and_then(|it| it.next.clone())
    };
    let next = stops_at(&[State::Failed])
        .or_else(|| stops_at(&[State::Waiting]))
        .or_else(|| stops_at(&[State::Unknown]));
    Way {
        machine: facts.name.clone(),
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

fn unknown(step: &'static str, why: &str) -> Step {
    Step::new(step, State::Unknown, why).look_at(format!("{step} is unknown: {why}"))
}

fn machine(facts: &Facts) -> Step {
    match &facts.machine {
        Known::Unknown(why) => unknown(MACHINE, why),
        Known::Is(None) => Step::new(MACHINE, State::Waiting, "there is no Machine of this name")
            .look_at(
                "list the machines: kubectl -n kube-system get machines; their names are those \
                 of the nodes",
            ),
        Known::Is(Some(machine)) => match &machine.error {
            Some(error) => Step::new(MACHINE, State::Failed, error.clone()).look_at(format!(
                "the provider refuses the machine: kubectl -n kube-system describe machine {}",
                facts.name
            )),
            None => Step::new(
                MACHINE,
                State::Done,
                since("created", machine.created.as_ref()),
            ),
        },
    }
}

fn documents(facts: &Facts) -> Step {
    let documents = match &facts.documents {
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
    let is_old = documents.made_for.iter().any(|it| it != revision);
    if is_old {
        let detail = format!("of another revision than {revision} of {of}");
        return Step::new(DOCUMENTS, State::Waiting, detail)
            .look_at(format!("the manager is about to write them: {explain}"));
    }
    Step::new(
        DOCUMENTS,
        State::Done,
        format!("current, for revision {revision} of {of}"),
    )
}

fn fetched(facts: &Facts) -> Step {
    match &facts.fetched {
        Known::Unknown(why) => unknown(FETCHED, why),
        Known::Is(Some(day)) => Step::new(
            FETCHED,
            State::Unknown,
            format!("the token was last used on {day}, by any machine or the manager's check"),
        )
        .look_at(console(&facts.name)),
        Known::Is(None) => Step::new(FETCHED, State::Waiting, "the token was never used")
            .look_at(console(&facts.name)),
    }
}

fn console(name: &str) -> String {
    format!(
        "the machine has not asked for a certificate: look at its console. Lines that begin with \
         `bootstrap:` and `setup:` say which stage it is in and why one failed. Without the \
         first, {name} has not reached its API server or has no user data"
    )
}

fn client(facts: &Facts) -> Step {
    let Some(request) = last(&facts.client) else {
        return match &facts.client {
            Known::Unknown(why) => unknown(CLIENT, why),
            Known::Is(_) => Step::new(
                CLIENT,
                State::Waiting,
                "not requested, or so long ago that the request is gone",
            )
            .look_at(console(&facts.name)),
        };
    };
    certificate(
        CLIENT,
        request,
        "the controller that approves requests of bootstrap tokens is not running, or the group \
         of the token is not bound to \
         system:certificates.k8s.io:certificatesigningrequests:nodeclient",
    )
}

fn serving(facts: &Facts) -> Step {
    let Some(request) = last(&facts.serving) else {
        return match &facts.serving {
            Known::Unknown(why) => unknown(SERVING, why),
            Known::Is(_) => Step::new(
                SERVING,
                State::Unknown,
                "no request is there; requests are deleted after an hour",
            ),
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
            "the controller that signs requests is not running, or has no authority: look at \
             kube-controller-manager's --cluster-signing-cert-file and --cluster-signing-key-file",
        );
    }
    let detail = format!("{name} waits for approval");
    Step::new(step, State::Waiting, detail).look_at(format!(
        "{waits}; by hand: kubectl certificate approve {name}"
    ))
}

fn node(facts: &Facts) -> Step {
    match &facts.node {
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

fn ready(facts: &Facts) -> Step {
    match &facts.node {
        Known::Unknown(why) => unknown(READY, why),
        Known::Is(None) => Step::new(READY, State::Waiting, "there is no node"),
        Known::Is(Some(node)) => match &node.ready {
            Some((status, at, _)) if status == "True" => {
                Step::new(READY, State::Done, since("True", at.as_ref()))
            }
            Some((status, at, message)) => {
                let status = since(status, at.as_ref());
                Step::new(READY, State::Waiting, format!("{status}: {message}")).look_at(format!(
                    "the kubelet says why: {message}. A network plugin that is missing is the \
                     commonest; else, on the machine, journalctl -u kubelet"
                ))
            }
            None => Step::new(READY, State::Waiting, "the kubelet has not reported yet"),
        },
    }
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
mod tests {
    use super::*;

    /// A machine that has become a Ready node; each test takes back what it is about.
    fn joined() -> Facts {
        let issued = || CertificateRequest {
            name: "csr-1".to_owned(),
            approved: true,
            issued: true,
            ..CertificateRequest::default()
        };
        Facts {
            name: "one".to_owned(),
            machine: Known::Is(Some(Machine::default())),
            documents: Known::Is(Documents {
                deployment: "kube-system/workers".to_owned(),
                revision: "3".to_owned(),
                made_for: vec!["3".to_owned()],
                ..Documents::default()
            }),
            fetched: Known::Is(Some("2026-03-01".to_owned())),
            client: Known::Is(vec![issued()]),
            serving: Known::Is(vec![issued()]),
            node: Known::Is(Some(Node {
                ready: Some(("True".to_owned(), None, String::new())),
                ..Node::default()
            })),
        }
    }

    fn is_new() -> Facts {
        Facts {
            fetched: Known::Is(None),
            client: Known::Is(Vec::new()),
            serving: Known::Is(Vec::new()),
            node: Known::Is(None),
            ..joined()
        }
    }

    fn next(facts: &Facts) -> String {
        way(facts).next.expect("it is not Ready")
    }

    #[test]
    fn a_ready_node_needs_no_look() {
        let way = way(&joined());
        assert!(way.ready && way.next.is_none(), "{way:?}");
        assert!(way.steps.iter().all(|it| it.state != State::Waiting));
    }

    #[test]
    fn the_first_step_that_is_not_done_says_what_to_look_at() {
        let mut facts = is_new();
        assert!(next(&facts).contains("console"));
        facts.client = Known::Is(vec![CertificateRequest {
            name: "csr-7".to_owned(),
            ..CertificateRequest::default()
        }]);
        assert!(next(&facts).contains("kubectl certificate approve csr-7"));
        facts.client = Known::Is(vec![CertificateRequest {
            approved: true,
            ..CertificateRequest::default()
        }]);
        assert!(next(&facts).contains("--cluster-signing-cert-file"));
        facts.client = joined().client;
        assert!(next(&facts).contains("journalctl -u kubelet"));
        facts.node = Known::Is(Some(Node {
            ready: Some(("False".to_owned(), None, "no network".to_owned())),
            ..Node::default()
        }));
        assert!(next(&facts).contains("no network"));
    }

    #[test]
    fn what_went_wrong_comes_before_what_waits() {
        let mut facts = is_new();
        facts.documents = Known::Is(Documents {
            deployment: "kube-system/workers".to_owned(),
            missing: vec!["it".to_owned()],
            ..Documents::default()
        });
        assert!(next(&facts).contains("osm explain kube-system/workers"));
    }

    #[test]
    fn what_may_not_be_read_is_unknown_and_said_after_what_is_known() {
        let forbidden = || "forbidden".to_owned();
        let mut facts = is_new();
        facts.client = Known::Unknown(forbidden());
        assert!(next(&facts).contains("console"), "the token was never used");
        facts.fetched = Known::Unknown(forbidden());
        facts.node = Known::Unknown(forbidden());
        assert_eq!(next(&facts), "document fetched is unknown: forbidden");
    }

    #[test]
    fn a_later_step_proves_an_earlier_one() {
        let mut facts = joined();
        facts.fetched = Known::Is(None);
        facts.client = Known::Is(Vec::new());
        let way = way(&facts);
        let proven = |step: &str| {
            way.steps
                .iter()
                .any(|it| it.step == step && it.state == State::Done)
        };
        assert!(proven(FETCHED) && proven(CLIENT), "{way:?}");
    }
}
