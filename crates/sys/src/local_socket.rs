//! Connections that never leave the machine.

use std::os::fd::AsFd;

use rustix::net::sockopt::set_tcp_congestion;

/// Built into every kernel, allowed to everybody, and it sends what it has at once.
const UNPACED: &str = "reno";

/// Spares a connection within this machine, or those that a listener will accept, what the host
/// has chosen for the internet: BBR holds each packet back for its moment, by a timer that costs
/// more than the packet.
pub fn send_unpaced(socket: impl AsFd) {
    // Without it, it is only slower.
    set_tcp_congestion(socket, UNPACED).ok();
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    #[test]
    fn both_ends_of_a_connection_send_unpaced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        send_unpaced(&listener);
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        send_unpaced(&client);
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(tcp_congestion(&accepted).unwrap(), UNPACED);
        assert_eq!(tcp_congestion(&client).unwrap(), UNPACED);
    }
}
