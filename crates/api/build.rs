//! Compiles proto/*.proto in pure Rust (no protoc) and keeps the descriptors of what clients may call for gRPC reflection.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

const PROTO: &str = "../../proto/urlfrontier.proto";
const NODE_PROTO: &str = "../../proto/node.proto";
const INCLUDE: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    println!("cargo:rerun-if-changed={NODE_PROTO}");
    let descriptors = protox::compile([PROTO], [INCLUDE])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("urlfrontier.bin"), descriptors.encode_to_vec())?;
    // Sorted maps: metadata gets one order and costs nothing while it is empty.
    tonic_prost_build::configure().btree_map(".").emit_rerun_if_changed(false).compile_fds(descriptors)?;
    mend_names(&out.join("urlfrontier.rs"))?;
    let nodes = protox::compile([NODE_PROTO], [INCLUDE])?;
    tonic_prost_build::configure().bytes(".").emit_rerun_if_changed(false).compile_fds(nodes)?;
    Ok(())
}

/// The generator splits the protocol's `URLs` into `ur_ls`; people should not have to read that.
fn mend_names(file: &Path) -> Result<(), Box<dyn Error>> {
    let code = std::fs::read_to_string(file)?;
    std::fs::write(file, code.replace("_ur_ls", "_urls"))?;
    Ok(())
}
