//! How the memory allocator of the process serves its threads.

/// Makes all threads allocate small pieces of memory from one arena. To be called before other
/// threads start. It has no effect with allocators other than the GNU one.
///
/// The GNU allocator gives each thread an arena of its own. Memory that one thread has allocated
/// and another one frees stays in the first one's arena. So map nodes that one thread has read, and
/// that are replaced by nodes that another thread reads, can take memory twice.
pub fn share_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call changes a parameter of the allocator, which is allowed at any time. It reads
    // and writes no memory of this program's.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
