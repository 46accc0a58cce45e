//! How every part of this program asks a server over HTTP: by names that are looked up as this program can, through
//! the proxy that the environment names, believing the authorities it names. Redirects are never followed, because
//! all that is sent is for one origin.

#![allow(clippy::disallowed_methods, reason = "opens the user's own certificates")]

pub(crate) mod origin;
mod proxy;
mod resolver;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;

use origin::Origin;
use proxy::ProxySettings;
use resolver::HostResolver;

const AGENT: &str = concat!("agency/", env!("CARGO_PKG_VERSION"));
const LARGEST_CERTIFICATES: u64 = 4 * 1024 * 1024;

/// What the environment says that can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{variable} does not hold the address of an HTTP proxy")]
    Proxy { variable: &'static str },
    #[error("the certificates in {} can't be used: {why}", path.display())]
    Certificates { path: PathBuf, why: String },
}

/// The way out of this machine. It may hold a proxy's password, so it can't be printed.
pub(crate) struct HttpSettings {
    proxies: ProxySettings,
    certificates: Option<PathBuf>,
}

impl HttpSettings {
    pub(crate) fn from(variable: &impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            proxies: ProxySettings::from(variable),
            certificates: variable("SSL_CERT_FILE").map(PathBuf::from),
        }
    }

    /// The client for one origin. `patience` is from the look-up of a name to the last byte of an answer.
    pub(crate) fn agent(&self, origin: &Origin, patience: Duration) -> Result<Agent, HttpError> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = self.certificates.as_deref().filter(|_| origin.secure) {
            tls = tls.root_certs(certificates(path)?);
        }
        let config = Agent::config_builder()
            .https_only(origin.secure)
            .proxy(self.proxies.to(origin)?)
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(patience))
            .user_agent(AGENT)
            .build();
        Ok(Agent::with_parts(config, DefaultConnector::default(), HostResolver))
    }
}

/// The authorities to believe instead of the public ones, as other programs understand SSL_CERT_FILE.
fn certificates(path: &Path) -> Result<RootCerts, HttpError> {
    let wrong =
        |why: &dyn std::fmt::Display| HttpError::Certificates { path: path.to_owned(), why: why.to_string() };
    let about = fs::metadata(path).map_err(|error| wrong(&error))?;
    if !about.is_file() || about.len() > LARGEST_CERTIFICATES {
        return Err(wrong(&"it is not a file of PEM certificates"));
    }
    let pem = fs::read(path).map_err(|error| wrong(&error))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| wrong(&error))? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(wrong(&"it has no certificate in it")) } else { Ok(RootCerts::from(found)) }
}
