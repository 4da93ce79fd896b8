// SPDX-License-Identifier: GPL-2.0

//! Writes the "newc" cpio archives that the kernel unpacks as its initramfs.

/// An archive under construction, in memory.
pub struct Archive {
    data: Vec<u8>,
    inode: u32,
}

const S_IFREG: u32 = 0o100000;
const S_IFDIR: u32 = 0o040000;

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Self {
            data: Vec::new(),
            inode: 0,
        }
    }

    /// Adds a directory. Parents have to be added first.
    pub fn dir(&mut self, path: &str) {
        self.entry(path, S_IFDIR | 0o755, &[]);
    }

    /// Adds a regular file with the permission bits `mode`.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, S_IFREG | mode, content);
    }

    /// Ends the archive and returns it.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[]);
        // The kernel reads on until a multiple of 512, as tape drives did.
        self.pad(512);
        self.data
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let name = path.trim_start_matches('/');
        let fields: [u32; 13] = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            if mode & S_IFDIR != 0 { 2 } else { 1 },
            0, // mtime: the same input gives the same archive
            u32::try_from(content.len()).expect("initramfs members are far below 4 GiB"),
            0, // device major
            0, // device minor
            0, // rdev major
            0, // rdev minor
            u32::try_from(name.len() + 1).expect("paths are short"),
            0, // checksum, unused by this format
        ];
        self.data.extend_from_slice(b"070701");
        for f in fields {
            self.data.extend_from_slice(format!("{f:08X}").as_bytes());
        }
        self.data.extend_from_slice(name.as_bytes());
        self.data.push(0);
        self.pad(4);
        self.data.extend_from_slice(content);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        while self.data.len() % to != 0 {
            self.data.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_name_and_content_are_aligned() {
        let mut a = Archive::new();
        a.dir("/bin");
        a.file("/bin/x", 0o755, b"hello");
        let d = a.finish();

        assert_eq!(d.len() % 512, 0);
        assert_eq!(&d[..6], b"070701");
        // 110 bytes of header, "bin\0", padded to 4: the next header.
        assert_eq!(&d[116..122], b"070701");
        assert!(d.windows(5).any(|w| w == b"hello"));
        assert!(d.windows(10).any(|w| w == b"TRAILER!!!"));
    }

    #[test]
    fn size_and_mode_are_recorded() {
        let mut a = Archive::new();
        a.file("f", 0o644, &[7; 17]);
        let d = a.finish();
        let field = |n: usize| {
            let at = 6 + 8 * n;
            u32::from_str_radix(std::str::from_utf8(&d[at..at + 8]).unwrap(), 16).unwrap()
        };

        assert_eq!(field(1), 0o100644);
        assert_eq!(field(6), 17);
        assert_eq!(field(11), 2);
    }
}
