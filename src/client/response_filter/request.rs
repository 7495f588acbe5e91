//! Determines what a request asks for. The caller's method says so, not the URL: the names in it
//! come from objects that tenants write, and are not escaped.

use http::{Request, Uri};

use crate::api::names::is_path_segment;
use crate::client::response_filter::Shape;

/// The maximum number of objects in a page if the request has no limit.
const PAGE: usize = 500;

/// The error for a request whose URL leads somewhere else than its caller means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name in the address of the request is none that an object can have")]
pub(in crate::client) struct Misled;

/// Returns the shape of the answer.
///
/// # Errors
///
/// Returns an error if the URL does not lead to what the caller names.
pub(in crate::client) fn answer<B>(request: &Request<B>) -> Result<Shape, Misled> {
    // kube marks each of its requests with the call that makes it.
    let call = request.extensions().get::<&'static str>();
    let (shape, names) = match call {
        Some(&("watch" | "watch_metadata")) => (Shape::Events, Some(0)),
        Some(&("list" | "list_metadata")) => (Shape::List(limit(request.uri())), Some(0)),
        Some(&("create" | "delete_collection")) => (Shape::Object, Some(0)),
        Some(&("get" | "get_metadata" | "patch" | "patch_metadata" | "replace" | "delete")) => {
            (Shape::Object, Some(1))
        }
        // All other calls are for subresources.
        Some(_) => (Shape::Object, Some(2)),
        None => (Shape::Object, None),
    };
    if leads_to(request.uri().path(), names) {
        Ok(shape)
    } else {
        Err(Misled)
    }
}

/// Returns true if the path has this number of names after its resource, and each segment can be a
/// name.
fn leads_to(path: &str, names: Option<usize>) -> bool {
    let Some(path) = path.strip_prefix('/').filter(|path| !path.is_empty()) else {
        return names.is_none();
    };
    let segments: Vec<&str> = path.split('/').collect();
    if !segments.iter().all(|segment| is_path_segment(segment)) {
        return false;
    }
    let Some(names) = names else {
        return true;
    };
    let (["api", _, resource @ ..] | ["apis", _, _, resource @ ..]) = &*segments else {
        return false;
    };
    let resource = match resource {
        ["namespaces", _, resource @ ..] if !resource.is_empty() => resource,
        resource => resource,
    };
    resource.len() == names + 1
}

fn limit(uri: &Uri) -> usize {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut limits = pairs.filter_map(|pair| pair.strip_prefix("limit=")?.parse().ok());
    limits.next().unwrap_or(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(call: Option<&'static str>, address: &str) -> Result<Shape, Misled> {
        let mut request = Request::get(address).body(()).unwrap();
        if let Some(call) = call {
            request.extensions_mut().insert(call);
        }
        answer(&request)
    }

    #[test]
    fn the_caller_says_what_the_answer_is() {
        let secrets = "/api/v1/namespaces/a/secrets";
        let list = of(Some("list"), &format!("{secrets}?&limit=50&continue=limit"));
        assert_eq!(list, Ok(Shape::List(50)));
        assert_eq!(of(Some("list_metadata"), secrets), Ok(Shape::List(PAGE)));
        let watched = of(Some("watch"), &format!("{secrets}?&watch=true"));
        assert_eq!(watched, Ok(Shape::Events));
        let named = "/apis/cluster.k8s.io/v1alpha1/namespaces/a/machinedeployments/x?watch=1&a=";
        assert_eq!(of(Some("get"), named), Ok(Shape::Object));
        assert_eq!(of(None, "/version?watch=true"), Ok(Shape::Object));
        assert_eq!(of(None, "/"), Ok(Shape::Object));
    }

    #[test]
    fn a_name_that_is_none_leads_nowhere() {
        let get = |name: &str| {
            let profiles = "/apis/k8c.io/v1alpha1/namespaces/berlin/profiles";
            of(Some("get"), &format!("{profiles}/{name}"))
        };
        assert_eq!(get("a.b-1"), Ok(Shape::Object));
        for name in [
            "",
            "..",
            ".",
            "a/b",
            "../../rome/profiles/a",
            "a%2Fb",
            "a/../b",
            "a//b",
        ] {
            assert_eq!(get(name), Err(Misled), "{name}");
        }
        let in_namespace = |namespace: &str| {
            let address = format!("/api/v1/namespaces/{namespace}/secrets/a");
            of(Some("get"), &address)
        };
        assert_eq!(in_namespace("a"), Ok(Shape::Object));
        for namespace in ["", "..", "a/b", "a/secrets/b/c", "../nodes"] {
            assert_eq!(in_namespace(namespace), Err(Misled), "{namespace}");
        }
        let namespace = "/api/v1/namespaces/a";
        assert_eq!(of(Some("get"), namespace), Ok(Shape::Object));
        assert_eq!(of(Some("list"), namespace), Err(Misled));
        let status = "/apis/k8c.io/v1alpha1/namespaces/a/workerclusters/b/status";
        assert_eq!(of(Some("patch_status"), status), Ok(Shape::Object));
        assert_eq!(of(Some("patch"), status), Err(Misled));
        assert_eq!(of(None, "/api/../version"), Err(Misled));
    }
}
