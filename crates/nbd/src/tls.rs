//! Certificates.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// Who may certify clients and servers.
const CA_CERTIFICATE: &str = "ca-cert.pem";
/// The server's certificate, and those between it and the other.
const SERVER_CERTIFICATE: &str = "server-cert.pem";
/// The key of the server's certificate.
const SERVER_KEY: &str = "server-key.pem";

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or is none of certificates or of a key.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: pem::Error,
    },
    /// A file without certificates.
    #[error("{}: it has no certificate", .0.display())]
    Empty(PathBuf),
    /// The certificates of those who certify clients are no good.
    #[error("{CA_CERTIFICATE}: {0}")]
    Verifier(#[from] VerifierBuilderError),
    /// The certificates and the key do not fit.
    #[error("{0}")]
    Unusable(#[from] rustls::Error),
}

/// Certificates of a server. Clients must have one as well, of the same authority.
#[derive(Clone)]
pub struct TlsConfig {
    config: Arc<ServerConfig>,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").finish_non_exhaustive()
    }
}

impl TlsConfig {
    /// Reads `ca-cert.pem`, `server-cert.pem` and `server-key.pem` in a directory: what GnuTLS's
    /// certtool(1) makes, and what nbdkit and qemu have there.
    ///
    /// # Errors
    /// If a file is missing, or is not what it should be.
    pub fn read(directory: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(&directory.join(CA_CERTIFICATE))? {
            authorities.add(certificate)?;
        }
        let authorities = Arc::new(authorities);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        let key = directory.join(SERVER_KEY);
        let key =
            PrivateKeyDer::from_pem_file(&key).map_err(|why| TlsError::File { path: key, why })?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier.build()?)
            .with_single_cert(certificates(&directory.join(SERVER_CERTIFICATE))?, key)?;
        Ok(Self { config: Arc::new(config) })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why| TlsError::File { path: path.to_path_buf(), why };
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(failed)?;
    if all.is_empty() { Err(TlsError::Empty(path.to_path_buf())) } else { Ok(all) }
}
