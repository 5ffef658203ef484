//! Names of transports between GPUs.

use girih_comm::CardTransport;

#[test]
fn names_are_read_as_they_are_written() {
    for transport in CardTransport::ALL {
        assert_eq!(transport.to_string().parse(), Ok(transport));
    }
    let message = "shared".parse::<CardTransport>().unwrap_err().to_string();
    assert!(message.contains("\"shared\"") && message.contains("peer"), "{message}");
}
