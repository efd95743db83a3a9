use std::fs::File;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use dendro_nbd::Listener;

#[test]
fn a_descriptor_is_a_listener_if_it_is_a_stream_socket_that_listens() {
    let directory = tempfile::tempdir().unwrap();
    let unix = UnixListener::bind(directory.path().join("socket")).unwrap();
    assert!(matches!(Listener::from_descriptor(unix.into()), Ok(Listener::Unix(_))));
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // There may be no IPv6 here.
        let Ok(tcp) = TcpListener::bind(address) else { continue };
        assert!(matches!(Listener::from_descriptor(tcp.into()), Ok(Listener::Tcp(_))));
    }
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let others: [OwnedFd; 4] = [
        connected.into(),
        UnixStream::pair().unwrap().0.into(),
        UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        File::open("/dev/null").unwrap().into(),
    ];
    for other in others {
        let refused = Listener::from_descriptor(other).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::InvalidInput) || refused.raw_os_error().is_some()
        );
    }
}

/// A client may have made its socket one that does not wait.
#[test]
fn a_connection_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).unwrap();
    unix.set_nonblocking(true).unwrap();
    let copy = unix.try_clone().unwrap();
    let _listener = Listener::from_descriptor(unix.into()).unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(move || copy.accept().map(drop));
        std::thread::sleep(std::time::Duration::from_millis(50));
        let _client = UnixStream::connect(&path).unwrap();
        accepted.join().unwrap().unwrap();
    });
}
