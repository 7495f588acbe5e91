//! The two forms of the page. Every value is escaped by the engine; the style and the script are
//! ours alone, and the browser is told their hashes.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context, value::Serde};
use sha2::{Digest, Sha256};

use super::access::Admitted;
use crate::tenant::summary::{
    Direction, Filter, FleetSummary, Key, Sort, State, TenantPage, is_recent,
};

/// What all pages begin and end with.
const PAGE: &str = include_str!("page.html");
const TEMPLATE: &str = include_str!("fleet.html");
const TENANT: &str = include_str!("tenant.html");
const SIGN_IN: &str = include_str!("login.html");
const STYLE: &str = include_str!("fleet.css");
const SCRIPT: &str = include_str!("fleet.js");

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// What a request wants to see.
pub struct View {
    /// The tenant that it asks for. `None` asks for the whole fleet.
    pub tenant: Option<String>,
    /// The tenants that it asks for.
    pub filter: Filter,
    /// Their order.
    pub sort: Sort,
    /// True if the page does not reload by itself.
    pub is_paused: bool,
    /// Why it is let in.
    pub admitted: Admitted,
}

impl View {
    /// Reads a query string; the last of each parameter counts.
    pub fn set(&mut self, query: &str) {
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "tenant" => self.tenant = Some(value.into_owned()),
                "sort" => self.sort = Sort::parse(value.trim()),
                "pause" => self.is_paused = !value.is_empty(),
                name => self.filter.set(name, &value),
            }
        }
    }
}

/// A column of the table: its name, what it is sorted by, and the first direction.
struct Column(&'static str, Option<Key>, Direction);

const COLUMNS: [Column; 7] = [
    Column("Tenant", Some(Key::Name), Direction::Ascending),
    Column("State", Some(Key::State), Direction::Ascending),
    Column("For", Some(Key::For), Direction::Ascending),
    Column("Why", None, Direction::Ascending),
    Column(
        "Machine deployments",
        Some(Key::Failing),
        Direction::Descending,
    ),
    Column("Last reconcile", Some(Key::Reconcile), Direction::Ascending),
    Column("Version", Some(Key::Version), Direction::Ascending),
];

impl Column {
    /// Returns the heading: the order of the column, if it has one, and the order that its button
    /// asks for.
    fn heading(&self, sort: Sort) -> Value {
        let Self(name, key, direction) = *self;
        let own = key.map(|key| Sort { key, direction });
        let is_sorted = key == Some(sort.key);
        let next = if is_sorted {
            Some(sort.reversed())
        } else {
            own
        };
        let order = is_sorted.then_some(match sort.direction {
            Direction::Ascending => "ascending",
            Direction::Descending => "descending",
        });
        context! { name, order, sort => next.map(Sort::text) }
    }
}

/// A page that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    /// The template failed; its own words name places and kinds.
    #[error("the template fails: {}", .0.kind())]
    Template(#[from] minijinja::Error),
    /// A value has no form in JSON.
    #[error("a value has no form in JSON")]
    Json(#[from] serde_json::Error),
}

/// Returns what a browser may load for the page: its own style and script, the form, and
/// nothing else.
pub fn content_security_policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
        format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            hash(STYLE),
            hash(SCRIPT),
        )
    });
    &POLICY
}

/// The page for people: all rows, of which those that do not match are hidden, so that the script
/// can show them.
pub fn html(summary: FleetSummary, view: &View) -> Result<Vec<u8>, Unwritable> {
    let now = summary.taken_at.0;
    let View { filter, sort, .. } = view;
    let rows = || summary.tenants.iter();
    let hidden: Vec<bool> = rows().map(|row| !filter.keeps(row, now)).collect();
    let recent: Vec<bool> = rows().map(|row| is_recent(row, now)).collect();
    let template = ENVIRONMENT.template_from_named_str("fleet.html", TEMPLATE)?;
    let context = context! {
        style => STYLE,
        script => SCRIPT,
        now => now.as_second(),
        shown => hidden.iter().filter(|it| !**it).count(),
        hidden,
        recent,
        summary => Value::from(Serde(summary)),
        states => State::ALL.map(State::as_str),
        columns => COLUMNS.map(|column| column.heading(*sort)),
        sorted_by => COLUMNS.iter().find(|it| it.1 == Some(sort.key)).map(|it| it.0),
        sort => sort.text(),
        query => filter.query(),
        state => filter.state().map_or("", State::as_str),
        unknown_state => filter.unknown_state(),
        reason => filter.reason(),
        changed => filter.changed(),
        is_filtered => !filter.is_empty(),
        is_paused => view.is_paused,
        has_session => view.admitted == Admitted::Session,
    };
    Ok(template.render(context)?.into_bytes())
}

/// The page for programs: the rows that match.
pub fn json(mut summary: FleetSummary, view: &View) -> Result<Vec<u8>, Unwritable> {
    summary.select(&view.filter);
    let mut page = serde_json::to_vec_pretty(&summary)?;
    page.push(b'\n');
    Ok(page)
}

/// The page of one tenant, for people.
pub fn tenant_html(page: &TenantPage, view: &View) -> Result<Vec<u8>, Unwritable> {
    let template = ENVIRONMENT.template_from_named_str("tenant.html", TENANT)?;
    let status = &page.status;
    let entries = &status.machine_deployments;
    let facts = [
        ("API server", &status.server),
        ("API server for machines", &status.api_server),
        ("Version", &status.version),
        ("Machine deployments served", &status.served),
        ("Uid of kube-system", &status.cluster_uid),
    ];
    let context = context! {
        style => STYLE,
        now => page.taken_at.0.as_second(),
        facts => Value::from(Serde(facts)),
        entries => Value::from(Serde(entries)),
        conditions => Value::from(Serde(&status.conditions)),
        page => Value::from(Serde(page)),
        has_session => view.admitted == Admitted::Session,
    };
    Ok(template.render(context)?.into_bytes())
}

/// The page of one tenant, for programs.
pub fn tenant_json(page: &TenantPage, _: &View) -> Result<Vec<u8>, Unwritable> {
    let mut page = serde_json::to_vec_pretty(page)?;
    page.push(b'\n');
    Ok(page)
}

/// The page where a browser signs in, with the reason why it has to, which may be empty.
pub fn sign_in(message: &str) -> Result<Vec<u8>, Unwritable> {
    let template = ENVIRONMENT.template_from_named_str("login.html", SIGN_IN)?;
    let context = context! { style => STYLE, message, has_form => true };
    Ok(template.render(context)?.into_bytes())
}

/// The page for somebody who cannot see the fleet, and would not by signing in.
pub fn no_page(message: &str) -> Result<Vec<u8>, Unwritable> {
    let template = ENVIRONMENT.template_from_named_str("login.html", SIGN_IN)?;
    let context = context! { style => STYLE, message, has_form => false };
    Ok(template.render(context)?.into_bytes())
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let page = environment.add_template("page.html", PAGE);
    debug_assert!(page.is_ok(), "it is our own: {page:?}");
    // A part of a status that is not known yet is absent.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("age", age);
    environment.add_filter("parameter", parameter);
    environment
}

/// How long ago: in the two largest units, as people say it.
fn age(at: &str, now: i64) -> String {
    let Ok(at) = at.parse::<Timestamp>() else {
        return String::new();
    };
    let seconds = now.saturating_sub(at.as_second()).max(0);
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
        DAY.. => format!("{} d {} h", seconds / DAY, seconds % DAY / HOUR),
    }
}

/// Returns a text as a value in a query string.
fn parameter(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
