//! Generates the stubs from the descriptors next to this package, where the interop run puts them.

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=descriptors.binpb");
    let descriptors = FileDescriptorSet::decode(std::fs::read("descriptors.binpb")?.as_slice())?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
