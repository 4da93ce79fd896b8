// SPDX-License-Identifier: GPL-2.0

//! The kernel that guests boot, and whether the host can run it with KVM.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

/// A processor architecture, by Debian's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    fn parse(name: &str) -> Result<Self> {
        match name {
            "amd64" => Ok(Self::Amd64),
            "arm64" => Ok(Self::Arm64),
            other => bail!("architecture {other} is not known"),
        }
    }

    /// QEMU's program for the architecture.
    pub fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The machine that QEMU emulates, and its further arguments.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "pc,hpet=off",
            Self::Arm64 => "virt,gic-version=3",
        }
    }

    /// Kernel arguments that are always needed.
    pub fn cmdline(self) -> &'static str {
        match self {
            // A busy host may serve an emulated timer late: the kernel must not judge it at boot.
            Self::Amd64 => "console=ttyS0 mitigations=off tsc=nowatchdog no_timer_check",
            Self::Arm64 => "console=ttyAMA0",
        }
    }

    fn is_host(self) -> bool {
        match self {
            Self::Amd64 => cfg!(target_arch = "x86_64"),
            Self::Arm64 => cfg!(target_arch = "aarch64"),
        }
    }
}

/// A kernel to boot, with its modules, the tree that modules are built against, and the root that
/// its guests share: a directory made by tests/env/kernel.sh or tests/env/debug-kernel.sh.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Name of the directory; its results have the same name.
    pub name: String,
    /// `uname -r` of the guest.
    pub release: String,
    /// Architecture of kernel and root.
    pub arch: Arch,
    /// The image to boot.
    pub image: PathBuf,
    /// Directory below which `lib/modules/<release>` is found.
    pub module_base: PathBuf,
    /// Prepared tree of that kernel.
    pub tree: PathBuf,
    /// The Debian root that guests share.
    pub rootfs: PathBuf,
    /// Whether it is the instrumented kernel, which is several times slower.
    pub debug: bool,
}

impl Platform {
    /// Reads a directory.
    pub fn new(dir: &Path) -> Result<Self> {
        let word = |file: &str| -> Result<String> {
            let text = fs::read_to_string(dir.join(file))
                .with_context(|| format!("{} is no platform", dir.display()))?;
            Ok(text.trim().to_string())
        };
        let name = dir
            .file_name()
            .with_context(|| format!("{} has no name", dir.display()))?;
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            release: word("release")?,
            arch: Arch::parse(&word("arch")?)?,
            image: dir.join("image"),
            module_base: dir.to_path_buf(),
            tree: fs::canonicalize(dir.join("tree"))
                .with_context(|| format!("{} has no tree", dir.display()))?,
            rootfs: PathBuf::from(word("rootfs")?),
            debug: dir.join("debug").exists(),
        })
    }

    /// The directory to appear as `/lib/modules/<release>` in the guest.
    pub fn module_dir(&self) -> PathBuf {
        self.module_base.join("lib/modules").join(&self.release)
    }
}

/// How QEMU executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// On the processor itself.
    Kvm,
    /// By translation, one host thread per virtual CPU.
    Tcg,
    /// By translation in one host thread. The guest's clock moves by a nanosecond with each
    /// instruction, and follows the host's while the guest is idle, so the host's load does not
    /// change how tasks take turns.
    TcgCounted,
}

const MULTI: &str = "tcg,thread=multi,tb-size=512";
const SINGLE: &str = "tcg,thread=single,tb-size=512";
const ICOUNT: &str = "shift=0";
/// Without five levels of page tables: they cost time, and an interrupt while the kernel identifies
/// its processor makes KASAN forget that there are five. Without fast string operations: in
/// translated code each byte is a step, and without them the kernel copies and clears pages in a
/// better way.
const AMD64: &str = "max,la57=off,erms=off,fsrm=off,fsrs=off,fzrm=off";
/// Pointers are not signed: translated code would spend most of its time on that.
const ARM64: &str = "max,pauth=off,sve=off,sme=off";

impl Accel {
    /// Arguments for QEMU.
    pub fn args(self, arch: Arch) -> &'static [&'static str] {
        match (self, arch) {
            (Accel::Kvm, _) => &["-accel", "kvm", "-cpu", "host"],
            (Accel::Tcg, Arch::Amd64) => &["-accel", MULTI, "-cpu", AMD64],
            (Accel::TcgCounted, Arch::Amd64) => {
                &["-accel", SINGLE, "-icount", ICOUNT, "-cpu", AMD64]
            }
            (Accel::Tcg, Arch::Arm64) => &["-accel", MULTI, "-cpu", ARM64],
            (Accel::TcgCounted, Arch::Arm64) => {
                &["-accel", SINGLE, "-icount", ICOUNT, "-cpu", ARM64]
            }
        }
    }

    /// Kernel arguments that the guest needs.
    ///
    /// With translation its time stamp counter is the host's. On a busy host the guest cannot
    /// measure its frequency, and gets it wrong by a factor of five. Then all its timeouts are
    /// wrong. Where time is counted, the counter has the same unit as the clock.
    pub fn cmdline(self, arch: Arch) -> String {
        match (self, arch) {
            (Accel::Tcg, Arch::Amd64) => {
                tsc_khz().map_or(String::new(), |khz| format!("tsc_early_khz={khz}"))
            }
            (Accel::TcgCounted, Arch::Amd64) => "tsc_early_khz=1000000".to_owned(),
            _ => String::new(),
        }
    }

    /// Finds out by booting, once per host boot and kernel: /dev/kvm may exist and yet not run a
    /// stock kernel.
    pub fn probe(cache: &Path, platform: &Platform) -> Result<Self> {
        if !platform.arch.is_host() {
            return Ok(Accel::Tcg);
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let key = format!("{} {}", platform.release, boot.trim());
        let memo = cache.join(format!("accel-{}", platform.name));

        if let Ok(text) = fs::read_to_string(&memo) {
            if let Some((accel, known)) = text.trim().split_once(' ') {
                if known == key {
                    return Ok(if accel == "kvm" {
                        Accel::Kvm
                    } else {
                        Accel::Tcg
                    });
                }
            }
        }
        let accel = if kvm_boots(platform)? {
            Accel::Kvm
        } else {
            Accel::Tcg
        };
        let word = if accel == Accel::Kvm { "kvm" } else { "tcg" };
        fs::write(&memo, format!("{word} {key}\n"))
            .with_context(|| format!("cannot write {}", memo.display()))?;
        Ok(accel)
    }
}

/// Boots with KVM and without a root: a healthy kernel panics for lack of one within seconds, with
/// a message.
fn kvm_boots(platform: &Platform) -> Result<bool> {
    if fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Ok(false);
    }
    let (arch, image) = (platform.arch, &platform.image);
    if !image.exists() {
        bail!("no kernel image at {}", image.display());
    }
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let log = dir.path().join("console");
    let mut child = Command::new(arch.qemu())
        .args(Accel::Kvm.args(arch))
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-smp", "2"])
        .args(["-M", arch.machine()])
        .args(["-m", "1G", "-serial"])
        .arg(format!("file:{}", log.display()))
        .arg("-kernel")
        .arg(image)
        .args(["-append", &format!("{} panic=-1", arch.cmdline())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", arch.qemu()))?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(12) && child.try_wait()?.is_none() {
        sleep(Duration::from_millis(100));
    }
    // It has either ended already or must end.
    let _ = child.kill();
    let _ = child.wait();
    let text = fs::read(&log).unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).contains("Unable to mount root fs"))
}

/// Measures the time stamp counter: the best of several tries, as the host is busy.
#[cfg(target_arch = "x86_64")]
fn tsc_khz() -> Option<u64> {
    use std::{
        arch::x86_64::_rdtsc,
        time::{Duration, Instant},
    };
    // Reads both clocks as close to each other as possible.
    let now = || {
        (0..100)
            .map(|_| {
                // SAFETY: Every x86-64 processor has the instruction.
                let before = unsafe { _rdtsc() };
                let time = Instant::now();
                // SAFETY: As above.
                let after = unsafe { _rdtsc() };
                (after.wrapping_sub(before), before, time)
            })
            .min_by_key(|&(width, ..)| width)
    };
    let (_, tsc, time) = now()?;
    std::thread::sleep(Duration::from_millis(100));
    let (_, tsc_end, time_end) = now()?;

    let us = u64::try_from(time_end.duration_since(time).as_micros()).ok()?;
    (tsc_end.wrapping_sub(tsc))
        .checked_mul(1000)?
        .checked_div(us)
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_khz() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_a_directory() -> Result<()> {
        let tmp = tempfile::tempdir()?;
        let dir = tmp.path().join("7.3.4+deb13-arm64");
        fs::create_dir_all(dir.join("tree"))?;
        assert!(Platform::new(&dir).is_err());
        for (file, text) in [
            ("release", "7.3.4\n"),
            ("arch", "arm64\n"),
            ("rootfs", "/r\n"),
        ] {
            fs::write(dir.join(file), text)?;
        }
        let p = Platform::new(&dir)?;
        assert_eq!((&*p.name, &*p.release), ("7.3.4+deb13-arm64", "7.3.4"));
        assert_eq!((p.arch, p.debug), (Arch::Arm64, false));
        assert_eq!(p.module_dir(), dir.join("lib/modules/7.3.4"));
        fs::write(dir.join("debug"), "")?;
        assert!(Platform::new(&dir)?.debug);
        fs::write(dir.join("arch"), "vax\n")?;
        assert!(Platform::new(&dir).is_err());
        Ok(())
    }

    #[test]
    fn nothing_of_a_pc_in_another_machine() {
        let accel = Accel::Tcg;
        let all = format!(
            "{} {} {} {}",
            accel.args(Arch::Arm64).join(" "),
            Arch::Arm64.machine(),
            Arch::Arm64.cmdline(),
            accel.cmdline(Arch::Arm64)
        );
        for word in [
            "hpet",
            "tsc",
            "no_timer_check",
            "mitigations",
            "la57",
            "ttyS0",
        ] {
            assert!(!all.contains(word), "{word} in {all}");
        }
    }
}
