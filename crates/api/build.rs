//! Compiles proto/urlfrontier.proto in pure Rust (no protoc) and keeps its descriptors for gRPC reflection.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

const PROTO: &str = "../../proto/urlfrontier.proto";
const INCLUDE: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let descriptors = protox::compile([PROTO], [INCLUDE])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("urlfrontier.bin"), descriptors.encode_to_vec())?;
    // Sorted maps: metadata gets one order and costs nothing while it is empty.
    tonic_prost_build::configure().btree_map(".").emit_rerun_if_changed(false).compile_fds(descriptors)?;
    mend_names(&out.join("urlfrontier.rs"))?;
    Ok(())
}

/// The generator splits the protocol's `URLs` into `ur_ls`; people should not have to read that.
fn mend_names(file: &Path) -> Result<(), Box<dyn Error>> {
    let code = std::fs::read_to_string(file)?;
    std::fs::write(file, code.replace("_ur_ls", "_urls"))?;
    Ok(())
}
