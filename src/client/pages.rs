//! Reads lists page by page. If a page is too large, it is requested again with half the number of
//! objects. Lists that do not end are aborted. An object that cannot be decoded does not hide the
//! others.

use std::fmt::Debug;

use kube::{
    Api, Resource,
    api::{ListParams, ObjectList, ObjectMeta, PartialObjectMeta},
    core::DeserializeGuard,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::api::weight;
use crate::client::response_filter;

/// A page of Secrets or configs, 25 KiB each, takes a few megabytes.
const PAGE: u32 = 100;
/// The maximum number of objects of a list, and of its pages: a page may have fewer objects than
/// were asked for.
const OBJECTS_MAX: usize = 50_000;
const PAGES_MAX: usize = 1_000;

/// The maximum weight of a list that is kept as a whole. 10,000 WorkerClusters take 80 MiB.
const LIST_MIB_MAX: usize = 256;

/// The error for a list that is too large.
#[derive(Debug, thiserror::Error)]
#[error("the list takes more than {0} MiB of memory")]
struct TooLarge(usize);

/// The error for a list that does not end.
#[derive(Debug, thiserror::Error)]
#[error("the list has not ended after {0} pages")]
struct Endless(usize);

/// The objects of a list, or of one of its pages.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    /// The objects that can be decoded.
    pub objects: Vec<K>,
    /// The metadata of the others.
    pub unreadable: Vec<ObjectMeta>,
    /// The `resourceVersion` of the list, to watch from.
    pub version: String,
}

impl<K> Listed<K> {
    /// Returns true if the list has no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.unreadable.is_empty()
    }

    /// Returns all objects. `bare` creates an object from the metadata of one that cannot be
    /// decoded.
    pub fn into_all(self, bare: impl Fn(ObjectMeta) -> K) -> Vec<K> {
        let mut all = self.objects;
        all.extend(self.unreadable.into_iter().map(bare));
        all
    }
}

/// Reads a whole list, of a cluster of the operator. A list of a worker cluster is read page by
/// page, and of each page only what is needed is kept.
///
/// # Errors
///
/// Returns an error if the list cannot be read, does not end, or is too large to be kept.
pub async fn all<K>(
    api: &Api<DeserializeGuard<K>>,
    params: ListParams,
) -> Result<Listed<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let mut pages = Pages::of(params, PAGE);
    let mut weight = Weight::at_most(LIST_MIB_MAX);
    let mut listed = Listed {
        objects: Vec::new(),
        unreadable: Vec::new(),
        version: String::new(),
    };
    while let Some(page) = pages.next(api).await? {
        weight.add_page(&page)?;
        listed.objects.extend(page.objects);
        listed.unreadable.extend(page.unreadable);
        listed.version = page.version;
    }
    Ok(listed)
}

/// The weight of the pages of a list so far.
#[derive(Debug)]
pub struct Weight {
    mib_max: usize,
    bytes: usize,
}

impl Weight {
    /// Creates the weight of a list that may take this much memory, in MiB.
    pub const fn at_most(mib_max: usize) -> Self {
        Self { mib_max, bytes: 0 }
    }

    /// Adds a page, with what cannot be decoded.
    ///
    /// # Errors
    ///
    /// The list takes more.
    pub fn add_page<K: Serialize>(&mut self, page: &Listed<K>) -> Result<(), kube::Error> {
        self.add(&page.objects)?;
        self.add(&page.unreadable)
    }

    /// Adds objects.
    ///
    /// # Errors
    ///
    /// The list takes more.
    pub fn add(&mut self, objects: &[impl Serialize]) -> Result<(), kube::Error> {
        self.bytes += serde_json::to_vec(objects).map_or(0, |text| weight::of(&text));
        if self.bytes > self.mib_max.saturating_mul(1 << 20) {
            return Err(kube::Error::Service(TooLarge(self.mib_max).into()));
        }
        Ok(())
    }
}

/// Returns true if a list failed because it has more than its caller reads.
pub fn is_too_long(error: &kube::Error) -> bool {
    let kube::Error::Service(cause) = error else {
        return false;
    };
    cause.is::<Endless>() || cause.is::<TooLarge>()
}

/// Returns true if a list failed because its kind is not served. Nothing else can be missing in the
/// URL of a list.
pub fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns true if the API server refused a call: a right is missing, or a quota or a webhook
/// refuses the write.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

/// The pages of one list.
#[derive(Debug)]
pub struct Pages {
    params: ListParams,
    asked: usize,
    /// How many pages are read at most.
    most: usize,
    is_complete: bool,
    version: Option<String>,
}

impl Pages {
    /// Creates the pages of a list, with at most `objects` objects in each.
    pub fn of(params: ListParams, objects: u32) -> Self {
        Self {
            params: params.limit(objects),
            asked: 0,
            most: OBJECTS_MAX.div_ceil(objects as usize).min(PAGES_MAX),
            is_complete: false,
            version: None,
        }
    }

    /// Reads at most this number of pages: a longer list is none that the caller has a use for.
    #[must_use]
    pub fn at_most(self, pages: usize) -> Self {
        Self {
            most: pages,
            ..self
        }
    }

    /// Returns the `resourceVersion` of the list once a page has been read.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns true if the last page has been read.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the objects of the next page, or `None` after the last page.
    ///
    /// # Errors
    ///
    /// Returns an error if the list cannot be read, or does not end.
    pub async fn next<K>(
        &mut self,
        api: &Api<DeserializeGuard<K>>,
    ) -> Result<Option<Listed<K>>, kube::Error>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        while self.has_more()? {
            match api.list(&self.params).await {
                Ok(list) => return Ok(Some(self.decoded(list))),
                Err(error) => self.halve(error)?,
            }
        }
        Ok(None)
    }

    /// Returns the metadata of the objects of the next page, or `None` after the last page.
    ///
    /// # Errors
    ///
    /// Returns an error if the list cannot be read, or does not end.
    pub async fn next_metadata<K>(
        &mut self,
        api: &Api<K>,
    ) -> Result<Option<Vec<PartialObjectMeta<K>>>, kube::Error>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        while self.has_more()? {
            match api.list_metadata(&self.params).await {
                Ok(list) => return Ok(Some(self.turn(list))),
                Err(error) => self.halve(error)?,
            }
        }
        Ok(None)
    }

    fn has_more(&mut self) -> Result<bool, kube::Error> {
        if self.is_complete {
            return Ok(false);
        }
        if self.asked >= self.most {
            return Err(kube::Error::Service(Endless(self.most).into()));
        }
        self.asked += 1;
        Ok(true)
    }

    fn decoded<K: Clone>(&mut self, list: ObjectList<DeserializeGuard<K>>) -> Listed<K> {
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        let mut page = Listed {
            objects: Vec::new(),
            unreadable: Vec::new(),
            version,
        };
        for object in self.turn(list) {
            match object.0 {
                Ok(object) => page.objects.push(object),
                Err(unreadable) => page.unreadable.push(unreadable.metadata),
            }
        }
        page
    }

    fn turn<K: Clone>(&mut self, list: ObjectList<K>) -> Vec<K> {
        self.params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        self.is_complete = self.params.continue_token.is_none();
        self.version = list.metadata.resource_version;
        list.items
    }

    fn halve(&mut self, error: kube::Error) -> Result<(), kube::Error> {
        match &mut self.params.limit {
            Some(objects @ 2..) if response_filter::is_page_too_large(&error) => {
                *objects /= 2;
                self.most = (self.most * 2).min(PAGES_MAX);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroU32,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, ResourceExt, client::Body};
    use serde_json::{Value, json};
    use tower::{service_fn, util::BoxCloneSyncService};

    use super::*;
    use crate::client::{
        connect::{ClientParts, client},
        memory::Memory,
    };
    use crate::{
        telemetry::metrics::{ClusterKind, Metrics},
        tenant::policy::RequestBudget,
    };

    /// Returns a client of a server that answers by the limit and the first object of the page, and
    /// the number of requests to it.
    fn a_client(
        memory: Option<Arc<Memory>>,
        answer: impl Fn(usize, usize) -> Value + Clone + Send + Sync + 'static,
    ) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&asked);
        let server = service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let query = request.uri().query().unwrap_or_default();
            let number = |key| {
                let mut pairs = query.split('&');
                pairs.find_map(|pair| pair.strip_prefix(key)?.parse::<usize>().ok())
            };
            let page = answer(
                number("limit=").unwrap_or_default(),
                number("continue=").unwrap_or_default(),
            );
            let body = Full::new(Bytes::from(page.to_string())).map_err(|never| match never {});
            async { Ok::<_, tower::BoxError>(Response::new(body.boxed_unsync())) }
        });
        let many = NonZeroU32::new(10_000).expect("it is some");
        let budget = RequestBudget {
            per_second: many,
            burst: many,
        };
        let transport = BoxCloneSyncService::new(server);
        let counted = (ClusterKind::Worker, Metrics::new());
        let client = client(ClientParts {
            memory,
            ..ClientParts::new(transport, budget, Duration::from_mins(1), counted)
        });
        (client, asked)
    }

    fn page(objects: impl IntoIterator<Item = (usize, usize)>, next: Option<usize>) -> Value {
        let objects = objects.into_iter().map(|(index, bytes)| {
            json!({
                "metadata": {"name": format!("c-{index}")},
                "data": {"a": "a".repeat(bytes)},
            })
        });
        json!({
            "metadata": {"continue": next.map(|it| it.to_string()).unwrap_or_default()},
            "items": objects.collect::<Vec<_>>(),
        })
    }

    async fn names(client: Client) -> Result<Vec<String>, kube::Error> {
        let api: Api<DeserializeGuard<ConfigMap>> = Api::namespaced(client, "berlin");
        let mut pages = Pages::of(ListParams::default(), 16);
        let mut names = Vec::new();
        while let Some(page) = pages.next(&api).await? {
            names.extend(page.objects.iter().map(ResourceExt::name_any));
        }
        Ok(names)
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_asked_for_again_with_fewer_objects() {
        const OBJECTS: usize = 21;
        const MIB: usize = 1 << 20;
        let (client, asked) = a_client(None, |limit, first| {
            let end = (first + limit).min(OBJECTS);
            let sized = (first..end).map(|index| (index, MIB));
            page(sized, Some(end).filter(|end| *end < OBJECTS))
        });
        let expected: Vec<String> = (0..OBJECTS).map(|index| format!("c-{index}")).collect();
        assert_eq!(names(client).await.unwrap(), expected);
        // Pages of 16 and 8 objects are too large. There are six pages of 4.
        assert_eq!(asked.load(Ordering::Relaxed), 2 + 6);
    }

    #[tokio::test]
    async fn without_memory_a_list_is_read_in_smaller_pages() {
        const OBJECTS: usize = 20;
        let memory = Arc::new(Memory::within(0, 0));
        let (client, asked) = a_client(Some(Arc::clone(&memory)), |limit, first| {
            let end = (first + limit).min(OBJECTS);
            let sized = (first..end).map(|index| (index, 200 << 10));
            page(sized, Some(end).filter(|end| *end < OBJECTS))
        });
        assert_eq!(names(client).await.unwrap().len(), OBJECTS);
        // Pages of 16, 8 and 4 objects reserve more than is guaranteed. There are ten pages of 2.
        assert_eq!(asked.load(Ordering::Relaxed), 3 + 10);
        assert_eq!(memory.reserved(), 0);
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_decoded_does_not_hide_the_others() {
        let (client, _) = a_client(None, |_, _| {
            let mut page = page([(0, 1), (1, 1), (2, 1)], None);
            page["items"][1]["data"] = json!(7);
            page
        });
        let api: Api<DeserializeGuard<ConfigMap>> = Api::namespaced(client, "berlin");
        let listed = all(&api, ListParams::default()).await.unwrap();
        let names: Vec<_> = listed.objects.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["c-0", "c-2"]);
        assert_eq!(listed.unreadable.len(), 1);
        assert_eq!(listed.unreadable[0].name.as_deref(), Some("c-1"));
    }

    #[tokio::test]
    async fn a_list_that_does_not_end_is_given_up() {
        let (client, asked) = a_client(None, |_, _| page([], Some(0)));
        let error = names(client).await.unwrap_err();
        assert!(format!("{error:?}").contains("Endless"), "{error:?}");
        assert_eq!(asked.load(Ordering::Relaxed), PAGES_MAX);
    }

    #[test]
    fn smaller_pages_may_be_more_of_them() {
        let pages = [1, 10, 50, 100, 500].map(|objects| Pages::of(ListParams::default(), objects));
        assert_eq!(pages.map(|it| it.most), [1_000, 1_000, 1_000, 500, 100]);
    }

    #[tokio::test]
    async fn more_objects_than_were_asked_for_are_refused() {
        let (client, asked) = a_client(None, |limit, _| page((0..=limit).map(|it| (it, 1)), None));
        names(client).await.unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
