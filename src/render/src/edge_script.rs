//! The script that turns an edge machine into a node. No cloud passes user data to such a machine.
//! Its owner copies the script to it and runs it, and the script fetches the bootstrap document.

use osm_tenant::secret_text::SecretText;

const HEAD: &str = "#!/bin/bash\n\
    # Makes this machine a node: fetches its bootstrap document, and has cloud-init apply it.\n\
    # Run it as root, once, and remove it: it holds a token.\n\
    set -euo pipefail\n\
    umask 022\n\n";

const BODY: &str = include_str!("edge_script/body.sh");

/// The values in the script.
#[derive(Clone, Copy, Debug)]
pub struct EdgeScriptInput<'a> {
    /// The API server as nodes reach it: an https URL.
    pub api_server: &'a str,
    /// The certificate authority of that server in PEM. If empty, the machine's own authorities are
    /// used.
    pub certificate_authority: &'a str,
    /// The token with which nodes fetch their documents.
    pub fetch_token: &'a SecretText,
    /// The name of the bootstrap Secret.
    pub secret: &'a str,
}

/// Renders the script.
pub fn edge_script(input: &EdgeScriptInput<'_>) -> SecretText {
    let server = quote(input.api_server.trim_end_matches('/'));
    let authority = quote(input.certificate_authority.trim());
    let token = quote(input.fetch_token.expose());
    let secret = quote(input.secret);
    SecretText::new(format!(
        "{HEAD}server={server}\nsecret={secret}\ntoken={token}\nauthority={authority}\n{BODY}"
    ))
}

/// Quotes a text as one word of the shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_one_word_of_the_shell() {
        let script = edge_script(&EdgeScriptInput {
            api_server: "https://10.0.0.1:6443/",
            certificate_authority: "-----BEGIN\n-----END\n",
            fetch_token: &SecretText::new("a'; reboot; '"),
            secret: "workers-kube-system-bootstrap-config",
        });
        let values: Vec<&str> = script.expose().lines().skip(6).take(5).collect();
        assert_eq!(
            values,
            [
                "server='https://10.0.0.1:6443'",
                "secret='workers-kube-system-bootstrap-config'",
                r"token='a'\''; reboot; '\'''",
                "authority='-----BEGIN",
                "-----END'",
            ]
        );
    }
}
