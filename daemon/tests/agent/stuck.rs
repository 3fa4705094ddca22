//! A read of a collector never returns and no signal ends it, as of a file system or a driver that is gone. The agent still
//! restarts on a new configuration.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::configuration::configured_at_rest;
use crate::node::{Node, wait_for};

// linux/fuse.h: requests that a collector causes.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const INIT: u32 = 26;

/// A file system in user space: an empty folder, which stops answering on request. Once it has read a request, the caller
/// waits for the answer, whatever signal it gets.
struct Folder {
    path: PathBuf,
    is_silent: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Folder {
    fn mounted(path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let mut device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        mount(Some("silent"), path, Some("fuse"), MsFlags::MS_NOSUID, Some(options.as_str())).unwrap();
        let is_silent = Arc::new(AtomicBool::new(false));
        let silent = is_silent.clone();
        // It ends when the file system is gone.
        let server = thread::spawn(move || while serve(&mut device, &silent).is_ok() {});
        Self { path: path.to_owned(), is_silent, server: Some(server) }
    }

    fn stop_answering(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = umount2(&self.path, MntFlags::MNT_FORCE);
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        self.server.take();
    }
}

fn serve(device: &mut File, is_silent: &AtomicBool) -> io::Result<()> {
    let mut request = vec![0; 1 << 17];
    let length = device.read(&mut request)?;
    let number = |at: usize| request[..length][at..at + 4].try_into().map(u32::from_ne_bytes).unwrap();
    let mut body = Vec::new();
    let error = match number(4) {
        // Version 7.23 and its 64 bytes: what follows the lengths of buffers is 0.
        INIT => {
            let words = [7_u32, 23, 0, 0, 0, 4096];
            body.extend(words.iter().flat_map(|word| word.to_ne_bytes()).chain([0; 40]));
            0
        }
        _ if is_silent.load(Ordering::SeqCst) => return Ok(()),
        // The time for which it holds, then the attributes: all 0 but inode, mode and links of a folder.
        GETATTR => {
            body = vec![0; 16 + 88];
            body[16] = 1;
            body[76..80].copy_from_slice(&0o040_755_u32.to_ne_bytes());
            body[80] = 2;
            0
        }
        STATFS => {
            body = vec![0; 80];
            0
        }
        LOOKUP => Errno::ENOENT as i32,
        _ => Errno::ENOSYS as i32,
    };
    let length = u32::try_from(16 + body.len()).unwrap();
    let head = [&length.to_ne_bytes()[..], &(-error).to_ne_bytes(), &request[8..16]].concat();
    device.write_all(&[head, body].concat())
}

#[test]
fn agent_restarts_on_a_new_configuration_while_a_read_never_returns() {
    let node = Node::with_pods();
    let folder = Folder::mounted(&node.path("host/usr"));
    let agent = configured_at_rest(&node, "POD_MTU=1500\n");
    // Dropped first: an agent with a thread that waits cannot end.
    let folder = folder;
    folder.stop_answering();
    let hangs = || node.get("/metrics").1.contains(r#"signal{signal="disk_use",result="unknown"} 1"#);
    wait_for("a collector that hangs", hangs, || node.get("/metrics").1);
    node.deliver(2, "POD_MTU=1400\n");
    wait_for("the new agent", || agent.events("agent.started").len() == 2, || agent.log());
    let conflist = || std::fs::read_to_string(node.path("net.d").join(vcn::CONFLIST_FILE)).unwrap();
    wait_for("its configuration", || conflist().contains("\"mtu\": 1400"), || agent.log());
    drop(folder);
    // The first program passes the signal on.
    let stopping = || agent.events("agent.stopping").len();
    let before = stopping();
    assert!(agent.stop().0.success(), "{}", agent.log());
    assert_eq!(stopping(), before + 1);
}
