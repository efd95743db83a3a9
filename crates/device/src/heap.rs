//! How the process shares out its memory among its threads.

/// Lets all threads take small pieces of memory from one arena. The GNU allocator gives threads arenas of
/// their own, and what one has taken and another gives back stays in the first's. So nodes of a map that
/// were read by one thread and are replaced by those that another reads can take memory twice. Has no effect
/// with other allocators. To be called before other threads start.
pub fn share_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call changes a parameter of the allocator, which takes it at any time; it reads and
    // writes no memory of ours.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
