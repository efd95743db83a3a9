//! Where `dendro nbd` listens.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use dendro_control::socket;
use dendro_nbd::{Listener, TlsConfig};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::args::block::NbdArgs;
use crate::failure::{Failure, usage};

/// The port that is registered for NBD.
const DEFAULT_PORT: u16 = 10809;
/// What a user's own socket is called behind the volume's UUID.
const EXTENSION: &str = "nbd";

/// Where to listen, as the arguments say.
pub(super) struct Place<'a> {
    args: &'a NbdArgs,
    tls: Option<TlsConfig>,
    /// `None`: a socket.
    port: Option<Port>,
}

/// A port of a host.
struct Port {
    /// As it was given, which is what a certificate is for; in brackets if it has colons.
    host: String,
    addresses: Vec<SocketAddr>,
}

/// A listener, and how clients find it.
pub(super) struct Listening {
    pub(super) listener: Listener,
    pub(super) tls: Option<TlsConfig>,
    pub(super) uri: String,
    /// Removed when this is dropped.
    pub(super) _socket: Option<SocketFile>,
}

impl<'a> Place<'a> {
    /// Checks the arguments, before anything is opened.
    pub(super) fn new(args: &'a NbdArgs) -> Result<Self, Failure> {
        let tls = args.tls_certificates.as_deref().map(read_certificates).transpose()?;
        let port = args.listen.as_deref().map(|text| find_port(text, args)).transpose()?;
        Ok(Self { args, tls, port })
    }

    /// Listens there, by default at the socket of the volume `uuid`.
    pub(super) fn listen(self, uuid: &str) -> Result<Listening, Failure> {
        let Self { args, tls, port } = self;
        let (listener, uri, _socket) = match port {
            Some(port) => {
                let (listener, uri) = listen_at(&port, tls.is_some())?;
                (listener, uri, None)
            }
            None => {
                let (listener, uri, socket) = listen_beside(args.socket.as_deref(), uuid, &tls)?;
                (listener, uri, Some(socket))
            }
        };
        Ok(Listening { listener, tls, uri, _socket })
    }
}

fn read_certificates(directory: &Path) -> Result<TlsConfig, Failure> {
    TlsConfig::read(directory)
        .map_err(|why| Failure::new(format_args!("{}: {why}", directory.display())))
}

/// The port that `text` names.
fn parse_port(text: &str) -> io::Result<Port> {
    let (host, addresses) = match (text.to_socket_addrs(), text.rsplit_once(':')) {
        (Ok(addresses), Some((host, _))) => (host, addresses),
        _ => (text, (text.trim_matches(['[', ']']), DEFAULT_PORT).to_socket_addrs()?),
    };
    let host = host.trim_matches(['[', ']']);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(Port { host, addresses: addresses.collect() })
}

/// The port that `text` names, if clients may be let in there.
fn find_port(text: &str, args: &NbdArgs) -> Result<Port, Failure> {
    let found = parse_port(text).map_err(|error| {
        usage(format_args!("{text}: no address, as HOST or HOST:PORT: {error}"))
    })?;
    let is_open = found.addresses.iter().any(|address| !address.ip().is_loopback());
    if is_open && args.tls_certificates.is_none() && !args.allow_plain {
        return Err(usage(format_args!(
            "{text}: other machines could read and write there; --tls-certificates DIR lets in \
             those who have a certificate, and --allow-plain lets everybody in"
        )));
    }
    Ok(found)
}

fn listen_at(port: &Port, is_encrypted: bool) -> Result<(Listener, String), Failure> {
    let Port { host, addresses } = port;
    let named = || addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let listener = TcpListener::bind(&**addresses)
        .map_err(|error| Failure::new(format_args!("{}: {error}", named())))?;
    let scheme = if is_encrypted { "nbds" } else { "nbd" };
    let uri = format!("{scheme}://{host}:{}", listener.local_addr()?.port());
    Ok((Listener::Tcp(listener), uri))
}

/// A socket that is removed when this is dropped.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If somebody has removed it, nothing is left to be done.
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens at a socket, by default at the volume's own.
fn listen_beside(
    path: Option<&Path>,
    uuid: &str,
    tls: &Option<TlsConfig>,
) -> Result<(Listener, String, SocketFile), Failure> {
    let path = match path {
        Some(path) => std::path::absolute(path)?,
        None => {
            let directory = socket::directory();
            socket::create_directory(&directory)
                .map_err(|error| Failure::new(format_args!("{}: {error}", directory.display())))?;
            directory.join(uuid).with_extension(EXTENSION)
        }
    };
    let fail = |why: io::Error| Failure::new(format_args!("{}: {why}", path.display()));
    remove_dead(&path)?;
    // Only this user and root can connect, from the beginning.
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(&path);
    umask(before);
    let listener = Listener::Unix(listener.map_err(fail)?);
    let scheme = if tls.is_some() { "nbds" } else { "nbd" };
    let uri = format!("{scheme}+unix:///?socket={}", escaped(&path));
    Ok((listener, uri, SocketFile(path)))
}

/// A path as a part of a URI.
fn escaped(path: &Path) -> String {
    let escape = |&byte: &u8| match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    path.as_os_str().as_bytes().iter().map(escape).collect()
}

/// Removes a socket that a server has left which was killed.
fn remove_dead(path: &Path) -> Result<(), Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Err(Failure::new(format_args!("{}: {why}", path.display())));
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => fail(&error),
        Ok(found) if !found.file_type().is_socket() => fail(&"is there, and is no socket"),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).or_else(|error| fail(&error))
            }
            Err(error) => fail(&error),
            Ok(_) => fail(&"another process listens there"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_as_it_was_given() {
        let cases = [
            ("localhost", "localhost", DEFAULT_PORT),
            ("localhost:7", "localhost", 7),
            ("127.0.0.1", "127.0.0.1", DEFAULT_PORT),
            ("127.0.0.1:7", "127.0.0.1", 7),
            ("::1", "[::1]", DEFAULT_PORT),
            ("[::1]", "[::1]", DEFAULT_PORT),
            ("[::1]:7", "[::1]", 7),
        ];
        for (text, host, port) in cases {
            let found = parse_port(text).expect("an address");
            assert_eq!((&*found.host, found.addresses[0].port()), (host, port), "{text}");
        }
    }
}
