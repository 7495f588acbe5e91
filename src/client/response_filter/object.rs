//! Trims one object of the API.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use crate::api::names::{TOO_LARGE, is_path_segment};
use crate::client::response_filter::Refused;

/// The maximum size of a text that identifies an object or its state, as JSON. Names have at most
/// 253 characters, uids 36, and resource versions 20.
const IDENTITY_BYTES: usize = 256;
/// The texts of metadata that callers keep: in indexes, caches, queues and statuses.
pub(super) const KEPT: [&str; 5] = [
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
];
/// The fields of metadata that identify an object and its state, and its finalizers.
const IDENTITY: [&str; 7] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
];
/// The maximum number of fields. No kind has as many.
const FIELDS_MAX: usize = 64;

/// Returns an object without its managed fields. Refuses names that cannot be part of a path, and
/// identities that are too long to be kept.
pub(super) fn trimmed(text: &[u8]) -> Result<Cow<'_, [u8]>, Refused> {
    let mut object = Fields::read(text)?;
    let mut is_changed = false;
    for (key, value) in &mut object.0 {
        if key != "metadata" || value.get() == "null" {
            continue;
        }
        let mut metadata = Fields::read(value.get().as_bytes())?;
        metadata.check_identity()?;
        let count = metadata.0.len();
        metadata.0.retain(|(key, _)| key != "managedFields");
        if metadata.0.len() < count {
            *value = Cow::Owned(metadata.write()?);
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(object.write()?.get().as_bytes().to_vec()))
}

/// Returns only the fields that identify an object that is too large, and its size.
pub(super) fn named(text: &[u8], weight: usize) -> Result<Vec<u8>, Refused> {
    let mut stub = json!({"metadata": {"annotations": {TOO_LARGE: weight.to_string()}}});
    for (key, value) in Fields::read(text)?.0 {
        match &*key {
            "kind" | "apiVersion" => put(&mut stub, &key, &value),
            "metadata" => {
                for (key, value) in Fields::read(value.get().as_bytes())?.0 {
                    if IDENTITY.contains(&&*key) {
                        put(
                            stub.get_mut("metadata").unwrap_or(&mut Value::Null),
                            &key,
                            &value,
                        );
                    }
                }
            }
            _ => {}
        }
    }
    Ok(stub.to_string().into_bytes())
}

/// Adds a field, unless its value is longer than any identity.
fn put(object: &mut Value, key: &str, value: &RawValue) {
    if let (Value::Object(fields), true) = (object, value.get().len() <= IDENTITY_BYTES)
        && let Ok(value) = serde_json::from_str(value.get())
    {
        fields.insert(key.to_owned(), value);
    }
}

/// The fields of an object in their order, unparsed.
struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Fields<'a> {
    fn read(text: &'a [u8]) -> Result<Self, Refused> {
        serde_json::from_slice(text).map_err(|_| Refused::Json)
    }

    /// Refuses a name that is not one path segment, which would change where a request goes; and a
    /// text that no API server makes as long, since it would be kept for each object.
    fn check_identity(&self) -> Result<(), Refused> {
        for (key, value) in &self.0 {
            if KEPT.contains(&&**key) && value.get().len() > IDENTITY_BYTES {
                return Err(Refused::Identity);
            }
            if matches!(&**key, "name" | "namespace") && value.get() != "null" {
                let name: Text<'_> =
                    serde_json::from_str(value.get()).map_err(|_| Refused::Json)?;
                if !name.0.is_empty() && !is_path_segment(&name.0) {
                    return Err(Refused::Name);
                }
            }
        }
        Ok(())
    }

    fn write(&self) -> Result<Box<RawValue>, Refused> {
        serde_json::value::to_raw_value(self).map_err(|_| Refused::Json)
    }
}

impl serde::Serialize for Fields<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, &**value)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of a few fields")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(Text(key)) = map.next_key()? {
                    if fields.len() == FIELDS_MAX {
                        return Err(A::Error::custom("too many fields"));
                    }
                    let value: &RawValue = map.next_value()?;
                    fields.push((key, Cow::Borrowed(value)));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
