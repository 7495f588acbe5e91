//! A mirror of a registry: a URL whose query may contain a setting for containerd.
//!
//! `https://harbor.example.com/v2/proxy?kubermatic=override_path%3Dtrue` is the mirror
//! `https://harbor.example.com/v2/proxy`, whose path replaces `/v2`.

use super::super::go_url::{self, GoUrl, push_query_escaped};

/// The query parameter that contains the settings, which are a query themselves.
const PARAMETER: &str = "kubermatic";

/// A mirror.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    pub(super) url: String,
    pub(super) overrides_path: bool,
}

impl Mirror {
    /// Creates a mirror without settings.
    pub(super) fn plain(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            overrides_path: false,
        }
    }

    /// Parses a URL, and removes the settings from it. The URL is written as Go writes it.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is not a URL, without the text itself, which may contain a
    /// password.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        let url = GoUrl::parse(url)?.to_string();
        let Some((base, query)) = url.split_once('?') else {
            return Ok(Self::plain(&url));
        };
        let mut pairs = parse_query(query);
        let Some(settings) = pairs
            .iter()
            .find(|(key, _)| key == PARAMETER)
            .map(|(_, value)| value.clone())
        else {
            return Ok(Self::plain(&url));
        };
        pairs.retain(|(key, _)| key != PARAMETER);
        // The sort is stable, so that values of one key keep their order.
        pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut rest = base.to_owned();
        for (index, (key, value)) in pairs.iter().enumerate() {
            rest.push(if index == 0 { '?' } else { '&' });
            push_query_escaped(key, &mut rest);
            rest.push('=');
            push_query_escaped(value, &mut rest);
        }
        Ok(Self {
            url: rest,
            overrides_path: overrides_path(&settings),
        })
    }
}

/// Returns the host of a registry that is written as a URL, and any other registry unchanged.
pub(super) fn host_of(registry: &str) -> &str {
    match GoUrl::parse(registry) {
        Ok(url) if !url.host().is_empty() => url.host(),
        _ => registry,
    }
}

/// Returns true if the settings override the path. They were escaped once more than query values
/// are. Invalid settings are false.
fn overrides_path(settings: &str) -> bool {
    let Some(settings) = unescape(settings) else {
        return false;
    };
    parse_query(&settings)
        .iter()
        .find(|(key, _)| key == "override_path")
        .is_some_and(|(_, value)| {
            matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True")
        })
}

/// Returns the pairs of a query, unescaped. Invalid pairs are dropped.
fn parse_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(key)?, unescape(value)?))
        })
        .collect()
}

/// Unescapes a part of a query, where a plus is a space.
fn unescape(text: &str) -> Option<String> {
    let bytes = go_url::unescape(&text.replace('+', " ")).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_taken_out_of_the_url() {
        let check = |url: &str, expected: &str, overrides_path: bool| {
            let mirror = Mirror::parse(url).unwrap();
            assert_eq!(mirror.url, expected, "{url}");
            assert_eq!(mirror.overrides_path, overrides_path, "{url}");
        };
        check("https://a.b/c", "https://a.b/c", false);
        check("https://a.b?x=1&a", "https://a.b?x=1&a", false);
        check(
            "https://a.b?kubermatic=override_path%3Dtrue",
            "https://a.b",
            true,
        );
        check(
            "https://a.b?kubermatic=override_path%253Dtrue",
            "https://a.b",
            true,
        );
        check(
            "https://a.b?kubermatic=override_path%3Dmaybe",
            "https://a.b",
            false,
        );
        check("https://a.b?kubermatic=", "https://a.b", false);
        check(
            "https://a.b?z=1&kubermatic=%ZZ&b=2",
            "https://a.b?z=1&kubermatic=%ZZ&b=2",
            false,
        );
        check(
            "https://a.b?z=1&kubermatic=x&b=2 3",
            "https://a.b?b=2+3&z=1",
            false,
        );
    }

    #[test]
    fn a_registry_written_as_a_url_is_reduced_to_its_host() {
        let check = |registry: &str, expected: &str| assert_eq!(host_of(registry), expected);
        check("gcr.io", "gcr.io");
        check("https://index.docker.io/v1/", "index.docker.io");
        check("http://user@localhost:5000/x", "localhost:5000");
        check("https://", "https://");
        check("https://user:p@ss@gcr.io:5000/", "gcr.io:5000");
        check("https://gcr.io:port/", "https://gcr.io:port/");
    }
}
