use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_nbd::TlsConfig;
use dendro_nbd::testing::{Client, command, option};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Served;

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls")
}

fn served() -> Served {
    Served::with_tls(Some(TlsConfig::read(&certificates()).unwrap()))
}

type Encrypted = StreamOwned<ClientConnection, UnixStream>;

/// Encrypts a connection with the certificate of `who`.
fn encrypt(client: Client<UnixStream>, who: Option<&str>) -> Client<Encrypted> {
    let read = |name: &str| {
        let path = certificates().join(name);
        CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    let mut roots = RootCertStore::empty();
    roots.add(read("ca-cert.pem").remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match who {
        None => config.with_no_client_auth(),
        Some(who) => {
            let key = certificates().join(format!("{who}-key.pem"));
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            config.with_client_auth_cert(read(&format!("{who}-cert.pem")), key).unwrap()
        }
    };
    let connection =
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    Client::connected(StreamOwned::new(connection, client.into_stream()))
}

#[test]
fn data_are_the_same_where_they_are_encrypted() {
    let served = served();
    let mut client = served.connect();
    assert_eq!(client.option(option::STARTTLS, b"").unwrap(), [(1, vec![])]);
    let mut client = encrypt(client, Some("client"));
    client.agree_on_all("disk").unwrap();
    assert_eq!(client.go("disk").unwrap().0, 1);
    assert!(served.activity.connections()[0].is_encrypted);
    let data: Vec<u8> = (0..900_000_u32).map(|at| (at % 251) as u8).collect();
    client.write(100, &data, 0).unwrap().unwrap();
    for _ in 0..20 {
        client.send((command::READ, 0), 100, 900_000, b"").unwrap();
    }
    for _ in 0..20 {
        assert_eq!(client.receive().unwrap().1.unwrap().data, data);
    }
    client.send((command::DISC, 0), 0, 0, b"").unwrap();
    // The end is announced, so that nobody can cut a connection off unseen.
    assert_eq!(client.into_stream().read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn without_encryption_nothing_is_told() {
    let served = served();
    let mut client = served.connect();
    for option in [option::LIST, option::GO, option::STRUCTURED_REPLY, option::INFO] {
        assert_eq!(client.option(option, b"").unwrap()[0].0, 0x8000_0005);
    }
    client.send_option(option::EXPORT_NAME, b"disk").unwrap();
    assert_eq!(client.into_stream().read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn clients_without_a_certificate_of_the_authority_are_sent_away() {
    let served = served();
    for who in [None, Some("stranger")] {
        let mut client = served.connect();
        assert_eq!(client.option(option::STARTTLS, b"").unwrap(), [(1, vec![])]);
        let mut client = encrypt(client, who);
        assert!(client.option(option::LIST, b"").is_err(), "{who:?}");
    }
}

#[test]
fn what_follows_before_the_encryption_is_not_taken_for_encrypted() {
    let served = served();
    let mut client = served.connect();
    let starttls = b"IHAVEOPT\0\0\0\x05\0\0\0\0";
    let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0";
    client.send_raw(&[&starttls[..], list].concat()).unwrap();
    let mut replies = Vec::new();
    client.into_stream().read_to_end(&mut replies).unwrap();
    // The acknowledgement, and nothing else.
    assert_eq!(replies.len(), 20);
}

#[test]
fn a_file_that_is_missing_is_named() {
    let why = TlsConfig::read(Path::new("/none")).unwrap_err().to_string();
    assert!(why.starts_with("/none/ca-cert.pem: "), "{why}");
}
