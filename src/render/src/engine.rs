//! The template engine, configured so that a template can read only its variables and cannot exceed
//! its limits.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fmt,
    io::{self, Write},
};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
};

use super::{
    allocation_limit::{self, Parts},
    error::{Half, RenderError, TemplatePlace},
    functions,
    limits::{FUEL, Limits, RECURSION_MAX, SOURCE_BYTES_MAX},
    problem::quotes_no_value,
    sandbox,
};

/// A template to compile.
pub(super) struct Source<'a> {
    pub(super) half: Half,
    /// The name under which other templates know it.
    pub(super) name: String,
    /// The name in messages.
    pub(super) label: String,
    pub(super) text: &'a str,
    /// The maximum number of bytes that an include may add.
    pub(super) included_bytes: usize,
}

/// A file to render.
pub(super) struct Job<'a> {
    pub(super) half: Half,
    pub(super) environment: &'a Environment<'static>,
    pub(super) template: &'a str,
    pub(super) label: Label<'a>,
    pub(super) limits: &'a Limits,
    pub(super) fuel: &'a Fuel,
}

/// The name of a template in messages.
#[derive(Clone, Copy)]
pub(super) enum Label<'a> {
    /// A file, by its path.
    File(&'a str),
    /// A named template.
    Template(&'a str),
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(formatter, "file `{path}`"),
            Self::Template(name) => write!(formatter, "template `{name}`"),
        }
    }
}

/// Returns the name of a file's template. No named template can have it: people write the keys of a
/// profile in YAML or JSON, without line breaks.
pub(super) fn file_name(index: usize) -> String {
    format!("\nfiles[{index}]")
}

/// Creates an engine without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_syntax(sandbox::syntax());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Errors name what is undefined. The engine's default is true, but not in release builds.
    environment.set_debug(true);
    environment.set_formatter(format_value);
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_fuel(Some(FUEL));
    functions::add_to(&mut environment);
    environment
}

/// Compiles a template, and returns the names of the variables that it reads.
pub(super) fn add(
    environment: &mut Environment<'static>,
    source: &Source<'_>,
) -> Result<BTreeSet<String>, RenderError> {
    let syntax_error = |line, problem| syntax_error(source, line, problem);
    if source.text.len() > SOURCE_BYTES_MAX {
        let problem = format!("the template has more than {SOURCE_BYTES_MAX} bytes");
        return Err(syntax_error(None, problem));
    }
    let text = sandbox::rewrite(source.text, source.included_bytes)
        .map_err(|refusal| syntax_error(refusal.line, refusal.problem))?;
    add_printed(environment, source, text)
}

fn syntax_error(source: &Source<'_>, line: Option<usize>, problem: String) -> RenderError {
    RenderError::TemplateSyntax {
        place: TemplatePlace {
            half: source.half,
            name: source.label.clone(),
            included: None,
            line,
        },
        problem,
    }
}

/// Compiles a template that was already rewritten.
pub(super) fn add_printed(
    environment: &mut Environment<'static>,
    source: &Source<'_>,
    text: String,
) -> Result<BTreeSet<String>, RenderError> {
    // A syntax error quotes only the template's own source, which contains no values of a tenant.
    let explain = |error: &Error| {
        syntax_error(
            source,
            error.line(),
            error.detail().unwrap_or("syntax error").to_owned(),
        )
    };
    environment
        .add_template_owned(source.name.clone(), text)
        .map_err(|error| explain(&error))?;
    let template = environment
        .get_template(&source.name)
        .map_err(|error| explain(&error))?;
    Ok(template.undeclared_variables(false).into_iter().collect())
}

/// Starts a render. Its files share the limits. `parts` splits the values of the template language.
pub(super) fn start(limits: &Limits, parts: Parts) -> Fuel {
    allocation_limit::start(limits.work_bytes_max, parts);
    Fuel(Cell::new(limits.fuel))
}

/// The instructions that are left for the files of one render.
pub(super) struct Fuel(Cell<u64>);

impl Fuel {
    fn take(&self, job: &Job<'_>, consumed: u64) -> Result<(), RenderError> {
        let left = self.0.get().checked_sub(consumed);
        self.0.set(left.unwrap_or_default());
        left.map(drop).ok_or_else(|| RenderError::OutOfFuel {
            place: place(job, None),
            fuel: job.limits.fuel,
        })
    }
}

/// Renders a file.
pub(super) fn render(job: &Job<'_>, context: &Value) -> Result<String, RenderError> {
    if job.limits.fuel == FUEL {
        return render_in(job.environment, job, context);
    }
    let mut environment = job.environment.clone();
    environment.set_fuel(Some(job.limits.fuel));
    render_in(&environment, job, context)
}

fn render_in(
    environment: &Environment<'_>,
    job: &Job<'_>,
    context: &Value,
) -> Result<String, RenderError> {
    let mut out = BoundedBytes {
        bytes: Vec::with_capacity(1024),
        bytes_max: job.limits.output_bytes_max,
        is_full: false,
    };
    let mut consumed = 0;
    let outcome = environment.get_template(job.template).and_then(|template| {
        let captured = template.render_captured_to(context.clone(), &mut out)?;
        consumed = captured
            .state()
            .fuel_levels()
            .map_or(0, |(consumed, _)| consumed);
        Ok(())
    });
    match outcome {
        Ok(()) if !allocation_limit::is_spent() => {
            job.fuel.take(job, consumed)?;
            String::from_utf8(out.bytes).map_err(|_| RenderError::Template {
                place: place(job, None),
                problem: "the output is not UTF-8".to_owned(),
            })
        }
        Err(_) if out.is_full => Err(RenderError::OutputTooLarge {
            place: place(job, None),
            bytes_max: job.limits.output_bytes_max,
        }),
        // A function may have mistaken the error for one of its arguments'.
        Ok(()) => Err(work_too_large(job, None)),
        Err(error) if allocation_limit::is_spent() => {
            Err(work_too_large(job, Some(innermost(&error))))
        }
        Err(error) => Err(explain(job, &error)),
    }
}

fn work_too_large(job: &Job<'_>, error: Option<&Error>) -> RenderError {
    RenderError::WorkTooLarge {
        place: place(job, error),
        bytes_max: job.limits.work_bytes_max,
    }
}

/// A writer that accepts bytes up to a limit, and fails beyond it.
struct BoundedBytes {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl Write for BoundedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.bytes_max {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a value. Booleans are printed as configuration files expect them. Lists, maps and `none`
/// are refused.
fn format_value(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let text = allocation_limit::printed(value)?;
    allocation_limit::spend(text.len())?;
    Ok(out.write_str(&text)?)
}

fn place(job: &Job<'_>, error: Option<&Error>) -> TemplatePlace {
    let included = error
        .and_then(Error::name)
        .filter(|name| *name != job.template)
        .map(str::to_owned);
    TemplatePlace {
        half: job.half,
        name: job.label.to_string(),
        included,
        line: error.and_then(Error::line),
    }
}

/// Describes an error, without the engine's own words if they may quote a value.
fn explain(job: &Job<'_>, error: &Error) -> RenderError {
    let innermost = innermost(error);
    let place = place(job, Some(innermost));
    if innermost.kind() == ErrorKind::OutOfFuel {
        return RenderError::OutOfFuel {
            place,
            fuel: job.limits.fuel,
        };
    }
    RenderError::Template {
        place,
        problem: problem(innermost),
    }
}

/// Returns the innermost error. An error in an included template is wrapped by one at the include.
fn innermost(error: &Error) -> &Error {
    let mut innermost = error;
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(error) = inner.downcast_ref::<Error>() {
            innermost = error;
        }
        source = inner.source();
    }
    innermost
}

/// Describes the kind of problem. Quotes only words from the template's source.
fn problem(error: &Error) -> String {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::UndefinedError if detail.is_empty() => "an undefined value".to_owned(),
        ErrorKind::UndefinedError
        | ErrorKind::UnknownFilter
        | ErrorKind::UnknownTest
        | ErrorKind::UnknownFunction => detail.to_owned(),
        ErrorKind::InvalidOperation if functions::is_own_text(detail) || quotes_no_value(error) => {
            detail.to_owned()
        }
        ErrorKind::InvalidOperation if detail == "recursion limit exceeded" => {
            "templates or macros call one another too deep".to_owned()
        }
        ErrorKind::InvalidOperation => "an operation that its values do not allow".to_owned(),
        ErrorKind::TemplateNotFound => "no template with this name".to_owned(),
        ErrorKind::TooManyArguments => "too many arguments".to_owned(),
        ErrorKind::MissingArgument => "a missing argument".to_owned(),
        ErrorKind::UnknownMethod => "an unknown method".to_owned(),
        ErrorKind::NonKey => "a value that cannot be a key".to_owned(),
        ErrorKind::NonPrimitive => "a value of the wrong kind".to_owned(),
        ErrorKind::CannotUnpack => "a value that cannot be unpacked".to_owned(),
        ErrorKind::BadSerialization => "a value that cannot be written".to_owned(),
        ErrorKind::BadInclude => "a failing include".to_owned(),
        _ => "a failing template".to_owned(),
    }
}
