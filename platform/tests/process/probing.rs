//! What is chosen, and what is said of it, where io_uring is forbidden: by a seccomp filter, as containers do. And what
//! becomes of other calls that one forbids.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use m0_platform::{Choice, Completion, Kind, Options};

use crate::child::in_child;

/// Makes a system call return an errno in this process, for good.
fn forbid(call: libc::c_long, errno: i32) {
    let load_number = libc::sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    }; // BPF_LD | BPF_W | BPF_ABS: the call's number
    let is_it = libc::sock_filter {
        code: 0x15,
        jt: 0,
        jf: 1,
        k: u32::try_from(call).unwrap(),
    }; // BPF_JMP | BPF_JEQ | BPF_K
    let fail = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    let refuse = libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: fail,
    }; // BPF_RET | BPF_K
    let allow = libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let mut filter = [load_number, is_it, refuse, allow];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its four instructions are valid for the calls, which copy them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
            0
        );
    }
}

/// Opens both ways under the filter; the child's exit code tells the first thing that was wrong.
fn falls_back(errno: i32, words: &[&str]) {
    let _guard = crate::guard();
    let code = in_child(|| {
        forbid(libc::SYS_io_uring_setup, errno);
        let Ok((backend, resolved)) = m0_platform::open(Choice::Auto, &Options::default()) else {
            return 1;
        };
        if (backend.kind(), resolved.kind) != (Kind::Epoll, Kind::Epoll) {
            return 2;
        }
        let reason = resolved.reason.unwrap_or_default();
        if !words.iter().all(|word| reason.contains(word)) {
            eprintln!("the reason was: {reason}");
            return 3;
        }
        let Err(refused) = m0_platform::open(Choice::Only(Kind::IoUring), &Options::default()) else {
            return 4;
        };
        if !refused.unsupported || !words.iter().all(|word| refused.sentence.contains(word)) {
            eprintln!("the sentence was: {}", refused.sentence);
            return 5;
        }
        let lines = m0_platform::available();
        let io_uring = lines.iter().find(|line| line.kind == Kind::IoUring);
        if io_uring.is_none_or(|line| line.usable || line.reason.is_none()) {
            return 6;
        }
        0
    });
    assert_eq!(code, 0);
}

#[test]
fn forbidden_as_docker_does() {
    falls_back(libc::EPERM, &["io_uring_setup", "EPERM", "seccomp"]);
}

#[test]
fn forbidden_as_podman_does() {
    falls_back(libc::ENOSYS, &["io_uring_setup", "ENOSYS"]);
}

/// An error of accepting that was none of the few known ones was taken for a connection that had gone: accepting went round
/// for ever.
#[test]
fn forbidden_to_accept() {
    let _guard = crate::guard();
    let code = in_child(|| {
        let Ok((mut backend, _)) = m0_platform::open(Choice::Only(Kind::Epoll), &Options::default()) else {
            return 1;
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        backend.listen(listener.into()).unwrap();
        forbid(libc::SYS_accept4, libc::EPERM);
        let _client = TcpStream::connect(address).unwrap();
        let mut failed = 0;
        for _ in 0..20 {
            backend.wait(Some(Duration::from_millis(10))).unwrap();
            while let Some(completion) = backend.next() {
                failed += i32::from(matches!(completion, Completion::AcceptFailed { .. }));
            }
        }
        10 + failed
    });
    assert_eq!(code, 11, "it is told once, and accepting pauses");
}

#[test]
fn every_kind_is_listed_once() {
    let _guard = crate::guard();
    let lines = m0_platform::available();
    assert_eq!(
        lines.iter().map(|line| line.kind).collect::<Vec<_>>(),
        [Kind::IoUring, Kind::Epoll, Kind::Kqueue]
    );
    for line in lines {
        assert_eq!(line.usable, line.reason.is_none());
        if cfg!(target_os = "linux") && line.kind == Kind::Epoll {
            assert!(line.usable);
        }
    }
}

#[test]
fn kqueue_is_emulated_on_linux_where_the_build_says_so_and_refused_elsewhere() {
    let _guard = crate::guard();
    let opened = m0_platform::open(Choice::Only(Kind::Kqueue), &Options::default());
    if cfg!(feature = "emulated-kqueue") {
        assert!(
            opened
                .unwrap_or_else(|refused| panic!("{refused:?}"))
                .1
                .kind
                .is_emulated()
        );
        return;
    }
    let refused = opened.err().unwrap();
    assert!(refused.unsupported);
    assert!(
        ["kqueue", "macOS", "emulated-kqueue"]
            .iter()
            .all(|word| refused.sentence.contains(word)),
        "{}",
        refused.sentence
    );
}

#[test]
fn of_readiness_is_never_io_uring() {
    let _guard = crate::guard();
    let (backend, resolved) = m0_platform::open(Choice::Readiness, &Options::default()).unwrap();
    assert_eq!(backend.kind(), resolved.kind);
    assert!(resolved.kind.is_readiness() && !resolved.kind.is_emulated());
    assert_eq!(resolved.reason, None, "nothing better was asked for");
}
