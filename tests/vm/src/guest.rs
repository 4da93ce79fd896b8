// SPDX-License-Identifier: GPL-2.0

//! One virtual machine: its QEMU process, its files, its output.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::initramfs::{self, Modules};
use crate::platform::{Accel, Platform};

/// Settings that all guests of a run share.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Kernel to boot.
    pub platform: Platform,
    /// How QEMU executes its instructions.
    pub accel: Accel,
    /// Virtual CPUs.
    pub smp: u32,
    /// Memory, in QEMU's notation.
    pub mem: String,
    /// Further kernel arguments.
    pub append: String,
    /// Further QEMU arguments; `{guest}` in one stands for the guest's name.
    pub qemu_args: Vec<String>,
    /// The repository, shared read-only.
    pub repo: PathBuf,
    /// The cache of the set-up, shared read-only.
    pub cache: PathBuf,
    /// Number of links between two guests.
    pub links: u32,
}

/// Settings in which a guest differs from its peer.
#[derive(Clone, Debug)]
pub struct Role {
    /// "server", "client", or "solo".
    pub name: String,
    /// Position in the run, from 0.
    pub index: u32,
    /// The job: a shell script's text.
    pub job: String,
    /// Environment of the job.
    pub env: Vec<(String, String)>,
}

/// A guest and its state.
pub struct Guest {
    /// Its role.
    pub role: Role,
    /// Its own files: job, output, status, console logs.
    pub dir: PathBuf,
    /// How many times it was started.
    pub boots: u32,
    /// The values of [`Guest::boot_seconds`] in earlier starts.
    began: Vec<Option<f64>>,
    machine: Machine,
    sockets: PathBuf,
    out_dir: PathBuf,
    child: Option<Child>,
    read_to: u64,
    partial: Vec<u8>,
}

/// The network card of the debug kernel: without mergeable buffers, and with frames that do not fit
/// in one page, its driver takes no memory from a page pool.
///
/// Soft RoCE frees the packets of a queue pair that has failed with the lock of its state held and
/// interrupts off (`rxe_receiver()`). A page pool takes a lock for that which disables soft
/// interrupts. To enable them again, the lock validator (`CONFIG_TRACE_IRQFLAGS`) enables
/// interrupts, the next packet of the queue pair is received, and waits for the lock for ever.
const NO_PAGE_POOL: &str = ",mrg_rxbuf=off,host_mtu=9000";

// A busy host may give a guest no time for long. Memory is cleared only on request: that saves
// time, and hides nothing.
const CMDLINE: &str = "loglevel=5 panic=-1 oops=panic net.ifnames=0 init_on_alloc=0 \
                       random.trust_cpu=on watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=90";

impl Guest {
    /// Lays out the files of a guest; does not start it.
    pub fn new(machine: &Machine, role: Role, out_dir: &Path, sockets: &Path) -> Result<Self> {
        let dir = out_dir.join(&role.name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self {
            dir,
            boots: 0,
            began: Vec::new(),
            machine: machine.clone(),
            sockets: sockets.to_path_buf(),
            out_dir: out_dir.to_path_buf(),
            child: None,
            read_to: 0,
            partial: Vec::new(),
            role,
        })
    }

    /// Boots the guest, the first time or again.
    pub fn start(&mut self, modules: &Modules) -> Result<()> {
        if self.child.is_some() {
            bail!("guest {} is running already", self.role.name);
        }
        if self.boots > 0 {
            self.began.push(self.boot_seconds());
        }
        self.boots += 1;
        for old in ["status", "booted"] {
            let _ = fs::remove_file(self.dir.join(old));
        }
        self.write("job", &self.role.job)?;
        self.write("env", &self.environment())?;
        File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("output"))
            .context("cannot create the output file")?;

        let initrd = self.sockets.join(format!("{}.cpio", self.role.name));
        fs::write(&initrd, initramfs::build(modules, &self.conf())?)
            .with_context(|| format!("cannot write {}", initrd.display()))?;

        let log = File::create(self.dir.join("qemu.log")).context("cannot create qemu.log")?;
        let qemu = self.machine.platform.arch.qemu();
        let mut cmd = Command::new(qemu);
        cmd.args(self.args(&initrd))
            .args(extra_args(&self.machine.qemu_args, &self.role.name))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // SAFETY: prctl() is async-signal-safe and touches nothing of the
        // parent's memory, so it may be called between fork and exec.
        unsafe {
            cmd.pre_exec(|| {
                // The guests die with a runner that is killed.
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)
            });
        }
        self.child =
            Some(cmd.spawn().with_context(|| {
                format!("cannot run {qemu}; rtrs-vm runs inside the build root")
            })?);
        Ok(())
    }

    /// Whether its QEMU runs.
    pub fn running(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else {
            return Ok(false);
        };
        if child.try_wait().context("cannot wait for QEMU")?.is_some() {
            self.child = None;
            return Ok(false);
        }
        Ok(true)
    }

    /// Cuts the power.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // This fails only if it is gone, which is the goal.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops or continues the whole machine, like a host that hangs.
    pub fn pause(&mut self, stop: bool) -> Result<()> {
        let Some(child) = &self.child else {
            bail!("guest {} is not running", self.role.name);
        };
        let pid = Pid::from_raw(i32::try_from(child.id()).context("strange pid")?);
        let signal = if stop {
            Signal::SIGSTOP
        } else {
            Signal::SIGCONT
        };
        kill(pid, signal).with_context(|| format!("cannot signal guest {}", self.role.name))
    }

    /// Takes down the carrier of a link, or restores it.
    pub fn link(&self, n: u32, up: bool) -> Result<()> {
        let path = self.socket("qmp");
        let mut s = UnixStream::connect(&path)
            .with_context(|| format!("no monitor of guest {}", self.role.name))?;
        s.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut lines = BufReader::new(s.try_clone()?).lines();
        let mut ask = |what: serde_json::Value| -> Result<()> {
            writeln!(s, "{what}")?;
            for line in lines.by_ref() {
                let reply: serde_json::Value = serde_json::from_str(&line?)?;
                if reply.get("error").is_some() {
                    bail!("the monitor says {reply}");
                }
                if reply.get("return").is_some() {
                    return Ok(());
                }
            }
            bail!("the monitor went away")
        };
        ask(serde_json::json!({"execute": "qmp_capabilities"}))?;
        ask(serde_json::json!({
            "execute": "set_link",
            "arguments": {"name": format!("nic{n}"), "up": up},
        }))
    }

    /// Exit status of the job, once it has one.
    pub fn status(&self) -> Option<i32> {
        let text = fs::read_to_string(self.dir.join("status")).ok()?;
        // A file that is still being written ends without the newline.
        text.strip_suffix('\n')?.trim().parse().ok()
    }

    /// Seconds from power-on to the start of the job, by the guest's clock.
    pub fn boot_seconds(&self) -> Option<f64> {
        fs::read_to_string(self.dir.join("booted"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Complete lines that the job has written since the last call.
    pub fn new_lines(&mut self) -> Result<Vec<String>> {
        let mut file = match File::open(self.dir.join("output")) {
            Ok(f) => f,
            Err(_) => return Ok(Vec::new()),
        };
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut data = Vec::new();
        self.read_to += file.read_to_end(&mut data)? as u64;
        self.partial.extend_from_slice(&data);

        let mut lines = Vec::new();
        while let Some(end) = self.partial.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            lines.push(clean(&line));
        }
        Ok(lines)
    }

    /// The rest of an unfinished last line.
    pub fn last_line(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.partial);
        (!rest.is_empty()).then(|| clean(&rest))
    }

    /// Console logs of all boots, each with the seconds from power-on to the start of the job.
    pub fn consoles(&self) -> Vec<(PathBuf, Option<f64>)> {
        let began = self.began.iter().copied().chain([self.boot_seconds()]);
        (1..=self.boots)
            .map(|n| self.console(n))
            .zip(began)
            .collect()
    }

    fn console(&self, boot: u32) -> PathBuf {
        match boot {
            1 => self.dir.join("console.log"),
            n => self.dir.join(format!("console.{n}.log")),
        }
    }

    fn socket(&self, what: &str) -> PathBuf {
        self.sockets.join(format!("{}.{what}", self.role.name))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Environment of the job, sourced by stage 2.
    fn environment(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.role.env {
            text.push_str(&format!("{key}={}\n", quote(value)));
        }
        text.push_str(&format!("RTRS_BOOT={}\n", self.boots));
        text
    }

    /// Assignments for both stages, kept in the initramfs.
    fn conf(&self) -> String {
        let shares: Vec<String> = self
            .shares()
            .iter()
            .skip(1)
            .map(|(tag, path, writable)| {
                // Files that the host changes meanwhile must not be cached.
                let mode = if *writable { "rw:none" } else { "ro:loose" };
                format!("{tag}:{mode}:{}", path.display())
            })
            .collect();
        let kmodules = self.machine.platform.module_dir().display().to_string();
        [
            ("RTRS_SHARES", shares.join(" ")),
            ("RTRS_KMODULES", kmodules),
            ("RTRS_GUEST", self.role.name.clone()),
            ("RTRS_STATE", self.dir.display().to_string()),
            ("RTRS_REPO", self.machine.repo.display().to_string()),
            ("RTRS_CACHE", self.machine.cache.display().to_string()),
        ]
        .iter()
        .map(|(k, v)| format!("{k}={}\n", quote(v)))
        .collect::<Vec<_>>()
        .concat()
    }

    /// (tag, path, writable), the root first. A later path may lie below an earlier one and is
    /// mounted over it.
    fn shares(&self) -> Vec<(&'static str, PathBuf, bool)> {
        vec![
            ("root", self.machine.platform.rootfs.clone(), false),
            ("cache", self.machine.cache.clone(), false),
            ("repo", self.machine.repo.clone(), false),
            ("run", self.out_dir.clone(), true),
        ]
    }

    fn args(&self, initrd: &Path) -> Vec<String> {
        let m = &self.machine;
        let arch = m.platform.arch;
        let mut a: Vec<String> = m.accel.args(arch).iter().map(|s| s.to_string()).collect();
        let mut add = |list: &[&str]| a.extend(list.iter().map(|s| s.to_string()));

        add(&[
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]);
        add(&[
            "-M",
            arch.machine(),
            "-smp",
            &m.smp.to_string(),
            "-m",
            &m.mem,
        ]);
        add(&["-kernel", &m.platform.image.display().to_string()]);
        add(&["-initrd", &initrd.display().to_string()]);
        let own = m.accel.cmdline(arch);
        let cmdline = format!("{} {CMDLINE} {own} {}", arch.cmdline(), m.append);
        add(&["-append", cmdline.trim_end()]);
        add(&[
            "-serial",
            &format!("file:{}", self.console(self.boots).display()),
        ]);
        let qmp = self.socket("qmp");
        add(&[
            "-qmp",
            &format!("unix:{},server=on,wait=off", qmp.display()),
        ]);
        for (tag, path, writable) in self.shares() {
            let ro = if writable { "off" } else { "on" };
            add(&[
                "-fsdev",
                &format!(
                    "local,id={tag},path={},security_model=none,readonly={ro},multidevs=remap",
                    path.display()
                ),
                "-device",
                &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
            ]);
        }
        for n in 0..m.links {
            let path = self.sockets.join(format!("link{n}"));
            // The first guest listens; the other one keeps trying, so that either may be restarted
            // at any time.
            let end = if self.role.index == 0 {
                "server=on"
            } else {
                "server=off,reconnect-ms=200"
            };
            add(&[
                "-netdev",
                &format!(
                    "stream,id=link{n},{end},addr.type=unix,addr.path={}",
                    path.display()
                ),
                "-device",
                &format!(
                    "virtio-net-pci,id=nic{n},netdev=link{n},romfile=,mac=52:54:00:10:{:02x}:{n:02x}{}",
                    self.role.index + 1,
                    if m.platform.debug { NO_PAGE_POOL } else { "" }
                ),
            ]);
        }
        a
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the caller adds for QEMU. Two guests have the same arguments, but each needs a file of its
/// own for what QEMU writes.
fn extra_args(args: &[String], guest: &str) -> Vec<String> {
    args.iter()
        .map(|arg| arg.replace("{guest}", guest))
        .collect()
}

/// Quotes for a POSIX shell.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn clean(line: &[u8]) -> String {
    String::from_utf8_lossy(line)
        .trim_end_matches(['\n', '\r'])
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_has_files_of_its_own() {
        let args = ["-plugin", "p.so,out=/r/{guest}/counts"].map(String::from);
        assert_eq!(
            extra_args(&args, "client"),
            ["-plugin", "p.so,out=/r/client/counts"]
        );
    }

    #[test]
    fn quoting_survives_a_shell() {
        let text = "it's $HOME \"and\" `more`";
        let out = Command::new("sh")
            .arg("-c")
            .arg(format!("printf %s {}", quote(text)))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), text);
    }
}
