//! Names of transports between GPUs.

use girih_comm::GpuTransport;

#[test]
fn names_are_read_as_they_are_written() {
    for transport in GpuTransport::ALL {
        assert_eq!(transport.to_string().parse(), Ok(transport));
    }
    let message = "shared".parse::<GpuTransport>().unwrap_err().to_string();
    assert!(message.contains("\"shared\"") && message.contains("peer"), "{message}");
}
