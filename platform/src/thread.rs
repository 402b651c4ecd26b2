//! Threads, and what the process may use of the machine (R10).

use std::io;

use crate::sync::thread;
pub use crate::sync::thread::JoinHandle;

/// Starts a thread with every signal blocked: signals belong to the main thread, where Python's handlers run.
///
/// The mask is set before the thread exists, so there is no moment in which it could be chosen for a signal
/// (`pthread_sigmask(3)`: a thread inherits its creator's mask).
///
/// # Errors
/// What `pthread_create(3)` gave (EAGAIN: too many threads).
pub fn spawn<F, T>(name: &str, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let before = block_all_signals();
    let result = thread::Builder::new().name(name.to_owned()).spawn(f);
    // SAFETY: `before` was filled by the call that blocked; a null third argument asks for nothing back.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// Blocks all signals in this thread and returns the mask that it had.
fn block_all_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data that sigfillset and pthread_sigmask fill before it is read; both pointers are
    // valid for the calls and are not kept.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    }
}

/// Lets other threads run.
pub fn yield_now() {
    thread::yield_now();
}

/// CPUs of the machine, whether or not this process may use them all.
#[must_use]
pub fn online_cpus() -> usize {
    // SAFETY: sysconf takes no pointers (sysconf(3)).
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

/// CPUs that this process can use at once: its affinity mask, cut by the quota of its control group (v1 and v2)
/// rounded up. At least one.
#[must_use]
pub fn usable_cpus() -> usize {
    let affinity = affinity_cpus();
    #[cfg(target_os = "linux")]
    if let Some(quota) = quota::cpus() {
        return affinity.min(quota).max(1);
    }
    affinity.max(1)
}

#[cfg(target_os = "linux")]
fn affinity_cpus() -> usize {
    // SAFETY: cpu_set_t is plain data; the kernel fills at most the size that it is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) == 0 {
            return usize::try_from(libc::CPU_COUNT(&set)).unwrap_or(1);
        }
    }
    // More than 1,024 CPUs do not fit a cpu_set_t (EINVAL); the standard library asks another way.
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(not(target_os = "linux"))]
fn affinity_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the soft limit of open files to the hard limit and returns what it is now.
///
/// # Errors
/// What `setrlimit(2)` gave.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    #[cfg(target_os = "macos")]
    let target = limit.rlim_max.min(10_240); // OPEN_MAX: setrlimit refuses more, whatever the hard limit says
    #[cfg(not(target_os = "macos"))]
    let target = limit.rlim_max;
    if limit.rlim_cur < target {
        limit.rlim_cur = target;
        // SAFETY: `limit` is a valid rlimit that the call reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    Ok(limit.rlim_cur as u64)
}

#[cfg(target_os = "linux")]
mod quota {
    //! CPU quotas of control groups: `cpu.max` (v2), `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1), see the
    //! kernel's Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst.

    use std::path::{Path, PathBuf};

    /// The smallest quota from our group up to the root, in CPUs, rounded up.
    pub(super) fn cpus() -> Option<usize> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        groups
            .lines()
            .filter_map(group_dir)
            .filter_map(|(dir, base, v2)| lowest(&dir, &base, v2))
            .min()
    }

    /// A line of `/proc/self/cgroup` as (the group's folder, the hierarchy's root, whether it is v2).
    pub(super) fn group_dir(line: &str) -> Option<(PathBuf, PathBuf, bool)> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            let base = PathBuf::from("/sys/fs/cgroup");
            return Some((base.join(path), base, true));
        }
        if controllers.split(',').any(|name| name == "cpu") {
            let base = PathBuf::from("/sys/fs/cgroup/cpu");
            return Some((base.join(path), base, false));
        }
        None
    }

    fn lowest(dir: &Path, base: &Path, v2: bool) -> Option<usize> {
        let mut lowest = None;
        // Inside a container the path may name folders of the host that are not mounted: those read as no quota.
        for dir in dir.ancestors().take_while(|dir| dir.starts_with(base)) {
            let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
            let found = if v2 {
                read("cpu.max").and_then(|text| parse_v2(&text))
            } else {
                read("cpu.cfs_quota_us")
                    .zip(read("cpu.cfs_period_us"))
                    .and_then(|(q, p)| parse_v1(&q, &p))
            };
            lowest = [lowest, found].into_iter().flatten().min();
        }
        lowest
    }

    pub(super) fn parse_v2(text: &str) -> Option<usize> {
        let (quota, period) = text.trim().split_once(' ')?;
        parse_v1(quota, period)
    }

    pub(super) fn parse_v1(quota: &str, period: &str) -> Option<usize> {
        // "max" (v2) and -1 (v1) are no quota, and are no u64 either.
        let quota: u64 = quota.trim().parse().ok()?;
        let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
        usize::try_from(quota.div_ceil(period)).ok().map(|cpus| cpus.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawned_thread_has_every_signal_blocked_and_the_spawner_none_more() {
        let before = is_blocked(libc::SIGTERM);
        let blocked = spawn("masked", || is_blocked(libc::SIGTERM) && is_blocked(libc::SIGINT)).unwrap();
        assert!(blocked.join().unwrap());
        assert_eq!(is_blocked(libc::SIGTERM), before);
    }

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: a null set asks for the current mask only; `now` is filled before it is read.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, signal) == 1
        }
    }

    #[test]
    fn at_least_one_cpu_and_no_more_than_the_machine_has() {
        let online = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=online.max(1)).contains(&usable_cpus()));
    }

    #[test]
    fn open_files_reach_the_hard_limit() {
        let now = raise_open_files().unwrap();
        assert_eq!(raise_open_files().unwrap(), now);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn quotas_round_up_and_no_quota_is_none() {
        use super::quota::{group_dir, parse_v1, parse_v2};
        assert_eq!(parse_v2("max 100000\n"), None);
        assert_eq!(parse_v2("50000 100000\n"), Some(1));
        assert_eq!(parse_v2("150000 100000\n"), Some(2));
        assert_eq!(parse_v2("200000 100000\n"), Some(2));
        assert_eq!(parse_v1("-1\n", "100000\n"), None);
        assert_eq!(parse_v1("250000\n", "100000\n"), Some(3));
        assert_eq!(parse_v1("250000\n", "0\n"), None);
        let (dir, _, v2) = group_dir("0::/a/b").unwrap();
        assert!(v2 && dir.ends_with("cgroup/a/b"));
        assert!(group_dir("3:cpuset:/a").is_none());
        assert!(!group_dir("4:cpu,cpuacct:/a").unwrap().2);
    }
}
