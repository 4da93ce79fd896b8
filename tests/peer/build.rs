// SPDX-License-Identifier: GPL-2.0

//! Generates the declarations of librdmacm and libibverbs from the headers of the machine.

use std::{
    env,
    path::PathBuf, //
};

use anyhow::{Context, Result};

/// Where Debian has the libclang that bindgen loads.
const LIBCLANG: &str = "/usr/lib/llvm-19/lib";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rustc-link-lib=rdmacm");
    println!("cargo::rustc-link-lib=ibverbs");

    if env::var_os("LIBCLANG_PATH").is_none() {
        env::set_var("LIBCLANG_PATH", LIBCLANG);
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    bindgen::Builder::default()
        .header("wrapper.h")
        .allowlist_function(
            "rdma_(create|destroy|bind|resolve|connect|accept|reject|disconnect|listen|get|ack).*",
        )
        .allowlist_function("ibv_(alloc_pd|dealloc_pd|create_cq|destroy_cq|reg_mr|dereg_mr)")
        .allowlist_function("ibv_(modify_qp|wc_status_str)")
        .allowlist_type("sockaddr_in6?|ibv_wc|ibv_send_wr|ibv_recv_wr")
        .allowlist_type("ibv_(access_flags|qp_attr_mask|wc_flags)")
        .allowlist_var("AF_INET6?|IBV_.*")
        // Structures of other devices' extensions have members that Rust cannot lay out.
        .blocklist_function("rdma_(create_srq|create_qp_ex).*")
        .prepend_enum_name(false)
        .derive_default(true)
        .layout_tests(false)
        .generate_comments(false)
        .generate()
        .context("the headers of librdmacm cannot be read")?
        .write_to_file(out.join("raw.rs"))
        .context("the declarations cannot be written")
}
