//! The flags of the proxy between the manager and worker clusters.

use std::{path::PathBuf, sync::Arc};

use clap::Args;

use crate::tenant::egress::{EgressProxy, Exception, NotAProxy};

/// The flags, as they are typed.
#[derive(Args, Clone, Debug, Default)]
pub struct EgressFlags {
    /// Reach worker clusters through this HTTP proxy. Names are resolved and checked here; the
    /// proxy is asked to CONNECT to the address.
    #[arg(long, value_name = "URL")]
    egress_proxy: Option<String>,

    /// A file with the proxy's `user:password`, which is read at each connection.
    #[arg(long, value_name = "FILE", requires = "egress_proxy")]
    egress_proxy_credentials_file: Option<PathBuf>,

    /// Reach servers in this range of addresses, or with this name or one below it, without the
    /// proxy; may be repeated.
    #[arg(
        long = "egress-proxy-exception",
        value_name = "CIDR|NAME",
        requires = "egress_proxy"
    )]
    exceptions: Vec<Exception>,
}

impl EgressFlags {
    /// Returns the proxy, if there is one.
    ///
    /// # Errors
    ///
    /// When its URL is not one.
    pub fn proxy(&self) -> Result<Option<Arc<EgressProxy>>, NotAProxy> {
        let Some(url) = &self.egress_proxy else {
            return Ok(None);
        };
        Ok(Some(Arc::new(EgressProxy {
            url: url.parse()?,
            credentials_file: self.egress_proxy_credentials_file.clone(),
            exceptions: self.exceptions.clone(),
        })))
    }
}
