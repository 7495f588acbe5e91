//! Reads an HTTP request into a call on the API: verb, target, options. It follows the paths of the
//! real server and decides nothing about rights or existence.

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Make a new object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object, including server-side apply.
    Patch,
    /// Remove one object.
    Delete,
    /// Remove many.
    DeleteCollection,
}

impl Verb {
    /// The name that RBAC rules use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb can change an object.
    pub fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The resource that a request is about. All fields are empty for other paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group, "" for the core group.
    pub group: String,
    /// The version in the path.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace, "" for cluster-wide requests.
    pub namespace: String,
    /// The name, "" for collections.
    pub name: String,
    /// The subresource, or "".
    pub subresource: String,
}

impl Target {
    /// Whether this is a resource at all.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }
}

/// A request that was parsed, but not evaluated.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub verb: Verb,
    pub target: Target,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub accept: String,
    pub content_type: String,
    pub user_agent: String,
    pub bearer: Option<String>,
    /// The user in whose name the request is made, or "".
    pub impersonated: String,
    pub body: Bytes,
    /// How many revisions a fault sets a list back.
    pub behind: u64,
}

impl Call {
    pub(crate) fn read(method: &Method, uri: &http::Uri, headers: &HeaderMap) -> Option<Self> {
        let path = uri.path().to_owned();
        let query = parse_query(uri.query().unwrap_or_default());
        let mut target = parse_path(&path);
        let has = |key: &str| {
            query
                .iter()
                .any(|(name, value)| name == key && (value == "true" || value == "1"))
        };
        let verb = match *method {
            Method::GET | Method::HEAD if target.name.is_empty() && target.is_resource() => {
                if has("watch") {
                    Verb::Watch
                } else {
                    Verb::List
                }
            }
            Method::GET | Method::HEAD => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if target.name.is_empty() => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => return None,
        };
        if let Some(name) = selected_name(verb, &query) {
            target.name = name;
        }
        let text = |name: header::HeaderName| {
            headers
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let bearer = text(header::AUTHORIZATION)
            .strip_prefix("Bearer ")
            .map(|token| token.trim().to_owned());
        Some(Self {
            verb,
            target,
            path,
            query,
            accept: text(header::ACCEPT),
            content_type: text(header::CONTENT_TYPE),
            user_agent: text(header::USER_AGENT),
            bearer,
            impersonated: text(header::HeaderName::from_static("impersonate-user")),
            body: Bytes::new(),
            behind: 0,
        })
    }

    /// The first value of a query parameter, or "".
    pub(crate) fn option(&self, key: &str) -> &str {
        self.query
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
            .unwrap_or_default()
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.option(key), "true" | "1")
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.query
            .iter()
            .any(|(name, value)| name == "dryRun" && value == "All")
    }

    /// Who writes, for managed fields: the parameter, or the first word of the user agent.
    pub(crate) fn field_manager(&self) -> String {
        let given = self.option("fieldManager");
        if !given.is_empty() {
            return given.to_owned();
        }
        let agent = self.user_agent.split('/').next().unwrap_or_default();
        if agent.is_empty() {
            "unknown".to_owned()
        } else {
            agent.to_owned()
        }
    }
}

/// A list or watch of exactly one name is authorized like a read of that name.
fn selected_name(verb: Verb, query: &[(String, String)]) -> Option<String> {
    if !matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
        return None;
    }
    let (_, selector) = query.iter().find(|(name, _)| name == "fieldSelector")?;
    selector.split(',').find_map(|part| {
        let name = part.strip_prefix("metadata.name=")?;
        Some(name.trim_start_matches('=').to_owned())
    })
}

fn parse_path(path: &str) -> Target {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Target::default(),
    };
    let (namespace, rest) = match rest {
        // The namespace object itself and its subresources, which are not in a namespace …
        ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (*name, rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, sub @ ..] => (*resource, *name, sub.first().copied().unwrap_or_default()),
        [] => return Target::default(),
    };
    // … although the authorizer sees its own name as the namespace of a Namespace.
    Target {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        namespace: decode(namespace),
        name: decode(name),
        subresource: subresource.to_owned(),
    }
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
