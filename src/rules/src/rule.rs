//! The rules of the linter, each with its name, its weight and what it looks for.

use std::fmt;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot work.
    Error,
    /// It works, and probably is a mistake.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// A rule of the linter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    id: &'static str,
    severity: Severity,
    summary: &'static str,
}

#[expect(missing_docs, reason = "each says itself what it looks for")]
impl Rule {
    pub const YAML: Self = Self::error(
        "yaml",
        "The text is no YAML, or a key stands twice in a map.",
    );
    pub const NOT_A_PROFILE: Self = Self::error(
        "not-a-profile",
        "No document of the file is a MachineDeployment or an OperatingSystemProfile with a name.",
    );
    pub const UNKNOWN_FIELD: Self = Self::error(
        "unknown-field",
        "A field that does not exist: the API server drops it silently.",
    );
    pub const WRONG_TYPE: Self =
        Self::error("wrong-type", "A value of another type than the field has.");
    pub const WRONG_VALUE: Self = Self::error(
        "wrong-value",
        "A value that is none of those that the field allows, or beyond its limits.",
    );
    pub const UNKNOWN_NAME: Self = Self::warning(
        "unknown-name",
        "An operating system or a cloud provider that no machine deployment can use.",
    );
    pub const MISREAD_KEY: Self = Self::error(
        "misread-key",
        "A key without quotes that kubectl reads as another one, such as `on` or `1.0`.",
    );
    pub const MISSING_FIELD: Self =
        Self::error("missing-field", "A field that must be there is not.");
    pub const VERSION: Self = Self::error(
        "version",
        "`spec.version` is not a semantic version behind a `v`.",
    );
    pub const VERSION_PREFIX: Self = Self::warning(
        "version-prefix",
        "Something stands before the version in `spec.version`.",
    );
    pub const LANGUAGE_CONFLICT: Self = Self::error(
        "language-conflict",
        "The language is declared twice, differently: `GoTemplate`, and `+jinja` in the version.",
    );
    pub const LANGUAGE_NOT_IN_VERSION: Self = Self::warning(
        "language-not-in-version",
        "A Jinja profile's version lacks `+jinja`, which an older definition does not drop.",
    );
    pub const NO_CLOUD_PROVIDER: Self = Self::warning(
        "no-cloud-provider",
        "No cloud provider is supported, so nobody can use the profile.",
    );
    pub const OVERLAY: Self = Self::error(
        "overlay",
        "`spec.extends` names no profile that is known, leads in a circle, or to another system or language.",
    );
    pub const UNITS_UNSUPPORTED: Self = Self::error(
        "units-unsupported",
        "systemd units in a profile for another system than Flatcar.",
    );
    pub const IGNITION_VERSION: Self = Self::error(
        "ignition-version",
        "`spec.ignitionVersion` in a profile whose documents Ignition does not read.",
    );
    pub const MISSING_INLINE: Self = Self::error("missing-inline", "A file without content.");
    pub const UNKNOWN_ENCODING: Self = Self::error(
        "unknown-encoding",
        "An encoding that neither cloud-init nor Ignition decodes; `b64`, `gzip` or nothing works.",
    );
    pub const CARRIAGE_RETURN: Self = Self::warning(
        "carriage-return",
        "A script whose first line ends with a carriage return, so that it cannot be started.",
    );
    pub const PERMISSIONS: Self = Self::error("permissions", "Permissions that are no octal mode.");
    pub const OCTAL_PERMISSIONS: Self = Self::error(
        "octal-permissions",
        "Permissions with a leading zero, which kubectl reads as another number.",
    );
    pub const WORLD_WRITABLE: Self = Self::warning(
        "world-writable",
        "A file that everybody on the machine may write.",
    );
    pub const LOST_MODE: Self = Self::warning(
        "lost-mode",
        "Permissions that set the user or the group, which cloud-init loses.",
    );
    pub const RELATIVE_PATH: Self =
        Self::warning("relative-path", "A path that does not begin with a slash.");
    pub const EFFECT_WITHOUT_FILE: Self = Self::warning(
        "effect-without-file",
        "An effect of a file or unit that the profile does not write.",
    );
    pub const DUPLICATE_PATH: Self = Self::warning(
        "duplicate-path",
        "Two files of one document with one path; the later one wins.",
    );
    pub const DUPLICATE_TEMPLATE: Self = Self::warning(
        "duplicate-template",
        "A template of a container runtime that one of the half hides.",
    );
    pub const DUPLICATE_UNIT: Self =
        Self::warning("duplicate-unit", "Two units of one half with one name.");
    pub const DUPLICATE_RUNTIME: Self = Self::warning(
        "duplicate-runtime",
        "A container runtime that stands twice; only the first counts.",
    );
    pub const TEMPLATE_SYNTAX: Self =
        Self::error("template-syntax", "A template that cannot be compiled.");
    pub const REFUSED_FUNCTION: Self = Self::error(
        "refused-function",
        "A function whose answer depends on more than its arguments, such as `now`.",
    );
    pub const UNKNOWN_VARIABLE: Self = Self::error(
        "unknown-variable",
        "A variable that does not exist, with nearly the name of one that does.",
    );
    pub const EMPTY_URL_PART: Self = Self::warning(
        "empty-url-part",
        "A URL with an empty part, as it is left where a program replaces `${…}` with nothing.",
    );
    pub const UNUSED_TEMPLATE: Self = Self::warning(
        "unused-template",
        "A named template that no file and no other template names.",
    );
    pub const RENDER_FAILED: Self = Self::warning(
        "render-failed",
        "The profile cannot be rendered for a sample machine deployment that sets nothing.",
    );
    pub const SECRET_READABLE: Self = Self::warning(
        "secret-readable",
        "A file with a secret that everybody on the machine may read.",
    );

    pub const DOCUMENT_SIZE: Self = Self::error(
        "document-size",
        "A document that is larger than a provider or Kubernetes takes.",
    );
    pub const DOCUMENT_NEAR_LIMIT: Self = Self::warning(
        "document-near-limit",
        "A document that needs more than 80 % of what a provider or Kubernetes takes.",
    );

    pub const KUBELET_ANNOTATION: Self = Self::error(
        "kubelet-annotation",
        "A machine deployment's annotation with a value that no kubelet accepts.",
    );
    pub const KUBELET_EFFECT: Self = Self::warning(
        "kubelet-effect",
        "A machine deployment's annotation that a kubelet takes otherwise than it seems.",
    );
    pub const UNKNOWN_ANNOTATION: Self = Self::warning(
        "unknown-annotation",
        "A machine deployment's annotation for a kubelet setting that does not exist.",
    );
    pub const MISPLACED_ANNOTATION: Self = Self::warning(
        "misplaced-annotation",
        "An annotation on a machine deployment's template, where it is not read.",
    );

    pub const DOCUMENT_ORDER: Self = Self::warning(
        "document-order",
        "A machine deployment whose name lets files of the image override its document.",
    );
    pub const KUBELET_OPTION: Self = Self::warning(
        "kubelet-option",
        "A flag, or a field or feature gate in a configuration, that a supported kubelet does not have.",
    );
    pub const UNSUPPORTED_KUBELET: Self = Self::warning(
        "unsupported-kubelet",
        "A machine deployment's kubelet that is no release of a supported minor.",
    );

    /// Every rule, in the order in which they are looked at.
    pub const ALL: [Self; 45] = [
        Self::YAML,
        Self::NOT_A_PROFILE,
        Self::UNKNOWN_FIELD,
        Self::WRONG_TYPE,
        Self::WRONG_VALUE,
        Self::UNKNOWN_NAME,
        Self::MISREAD_KEY,
        Self::MISSING_FIELD,
        Self::VERSION,
        Self::VERSION_PREFIX,
        Self::LANGUAGE_CONFLICT,
        Self::LANGUAGE_NOT_IN_VERSION,
        Self::NO_CLOUD_PROVIDER,
        Self::OVERLAY,
        Self::UNITS_UNSUPPORTED,
        Self::IGNITION_VERSION,
        Self::MISSING_INLINE,
        Self::UNKNOWN_ENCODING,
        Self::CARRIAGE_RETURN,
        Self::PERMISSIONS,
        Self::OCTAL_PERMISSIONS,
        Self::WORLD_WRITABLE,
        Self::LOST_MODE,
        Self::RELATIVE_PATH,
        Self::EFFECT_WITHOUT_FILE,
        Self::DUPLICATE_PATH,
        Self::DUPLICATE_TEMPLATE,
        Self::DUPLICATE_UNIT,
        Self::DUPLICATE_RUNTIME,
        Self::TEMPLATE_SYNTAX,
        Self::REFUSED_FUNCTION,
        Self::UNKNOWN_VARIABLE,
        Self::EMPTY_URL_PART,
        Self::UNUSED_TEMPLATE,
        Self::RENDER_FAILED,
        Self::SECRET_READABLE,
        Self::DOCUMENT_SIZE,
        Self::DOCUMENT_NEAR_LIMIT,
        Self::KUBELET_ANNOTATION,
        Self::KUBELET_EFFECT,
        Self::UNKNOWN_ANNOTATION,
        Self::MISPLACED_ANNOTATION,
        Self::DOCUMENT_ORDER,
        Self::KUBELET_OPTION,
        Self::UNSUPPORTED_KUBELET,
    ];

    const fn error(id: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            severity: Severity::Error,
            summary,
        }
    }

    const fn warning(id: &'static str, summary: &'static str) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(id, summary)
        }
    }

    /// The name that findings carry.
    pub const fn id(self) -> &'static str {
        self.id
    }

    /// How much a finding weighs.
    pub const fn severity(self) -> Severity {
        self.severity
    }

    /// Returns what the rule looks for.
    pub const fn summary(self) -> &'static str {
        self.summary
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.id)
    }
}
