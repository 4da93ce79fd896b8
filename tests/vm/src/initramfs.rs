// SPDX-License-Identifier: GPL-2.0

//! The small initramfs of a guest: busybox, the modules for the shared root, and the two stages of
//! the guest's first process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::cpio::Archive;
use crate::platform::Platform;

/// The modules that stage 1 and the guest's network need before there is a root.
const MODULES: &[&str] = &["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net"];

const STAGE1: &str = include_str!("../guest/stage1.sh");
const STAGE2: &str = include_str!("../guest/stage2.sh");
/// Below the root of the guests, which may be of another architecture.
const BUSYBOX: &str = "usr/bin/busybox";

/// The parts of a guest before its root: kernel modules in load order, uncompressed, by file name,
/// and a program.
pub struct Modules {
    list: Vec<(String, Vec<u8>)>,
    busybox: Vec<u8>,
}

impl Modules {
    /// Collects the modules of `platform` that are not built into its kernel.
    pub fn collect(platform: &Platform) -> Result<Self> {
        let mut list: Vec<(String, Vec<u8>)> = Vec::new();
        for name in MODULES {
            for path in dependencies(platform, name)? {
                let file = plain_name(&path);
                if !list.iter().any(|(n, _)| *n == file) {
                    list.push((file, read_module(&path)?));
                }
            }
        }
        let path = platform.rootfs.join(BUSYBOX);
        let busybox = fs::read(&path).with_context(|| format!("{} is missing", path.display()))?;
        Ok(Self { list, busybox })
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.list.iter().map(|(n, _)| n.as_str()).collect();
        names.join(" ")
    }
}

/// Builds the archive; `conf` has further shell assignments for the stages.
pub fn build(modules: &Modules, conf: &str) -> Result<Vec<u8>> {
    let conf = format!("RTRS_INSMOD='{}'\n{conf}", modules.names());

    let mut a = Archive::new();
    a.dir("/bin");
    a.dir("/dev");
    a.dir("/modules");
    a.file("/bin/busybox", 0o755, &modules.busybox);
    a.file("/init", 0o755, STAGE1.as_bytes());
    a.file("/stage2.sh", 0o755, STAGE2.as_bytes());
    a.file("/rtrs.conf", 0o644, conf.as_bytes());
    for (name, data) in &modules.list {
        a.file(&format!("/modules/{name}"), 0o644, data);
    }
    Ok(a.finish())
}

/// Asks modprobe, the authority, for a module and all its dependencies.
fn dependencies(platform: &Platform, name: &str) -> Result<Vec<PathBuf>> {
    let out = Command::new("modprobe")
        .arg("--dirname")
        .arg(&platform.module_base)
        .args(["--set-version", &platform.release, "--show-depends", name])
        .output()
        .context("cannot run modprobe")?;
    if !out.status.success() {
        bail!(
            "kernel {} has no module {name}: {}",
            platform.release,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(parse_depends(&String::from_utf8_lossy(&out.stdout)))
}

fn parse_depends(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|l| l.trim().strip_prefix("insmod "))
        .filter_map(|l| l.split_whitespace().next())
        .map(PathBuf::from)
        .collect()
}

fn plain_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".xz")
        .trim_end_matches(".zst")
        .trim_end_matches(".gz")
        .to_string()
}

/// Busybox's insmod needs plain files, distributions ship compressed ones.
fn read_module(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let out = Command::new(tool)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {tool}"))?;
    if !out.status.success() {
        bail!("{tool} cannot unpack {}", path.display());
    }
    Ok(out.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modprobe_output_is_understood() {
        let text = "builtin virtio\ninsmod /lib/modules/x/a.ko.xz \ninsmod /lib/b.ko opt=1\n";
        assert_eq!(
            parse_depends(text),
            [
                PathBuf::from("/lib/modules/x/a.ko.xz"),
                PathBuf::from("/lib/b.ko")
            ]
        );
    }

    #[test]
    fn compression_suffixes_go() {
        assert_eq!(plain_name(Path::new("/x/9p.ko.xz")), "9p.ko");
        assert_eq!(plain_name(Path::new("/x/9p.ko")), "9p.ko");
    }
}
