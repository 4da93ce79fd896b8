// SPDX-License-Identifier: GPL-2.0

//! Which kernel the guests boot, and whether the host can do so with KVM.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

/// A kernel to boot, with its modules and the tree modules are built against.
#[derive(Clone, Debug)]
pub struct Platform {
    /// `uname -r` of the guest.
    pub release: String,
    /// The image to boot.
    pub image: PathBuf,
    /// Directory below which `lib/modules/<release>` is found.
    pub module_base: PathBuf,
    /// Prepared tree of that kernel.
    pub tree: PathBuf,
    /// Is it the instrumented kernel, several times slower?
    pub debug: bool,
}

impl Platform {
    /// The distribution's own kernel, as tests/env/kernel.sh provides it.
    pub fn stock(cache: &Path) -> Result<Self> {
        let release = current(&cache.join("kernel"), "tests/env/kernel.sh")?;
        let rootfs = cache.join("rootfs");
        Ok(Self {
            image: rootfs
                .join("usr/lib/modules")
                .join(&release)
                .join("vmlinuz"),
            module_base: rootfs,
            tree: cache.join("kernel").join(&release),
            release,
            debug: false,
        })
    }

    /// The debug kernel, as tests/env/debug-kernel.sh provides it.
    pub fn debug(cache: &Path) -> Result<Self> {
        let name = current(&cache.join("debug"), "tests/env/debug-kernel.sh")?;
        let dir = cache.join("debug").join(name);
        let release = fs::read_to_string(dir.join("release"))
            .with_context(|| format!("{} is incomplete", dir.display()))?;
        Ok(Self {
            release: release.trim().to_string(),
            image: dir.join("bzImage"),
            module_base: dir.join("modules"),
            tree: dir.join("build"),
            debug: true,
        })
    }

    /// The directory to appear as `/lib/modules/<release>` in the guest,
    /// unless the shared root has it there already.
    pub fn module_dir(&self) -> Option<PathBuf> {
        self.debug
            .then(|| self.module_base.join("lib/modules").join(&self.release))
    }
}

fn current(dir: &Path, maker: &str) -> Result<String> {
    let link = dir.join("current");
    let target = fs::read_link(&link)
        .with_context(|| format!("no kernel at {}; run {maker}", link.display()))?;
    Ok(target.to_string_lossy().into_owned())
}

/// How QEMU executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// On the processor itself.
    Kvm,
    /// By translation, one host thread per virtual CPU.
    Tcg,
}

impl Accel {
    /// Arguments for QEMU.
    pub fn args(self) -> &'static [&'static str] {
        match self {
            Accel::Kvm => &["-accel", "kvm", "-cpu", "host"],
            // Without five levels of page tables: they cost time, and an interrupt that comes
            // while the kernel identifies its processor makes KASAN forget that there are five.
            // Without strings of bytes that are said to be fast: translated, each byte is a step,
            // and for the kernel's pages and copies there is a better way, then.
            Accel::Tcg => &[
                "-accel",
                "tcg,thread=multi,tb-size=512",
                "-cpu",
                "max,la57=off,erms=off,fsrm=off,fsrs=off,fzrm=off",
            ],
        }
    }

    /// What the guest's kernel has to be told.
    ///
    /// By translation its time stamp counter is the host's, but on a busy host
    /// the guest cannot find out how fast that is, and gets it wrong by a
    /// factor of five. All its time-outs are wrong then.
    pub fn cmdline(self) -> String {
        match self {
            Accel::Kvm => String::new(),
            Accel::Tcg => tsc_khz().map_or(String::new(), |khz| format!("tsc_early_khz={khz}")),
        }
    }

    /// Finds out by booting, once per host boot and kernel: /dev/kvm may be
    /// there and yet not carry a stock kernel.
    pub fn probe(cache: &Path, platform: &Platform) -> Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let key = format!("{} {}", platform.release, boot.trim());
        let memo = cache.join(format!(
            "accel{}",
            if platform.debug { "-debug" } else { "" }
        ));

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
        let accel = if kvm_boots(&platform.image)? {
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

/// Boots with KVM and no root: a healthy kernel panics for want of one, and
/// says so, within seconds.
fn kvm_boots(image: &Path) -> Result<bool> {
    if fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Ok(false);
    }
    if !image.exists() {
        bail!("no kernel image at {}", image.display());
    }
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let log = dir.path().join("console");
    let mut child = Command::new("qemu-system-x86_64")
        .args(Accel::Kvm.args())
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-smp", "2"])
        .args(["-m", "1G", "-serial"])
        .arg(format!("file:{}", log.display()))
        .arg("-kernel")
        .arg(image)
        .args(["-append", "console=ttyS0 panic=-1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run qemu-system-x86_64")?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(12) && child.try_wait()?.is_none() {
        sleep(Duration::from_millis(100));
    }
    // Either has ended already or has to.
    let _ = child.kill();
    let _ = child.wait();
    let text = fs::read(&log).unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).contains("Unable to mount root fs"))
}

/// Measures the time stamp counter: the best of several tries, as the host is
/// busy.
#[cfg(target_arch = "x86_64")]
fn tsc_khz() -> Option<u64> {
    use std::{
        arch::x86_64::_rdtsc,
        time::{Duration, Instant},
    };
    // Both clocks as close to each other as they get.
    let now = || {
        (0..100)
            .map(|_| {
                // SAFETY: every x86-64 processor has the instruction.
                let before = unsafe { _rdtsc() };
                let time = Instant::now();
                // SAFETY: as above.
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
