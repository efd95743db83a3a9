/*
 * dendro.h - log-structured volumes of files, or of lists, with snapshots and clones.
 *
 * The C interface of dendrofs: cc program.c $(pkg-config --cflags --libs dendro)
 * See also dendro(3). This file is made by cbindgen; change the sources in crates/capi.
 *
 * VOLUMES
 *   A volume is an image file, a block device, or memory. It holds files or lists, and other
 *   clients beside these: dendro_client_create(). One process has it open at a time. Volumes are
 *   those of the command dendro(1).
 *
 * LISTS AND UNITS
 *   A list has records, from 1 to 1,024 bytes each, and pages of 4,096 bytes, both with an index.
 *   An atomic recovery unit changes any number of lists. It takes effect whole or not at all,
 *   whatever crashes. Units take effect in their order: after a crash the volume has all units up
 *   to one of them, and none after it.
 *   List 2 belongs to the file system: it says what the volume holds, and the volume can be
 *   unusable after a unit that changes it. The same holds for units on a version of files, whose
 *   lists all belong to the file system, and for record 0 of the list of a block device.
 *
 * DURABILITY
 *   Nothing has to be flushed for a volume to be sound. What was not flushed can be missing after a
 *   crash, from the end. dendro_volume_flush(), dendro_files_sync() and dendro_file_sync() move
 *   that point past everything that was done before. The threads of dendro_volume_start_threads()
 *   do so at intervals.
 *
 * VERSIONS
 *   A view names a version: the head of a branch, which can be changed, or a snapshot, which
 *   cannot.
 *
 * ERRORS
 *   A function that fails returns a negative errno. Its documentation names those to expect. Any
 *   call can also answer
 *     -EINVAL  if a handle, a text or a place for a result is NULL, if memory is NULL and its
 *              length is not 0, if a length is more than any object has, or if a text that must be
 *              UTF-8 is not;
 *     -EIO     if a call on the volume has failed inside the library, because of a bug. All handles
 *              of the volume answer so from then on. Closing them gives nothing back: end the
 *              process.
 *   Where ENOSPC is named, -EDQUOT can come as well: what does not fit in the quota of the client
 *   (see dendro_client_set_quota()).
 *   Where there is no memory, the process ends.
 *   dendro_error_message() says what went wrong, and dendro_error_code() which kind of error it is,
 *   where that is more than the errno. What a result would have been put into is
 *   undefined after an error, unless the documentation says otherwise.
 *
 * OWNERSHIP
 *   A handle is made by a function that opens or creates, and is given back once by the one
 *   that ends in close. Nothing else has to be freed. A volume stays in memory, and its image
 *   locked, until all of its handles are closed. What a program gives to a function is read, or
 *   copied, before the function returns.
 *
 * THREADS
 *   "Threads: any" means that any number of threads can call the function at the same time, with
 *   the same handle too. Memory that a call reads must not be written to until it returns. Memory
 *   that it writes to must not be used until then, and must not overlap what else it is given.
 *   After fork() the child must not use handles of its parent.
 *
 * STABILITY
 *   Before version 1.0 the interface changes in a way that programs notice only where the second
 *   number of the version does, and from then on only where the first one does. The name of the
 *   shared library changes with that number, so a program runs with the library that it was linked
 *   with, or with a later one that has what it uses. Functions, constants and flags can be added
 *   in any version. The numbers of dendro_error_code() never change. Old volumes go on being
 *   readable.
 *
 * UNITS OF MEASURE
 *   Sizes, lengths and offsets are bytes, unless the name says otherwise.
 *
 * Copyright (C) the dendrofs authors. SPDX-License-Identifier: GPL-2.0-or-later
 */


#ifndef DENDRO_H
#define DENDRO_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this header, which is that of the library that it came with.
 */
#define DENDRO_VERSION "0.1.0"
#define DENDRO_VERSION_MAJOR 0
#define DENDRO_VERSION_MINOR 1
#define DENDRO_VERSION_PATCH 0

/**
 * Bytes of a page.
 */
#define DENDRO_PAGE_SIZE 4096

/**
 * The most bytes that a record can have. The fewest are 1.
 */
#define DENDRO_MAX_RECORD_SIZE 1024

/**
 * The pages of a list have indexes below this.
 */
#define DENDRO_MAX_PAGE_COUNT 2251799813685248

/**
 * Pages form groups of so many, which begin at multiples of it.
 */
#define DENDRO_GROUP_PAGES 32

/**
 * The most groups of pages that one unit can change.
 */
#define DENDRO_MAX_UNIT_GROUPS 1024

/**
 * The list that each volume of lists has from the beginning: a place for what a program has to
 * find again.
 */
#define DENDRO_ROOT_LIST 1

/**
 * Room for a name of a version or of a file, with its zero byte.
 */
#define DENDRO_NAME_SIZE 256

/**
 * Room for the identity of a volume, with its zero byte.
 */
#define DENDRO_UUID_SIZE 37

/**
 * The epoch of a view that is the head of its branch.
 */
#define DENDRO_HEAD UINT64_MAX

/**
 * All that was committed by the time of the call.
 */
#define DENDRO_LATEST UINT64_MAX

/**
 * Contents of a volume: files and directories.
 */
#define DENDRO_FILES 1

/**
 * Contents of a volume: lists.
 */
#define DENDRO_LISTS 2

/**
 * Kind of a client: one that this version of the library does not know.
 */
#define DENDRO_CLIENT_UNKNOWN 0

/**
 * Kind of a client: files and directories.
 */
#define DENDRO_CLIENT_FILES 1

/**
 * Kind of a client: a block device, whose blocks are the pages of the first list.
 */
#define DENDRO_CLIENT_BLOCK 2

/**
 * Kind of a client: lists of a program.
 */
#define DENDRO_CLIENT_APPLICATION 3

/**
 * No quota, for dendro_client_set_quota().
 */
#define DENDRO_NO_QUOTA UINT64_MAX

/**
 * Option: nothing is written. What lies behind the last checkpoint is read into memory.
 */
#define DENDRO_READ_ONLY 1

/**
 * Option: segments that become free are not given back to the device, so that an image file does
 * not shrink.
 */
#define DENDRO_NO_DISCARD 2

/**
 * Option: devices of the volume may be absent. A mirrored volume is opened with those that have
 * everything; a volume that is spread over devices can only be read then.
 */
#define DENDRO_DEGRADED 4

/**
 * Flag of dendro_file_open(): the file is to be written. Without it, writing answers EBADF.
 */
#define DENDRO_WRITE 1

/**
 * Flag of dendro_file_open(): the file is made if there is none, with permission bits 0644.
 */
#define DENDRO_CREATE 2

/**
 * Flag of dendro_file_open(), beside DENDRO_CREATE: the file must not be there before.
 */
#define DENDRO_EXCLUSIVE 4

/**
 * Flag of dendro_file_open(): the file is cut to no length.
 */
#define DENDRO_TRUNCATE 8

/**
 * Type of a file: a regular file.
 */
#define DENDRO_TYPE_FILE 1

/**
 * Type of a file: a directory.
 */
#define DENDRO_TYPE_DIRECTORY 2

/**
 * Type of a file: a symbolic link.
 */
#define DENDRO_TYPE_SYMLINK 3

/**
 * Type of a file: a pipe, a socket or a device.
 */
#define DENDRO_TYPE_SPECIAL 4

/**
 * What is to outlast the end of the process: the system has it.
 */
#define DENDRO_OUTLASTS_PROCESS 1

/**
 * What is to outlast the end of the system, as by a power cut: the device has it.
 */
#define DENDRO_OUTLASTS_MACHINE 2

/**
 * What is to outlast the loss of a device: another one has it too.
 */
#define DENDRO_OUTLASTS_MEDIUM 3

/**
 * Hint about a list: its blocks should lie together in the order of their indexes, because they
 * will be read so.
 */
#define DENDRO_CLUSTERED 1

/**
 * Hint about a list: its pages are compressed as those of lists for which nothing else is said.
 */
#define DENDRO_COMPRESS_DEFAULT 2

/**
 * Hint about a list: its pages are compressed with LZ4 when they are written.
 */
#define DENDRO_COMPRESS_LZ4 4

/**
 * Hint about a list: its pages are compressed with Zstandard when they are written.
 */
#define DENDRO_COMPRESS_ZSTD 8

/**
 * Hint about a list: its pages are not compressed.
 */
#define DENDRO_COMPRESS_NONE 16

/**
 * Error code: there is no such list.
 */
#define DENDRO_ERROR_NO_SUCH_LIST 1

/**
 * Error code: there is a list of that number already.
 */
#define DENDRO_ERROR_LIST_EXISTS 2

/**
 * Error code: a record has no bytes, or too many.
 */
#define DENDRO_ERROR_RECORD_TOO_LONG 3

/**
 * Error code: pages past DENDRO_MAX_PAGE_COUNT.
 */
#define DENDRO_ERROR_OUT_OF_RANGE 4

/**
 * Error code: a unit changes too many groups of pages.
 */
#define DENDRO_ERROR_UNIT_TOO_LONG 5

/**
 * Error code: it would not fit.
 */
#define DENDRO_ERROR_NO_SPACE 6

/**
 * Error code: there is no such version, or it is a snapshot, which cannot be changed.
 */
#define DENDRO_ERROR_NO_SUCH_VERSION 7

/**
 * Error code: that cannot be the name of a version.
 */
#define DENDRO_ERROR_BAD_NAME 8

/**
 * Error code: another version has that name.
 */
#define DENDRO_ERROR_NAME_TAKEN 9

/**
 * Error code: the version must not be deleted.
 */
#define DENDRO_ERROR_IN_USE 10

/**
 * Error code: the version belongs to another client.
 */
#define DENDRO_ERROR_OTHER_CLIENT 11

/**
 * Error code: the volume is open for reading, or closed.
 */
#define DENDRO_ERROR_READ_ONLY 12

/**
 * Error code: the volume takes no more changes after an error; it must be opened again.
 */
#define DENDRO_ERROR_STOPPED 13

/**
 * Error code: what was read is not what was written.
 */
#define DENDRO_ERROR_DAMAGED 14

/**
 * Error code: something durable is lost, so that the volume cannot be opened.
 */
#define DENDRO_ERROR_LOST 15

/**
 * Error code: the device could not be read.
 */
#define DENDRO_ERROR_IO 16

/**
 * Error code: a condition of a unit does not hold.
 */
#define DENDRO_ERROR_CONDITION 17

/**
 * Error code: what was to outlast the loss of a device is on one device alone.
 */
#define DENDRO_ERROR_ONE_COPY 18

/**
 * Error code: it would not fit in the quota of the client.
 */
#define DENDRO_ERROR_OVER_QUOTA 19

/**
 * Flag of a version: it is the head of a branch; otherwise it is a snapshot.
 */
#define DENDRO_VERSION_HEAD 1

/**
 * Flag of a version: it is the head of the main branch.
 */
#define DENDRO_VERSION_MAIN 2

/**
 * Flag of a version: it is a snapshot that is protected from deletion.
 */
#define DENDRO_VERSION_HELD 4

/**
 * Flag of a version: it is a snapshot that was made automatically, and that retention may delete.
 * Its name is its epoch.
 */
#define DENDRO_VERSION_UNNAMED 8

/**
 * Flag of a version: it is a branch that was made from another version, which is the parent.
 */
#define DENDRO_VERSION_HAS_PARENT 16

/**
 * The entries of a directory, as they were when this was made.
 */
typedef struct dendro_directory dendro_directory;

/**
 * An open file. It has no position of its own.
 */
typedef struct dendro_file dendro_file;

/**
 * The files of one version of a volume.
 */
typedef struct dendro_files dendro_files;

/**
 * Space that is reserved for a later unit.
 */
typedef struct dendro_reservation dendro_reservation;

/**
 * An atomic recovery unit: changes to one version that take effect together, or never.
 */
typedef struct dendro_unit dendro_unit;

/**
 * The versions of a volume, as they were when this was made.
 */
typedef struct dendro_versions dendro_versions;

/**
 * An open volume: an image file, a block device, or memory.
 */
typedef struct dendro_volume dendro_volume;

/**
 * A version of a volume: the head of a branch, which can be changed, or a snapshot. It is a plain
 * value, and goes on naming its version after the volume was closed and opened again.
 */
typedef struct dendro_view {
  /**
   * The branch.
   */
  uint32_t branch;
  /**
   * The epoch of the snapshot; DENDRO_HEAD for the head of the branch.
   */
  uint64_t epoch;
} dendro_view;

/**
 * An entry of a directory.
 */
typedef struct dendro_entry {
  /**
   * The i-node number of what it names.
   */
  uint64_t ino;
  /**
   * What it names: DENDRO_TYPE_FILE and others.
   */
  uint32_t file_type;
  /**
   * The name, any bytes but '/' and 0, with a zero byte.
   */
  char name[DENDRO_NAME_SIZE];
} dendro_entry;

/**
 * A moment.
 */
typedef struct dendro_time {
  /**
   * Seconds since 1970-01-01 00:00:00 UTC, rounded towards the past.
   */
  int64_t seconds;
  /**
   * Nanoseconds past these, below 1,000,000,000.
   */
  uint32_t nanoseconds;
} dendro_time;

/**
 * What is known of a file.
 */
typedef struct dendro_stat {
  /**
   * Its i-node number.
   */
  uint64_t ino;
  /**
   * Its size in bytes.
   */
  uint64_t len_bytes;
  /**
   * The bytes that it takes in the volume.
   */
  uint64_t used_bytes;
  /**
   * What it is: DENDRO_TYPE_FILE and others.
   */
  uint32_t file_type;
  /**
   * Permission, set-id and sticky bits.
   */
  uint32_t mode;
  /**
   * Its owner.
   */
  uint32_t uid;
  /**
   * Its group.
   */
  uint32_t gid;
  /**
   * How many names it has.
   */
  uint32_t link_count;
  /**
   * When its contents changed.
   */
  struct dendro_time modified;
  /**
   * When its contents or attributes changed.
   */
  struct dendro_time changed;
  /**
   * When it was made.
   */
  struct dendro_time created;
} dendro_stat;

/**
 * Consecutive pages of a list.
 */
typedef struct dendro_page_range {
  /**
   * The list.
   */
  uint64_t list;
  /**
   * The first page.
   */
  uint64_t first_page;
  /**
   * How many.
   */
  uint64_t count;
} dendro_page_range;

/**
 * The space that a version takes.
 */
typedef struct dendro_usage {
  /**
   * The version.
   */
  struct dendro_view view;
  /**
   * The bytes that deleting it alone would free.
   */
  uint64_t exclusive_bytes;
  /**
   * The bytes of all that is visible in it.
   */
  uint64_t seen_bytes;
} dendro_usage;

/**
 * The quota of a client, and what it uses of it. All its versions count together, and what they
 * share counts once. What was deleted counts until it is freed.
 */
typedef struct dendro_quota {
  /**
   * The most that the client may use.
   */
  uint64_t limit_bytes;
  /**
   * What it uses. It can be more than the limit.
   */
  uint64_t used_bytes;
  /**
   * What is reserved for its units.
   */
  uint64_t reserved_bytes;
} dendro_quota;

/**
 * A version, and what is known of it.
 */
typedef struct dendro_version {
  /**
   * The version.
   */
  struct dendro_view view;
  /**
   * What a branch was made from, if the flag DENDRO_VERSION_HAS_PARENT is set. The epoch need
   * not be one of a snapshot that exists.
   */
  struct dendro_view parent;
  /**
   * When it was made.
   */
  struct dendro_time created;
  /**
   * DENDRO_VERSION_HEAD and others.
   */
  uint32_t flags;
  /**
   * The name of the snapshot or of the branch, in UTF-8, with a zero byte.
   */
  char name[DENDRO_NAME_SIZE];
} dendro_version;

/**
 * How to make or to open a volume. All zeros are the defaults, so begin with
 * `dendro_options options = {0};`.
 */
typedef struct dendro_options {
  /**
   * DENDRO_READ_ONLY, DENDRO_NO_DISCARD and DENDRO_DEGRADED, or some of them, or 0.
   */
  uint32_t flags;
  /**
   * How often a new volume keeps its map, 1 or 2: the second copy lies far from the first. 0 for
   * one. It must be 0 when a volume is opened.
   */
  uint32_t metadata_copies;
  /**
   * The memory for the map, in bytes. 0 for 64 MiB.
   */
  uint64_t cache_size_bytes;
  /**
   * Bytes in a segment of a new volume: a power of two from 128 KiB to 64 MiB. 0 for what fits
   * the size of the volume. It must be 0 when a volume is opened.
   */
  uint64_t segment_size_bytes;
  /**
   * The name of a new volume for people, up to 64 bytes of UTF-8. NULL for none. It must be NULL
   * when a volume is opened.
   */
  const char *label;
  /**
   * How new pages are compressed where nothing is said of their list: DENDRO_COMPRESS_NONE,
   * DENDRO_COMPRESS_LZ4 or DENDRO_COMPRESS_ZSTD. A new volume keeps that, and its pages are not
   * compressed if it is 0. For a volume that is opened it holds until it is closed; 0 for what
   * the volume keeps.
   */
  uint32_t compression;
  /**
   * The level of DENDRO_COMPRESS_ZSTD, from 1 to 15. 0 for 3, and for others.
   */
  uint32_t compression_level;
  /**
   * The paths of further devices of a volume that lies on several, and NULL behind the last one.
   * Devices that are where they were last, and block devices of this machine, are found without
   * that. NULL for none. It must be NULL when a volume is made.
   */
  const char *const *devices;
  /**
   * Must be 0.
   */
  uint64_t reserved[2];
} dendro_options;

/**
 * How the bytes of a volume are used.
 */
typedef struct dendro_space {
  /**
   * What could be used if the volume were empty.
   */
  uint64_t capacity_bytes;
  /**
   * What live data use.
   */
  uint64_t live_bytes;
  /**
   * What can still be written, after reservations are subtracted.
   */
  uint64_t available_bytes;
  /**
   * What is reserved.
   */
  uint64_t reserved_bytes;
} dendro_space;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Puts up to `max` numbers of lists in which two versions may differ into `lists`: those from
 * `from` on, in their order. A list that one of them alone has is among them. It may read the
 * whole map, and reads no pages.
 *
 * Returns: how many; 0 if there are none left.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int64_t dendro_changed_lists(const struct dendro_volume *volume,
                             struct dendro_view a,
                             struct dendro_view b,
                             uint64_t from,
                             uint64_t *lists,
                             size_t max);

/**
 * Puts up to `max` indexes of records of a list in which two versions may differ into `indexes`:
 * those from `from` on, in their order. Both versions must have the list. It reads what was
 * written since the two parted.
 *
 * Returns: how many; 0 if there are none left.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int64_t dendro_changed_records(const struct dendro_volume *volume,
                               struct dendro_view a,
                               struct dendro_view b,
                               uint64_t list,
                               uint64_t from,
                               uint64_t *indexes,
                               size_t max);

/**
 * Finds the first pages of a list, from `from` on, in which two versions may differ, and puts the
 * first one into `*first` and how many they are into `*count`. The pages behind them may differ
 * too: ask again from `*first + *count` on. Both versions must have the list. It reads no pages.
 *
 * Returns: 1, or 0 if there are none left.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_changed_pages(const struct dendro_volume *volume,
                         struct dendro_view a,
                         struct dendro_view b,
                         uint64_t list,
                         uint64_t from,
                         uint64_t *first,
                         uint64_t *count);

/**
 * Reads the entries of the directory at `path`. They are sorted by the bytes of their names; "."
 * and ".." are left out. Later changes do not show.
 *
 * Returns: 0, with the handle in `*directory`; it is given back by dendro_directory_close(). After
 * an error `*directory` is NULL.
 *
 * Errors: those of paths (see dendro_files_stat()). ENOTDIR: it is not a directory. EIO.
 *
 * Threads: any.
 */
int dendro_directory_open(const struct dendro_files *files,
                          const char *path,
                          struct dendro_directory **directory);

/**
 * Puts the next entry into `*entry`.
 *
 * Returns: 1, or 0 if there is none left.
 *
 * Errors: none but those of any call.
 *
 * Threads: any. Each entry is given to one of them.
 */
int dendro_directory_next(const struct dendro_directory *directory, struct dendro_entry *entry);

/**
 * Gives the entries of a directory back. NULL does nothing.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_directory_close(struct dendro_directory *directory);

/**
 * What went wrong in the last call of this thread that failed, for people: in English, without an
 * end of line, in UTF-8. It is an empty text as long as none has failed.
 *
 * Returns: a text of the library, never NULL. It is valid until the next call of this thread that
 * fails, and until the thread ends.
 *
 * Threads: any. Each has its own message.
 */
const char *dendro_error_message(void);

/**
 * The kind of what went wrong in the last call of this thread that failed. It says more than the
 * errno: a volume that is open for reading and one that has stopped both answer EROFS. The numbers
 * never change, and later versions of the library may have more.
 *
 * Returns: DENDRO_ERROR_NO_SUCH_LIST or another one of these; 0 if the errno says all, and as long
 * as no call has failed.
 *
 * Threads: any. Each has its own code.
 */
uint32_t dendro_error_code(void);

/**
 * Opens the file at `path`. `flags` is 0, for reading, or DENDRO_WRITE and others, for reading and
 * writing. A file that is removed while it is open goes when it is closed.
 *
 * Returns: 0, with the handle in `*file`; it is given back by dendro_file_close(). After an error
 * `*file` is NULL.
 *
 * Errors: those of paths (see dendro_files_stat()). EEXIST: it is there, and the flags have
 * DENDRO_EXCLUSIVE. EISDIR: it is a directory, and to be written. EINVAL: the flags are wrong.
 * EROFS: the version is a snapshot, or the volume takes no changes. ENOSPC, EIO.
 *
 * Threads: any.
 */
int dendro_file_open(const struct dendro_files *files,
                     const char *path,
                     uint32_t flags,
                     struct dendro_file **file);

/**
 * Gives a file back. What was written is there, and durable once something is synced. NULL does
 * nothing.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_file_close(struct dendro_file *file);

/**
 * Reads up to `len` bytes from the byte `offset` on into `buf`.
 *
 * Returns: how many bytes: fewer than `len` only at the end of the file, where it is 0.
 *
 * Errors: EISDIR: it is a directory. EIO: it cannot be read, or is damaged.
 *
 * Threads: any.
 */
int64_t dendro_file_read(const struct dendro_file *file, uint64_t offset, void *buf, size_t len);

/**
 * Writes `len` bytes at the byte `offset`. Each MiB is an operation: after a crash it is there, or
 * nothing of it.
 *
 * Returns: how many bytes were written: fewer than `len` if there was an error after some, which
 * the next call meets again.
 *
 * Errors: EBADF: the file was opened without DENDRO_WRITE. EFBIG: past the largest offset. ENOSPC:
 * it would not fit. EROFS: the volume takes no changes. EIO.
 *
 * Threads: any. Each MiB is written as a whole.
 */
int64_t dendro_file_write(const struct dendro_file *file,
                          uint64_t offset,
                          const void *data,
                          size_t len);

/**
 * Cuts a file off at `len_bytes`, or adds a hole up to there.
 *
 * Returns: 0.
 *
 * Errors: as dendro_file_write().
 *
 * Threads: any.
 */
int dendro_file_truncate(const struct dendro_file *file, uint64_t len_bytes);

/**
 * Makes a file durable, and everything that was done before, in all files.
 *
 * Returns: 0.
 *
 * Errors: EIO: what was not durable before may be lost, and the volume takes no more changes.
 *
 * Threads: any. Those that wait at the same time share one flush of the device.
 */
int dendro_file_sync(const struct dendro_file *file);

/**
 * Puts into `*stat` what is known of a file.
 *
 * Returns: 0.
 *
 * Errors: EIO.
 *
 * Threads: any.
 */
int dendro_file_stat(const struct dendro_file *file, struct dendro_stat *stat);

/**
 * Opens the files of a version. Those of a snapshot cannot be changed. Handles of the same version
 * show the same files.
 *
 * Paths begin at the root directory of the version, with a slash or without one. They are any
 * bytes. Permissions are not checked: who has the volume has its files. New files belong to the
 * user of the process. Each function that changes something is one operation, after a crash there
 * or not, unless it says otherwise.
 *
 * Returns: 0, with the handle in `*files`; it is given back by dendro_files_close(). After an
 * error `*files` is NULL.
 *
 * Errors: EOPNOTSUPP: the volume holds lists. ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_files_open(const struct dendro_volume *volume,
                      struct dendro_view version,
                      struct dendro_files **files);

/**
 * Gives the files of a version back. Close files and directories of it before, and the volume
 * after. NULL does nothing.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_files_close(struct dendro_files *files);

/**
 * Makes everything durable that was done before, in all files.
 *
 * Returns: 0.
 *
 * Errors: EIO: what was not durable before may be lost, and the volume takes no more changes.
 *
 * Threads: any.
 */
int dendro_files_sync(const struct dendro_files *files);

/**
 * Puts into `*stat` what is known of the file at `path`. Symbolic links are followed.
 *
 * Returns: 0.
 *
 * Errors: those of paths: ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP. EIO.
 *
 * Threads: any.
 */
int dendro_files_stat(const struct dendro_files *files, const char *path, struct dendro_stat *stat);

/**
 * As dendro_files_stat(), of a symbolic link itself.
 *
 * Returns: 0.
 *
 * Errors: as dendro_files_stat().
 *
 * Threads: any.
 */
int dendro_files_lstat(const struct dendro_files *files,
                       const char *path,
                       struct dendro_stat *stat);

/**
 * Makes a directory, with permission bits 0755.
 *
 * Returns: 0.
 *
 * Errors: those of paths (see dendro_files_stat()). EEXIST: there is something of that name.
 * EINVAL: the path does not end with a name. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_mkdir(const struct dendro_files *files, const char *path);

/**
 * Makes a directory and those above it that do not exist. Each is an operation.
 *
 * Returns: 0, also if the directory is there already.
 *
 * Errors: as dendro_files_mkdir(). EEXIST: there is something else of that name.
 *
 * Threads: any.
 */
int dendro_files_mkdir_all(const struct dendro_files *files, const char *path);

/**
 * Removes a name that is not a directory's. The file goes when nobody has it open.
 *
 * Returns: 0.
 *
 * Errors: those of paths. EISDIR: it is a directory. EINVAL: the path does not end with a name.
 * EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_unlink(const struct dendro_files *files, const char *path);

/**
 * Removes an empty directory.
 *
 * Returns: 0.
 *
 * Errors: those of paths. ENOTEMPTY: it has entries. ENOTDIR: it is not a directory. EINVAL: the
 * path does not end with a name. EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_rmdir(const struct dendro_files *files, const char *path);

/**
 * Renames a file. What has the new name is replaced, as rename(2) does.
 *
 * Returns: 0.
 *
 * Errors: those of paths. EISDIR, ENOTDIR: only one of the two is a directory. ENOTEMPTY: the
 * directory to be replaced has entries. EINVAL: a directory cannot move into itself, or a path
 * does not end with a name. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_rename(const struct dendro_files *files, const char *from, const char *to);

/**
 * Gives the file at `from` one more name, `to`.
 *
 * Returns: 0.
 *
 * Errors: those of paths. EEXIST: there is something at `to`. EPERM: it is a directory. EMLINK: it
 * has too many names. EINVAL: `to` does not end with a name. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_link(const struct dendro_files *files, const char *from, const char *to);

/**
 * Makes a symbolic link at `path` that leads to `target`.
 *
 * Returns: 0.
 *
 * Errors: as dendro_files_mkdir().
 *
 * Threads: any.
 */
int dendro_files_symlink(const struct dendro_files *files, const char *target, const char *path);

/**
 * Puts where a symbolic link leads into `buf` of `len` bytes, without a zero byte, cut off if
 * there is no room. `buf` may be NULL if `len` is 0.
 *
 * Returns: the length of the whole target in bytes, at most 4,095.
 *
 * Errors: those of paths. EINVAL: it is not a symbolic link. EIO.
 *
 * Threads: any.
 */
int64_t dendro_files_readlink(const struct dendro_files *files,
                              const char *path,
                              char *buf,
                              size_t len);

/**
 * Sets the permission, set-id and sticky bits of a file.
 *
 * Returns: 0.
 *
 * Errors: those of paths. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_chmod(const struct dendro_files *files, const char *path, uint32_t mode);

/**
 * Puts a new file with `len` bytes of `data` in the place of what is at `path`. After a crash one
 * of the two is there, whole. The new file has the old one's permissions and owner.
 *
 * Returns: 0. After an error the old file is there.
 *
 * Errors: those of paths. EISDIR: it is a directory. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_files_replace(const struct dendro_files *files,
                         const char *path,
                         const void *data,
                         size_t len);

/**
 * Puts the number of a new list into `*list`. The list is there when a unit has created it.
 * Numbers ascend, and none is used again, unless a crash has lost the list.
 *
 * Returns: 0.
 *
 * Errors: EROFS: the volume takes no changes.
 *
 * Threads: any. Each gets another number.
 */
int dendro_list_allocate(const struct dendro_volume *volume, uint64_t *list);

/**
 * Puts the hints of a list into `*hints`, which may be NULL: DENDRO_CLUSTERED, one of
 * DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_ZSTD and DENDRO_COMPRESS_NONE, both, or 0.
 *
 * Returns: 0.
 *
 * Errors: ENOENT: the version has no such list. ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_list_hints(const struct dendro_volume *volume,
                      struct dendro_view view,
                      uint64_t list,
                      uint32_t *hints);

/**
 * Puts the number of the list that a list is near into `*near`, or 0 if it is near none.
 *
 * Returns: 0.
 *
 * Errors: ENOENT: the version has no such list. ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_list_near(const struct dendro_volume *volume,
                     struct dendro_view view,
                     uint64_t list,
                     uint64_t *near);

/**
 * Puts up to `max` numbers of lists of a version into `lists`: those from `from` on, in their
 * order. List 2 says what the volume is; do not change it.
 *
 * Returns: how many; 0 if there are none left.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int64_t dendro_lists(const struct dendro_volume *volume,
                     struct dendro_view view,
                     uint64_t from,
                     uint64_t *lists,
                     size_t max);

/**
 * Copies the record at `index` of a list into `buf` of `len` bytes. If `len` is 0, `buf` may be
 * NULL and nothing is copied.
 *
 * Returns: the length of the record in bytes, from 1 to DENDRO_MAX_RECORD_SIZE.
 *
 * Errors: ENOENT: there is no record, or no list. ERANGE: the record is longer than `len`; nothing
 * was copied. ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int64_t dendro_record_read(const struct dendro_volume *volume,
                           struct dendro_view view,
                           uint64_t list,
                           uint64_t index,
                           void *buf,
                           size_t len);

/**
 * Copies the first record of a list whose index is `from` or more into `buf` of `len` bytes, and
 * puts its index into `*index`. If `len` is 0, `buf` may be NULL and nothing is copied.
 *
 * Returns: the length of the record in bytes, or 0 if there is none left.
 *
 * Errors: ERANGE: the record is longer than `len`; nothing was copied, and `*index` is set.
 * ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int64_t dendro_record_next(const struct dendro_volume *volume,
                           struct dendro_view view,
                           uint64_t list,
                           uint64_t from,
                           uint64_t *index,
                           void *buf,
                           size_t len);

/**
 * Reads the pages of a list from `first_page` on into `buf` of `len` bytes, a multiple of
 * DENDRO_PAGE_SIZE. Holes read as zeros, and so do the pages of a list that is not there.
 *
 * Returns: 0.
 *
 * Errors: EINVAL: `len` is not whole pages. EFBIG: pages past DENDRO_MAX_PAGE_COUNT. ESTALE: there
 * is no such version. EIO: a page cannot be read, or is damaged; what `buf` has then is undefined.
 *
 * Threads: any.
 */
int dendro_pages_read(const struct dendro_volume *volume,
                      struct dendro_view view,
                      uint64_t list,
                      uint64_t first_page,
                      void *buf,
                      size_t len);

/**
 * Reads the pages of `count` ranges of any lists into `buf` of `len` bytes, one range after the
 * other, as dendro_pages_read() does for each. What lies on the device is read together. Each
 * range is read as it is at one moment; the moments of several ranges may differ, unless the
 * version is a snapshot.
 *
 * Returns: 0.
 *
 * Errors: EINVAL: `len` is not what the ranges have. EFBIG: pages past DENDRO_MAX_PAGE_COUNT.
 * ESTALE: there is no such version. EIO: a page cannot be read, or is damaged; what `buf` has then
 * is undefined.
 *
 * Threads: any.
 */
int dendro_pages_read_scattered(const struct dendro_volume *volume,
                                struct dendro_view view,
                                const struct dendro_page_range *ranges,
                                size_t count,
                                void *buf,
                                size_t len);

/**
 * Puts the index of the first page of a list that is `from` or more and no hole into `*page`.
 *
 * Returns: 1, or 0 if there is none.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_pages_next_data(const struct dendro_volume *volume,
                           struct dendro_view view,
                           uint64_t list,
                           uint64_t from,
                           uint64_t *page);

/**
 * Puts the index of the first page of a list that is `from` or more and a hole into `*page`. There
 * is one below or at DENDRO_MAX_PAGE_COUNT.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_pages_next_hole(const struct dendro_volume *volume,
                           struct dendro_view view,
                           uint64_t list,
                           uint64_t from,
                           uint64_t *page);

/**
 * Makes an empty unit of changes to the version `head`, the head of a branch. A unit has no effect
 * before it is committed, and costs no space. Any number can be under construction at a time.
 *
 * Returns: 0, with the handle in `*unit`; it is given back by dendro_unit_close(). After an error
 * `*unit` is NULL.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_unit_open(const struct dendro_volume *volume,
                     struct dendro_view head,
                     struct dendro_unit **unit);

/**
 * Makes the changes of a unit, in their order, all or none. When it returns, all threads see them.
 * They are durable after a flush. `*commit` becomes the number of the commit for
 * dendro_volume_flush_to(); it may be NULL.
 *
 * After a success the unit is empty and can be filled again. After an error it is as it was, with
 * its conditions and its reservation: it can be committed again, or emptied by
 * dendro_unit_clear().
 *
 * A unit changes at most DENDRO_MAX_UNIT_GROUPS groups of DENDRO_GROUP_PAGES pages: those that it
 * writes or zeroes, and those with pages in ranges that it punches, moves, moves to or swaps. What
 * it punches, moves and swaps beyond that is done after it was committed: all of that is seen, or
 * nothing. Behind it, the unit can neither write nor zero pages of these lists, nor delete them.
 * Deleting a list is always one unit.
 *
 * Returns: 0.
 *
 * Errors: ENOENT: a list is not there. EEXIST: a list to be created is there. EMSGSIZE: a record
 * has no bytes, or more than DENDRO_MAX_RECORD_SIZE. EFBIG: pages past DENDRO_MAX_PAGE_COUNT, or
 * too long a unit. ENOSPC: it would not fit. ESTALE: there is no such head. EROFS: the volume
 * takes no changes. EIO: what it needs cannot be read. EAGAIN: a condition of the unit does not
 * hold. Nothing was changed in all of these cases.
 *
 * Threads: any. A change that another thread adds at the time is in the unit, or left in it.
 */
int dendro_unit_commit(const struct dendro_unit *unit, uint64_t *commit);

/**
 * Takes all changes out of a unit, which is empty afterwards. A reservation that it was to use is
 * released.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_unit_clear(const struct dendro_unit *unit);

/**
 * Gives a unit back. Changes that were not committed are dropped. NULL does nothing.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_unit_close(struct dendro_unit *unit);

/**
 * Adds to a unit: creates an empty list with a number of dendro_list_allocate(). `hints` is 0, or
 * DENDRO_CLUSTERED, one of DENDRO_COMPRESS_DEFAULT, DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_ZSTD and
 * DENDRO_COMPRESS_NONE, or both.
 *
 * Returns: 0.
 *
 * Errors: EINVAL: there are no such hints. Others come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_create_list(const struct dendro_unit *unit, uint64_t list, uint32_t hints);

/**
 * Adds to a unit: creates an empty list beside another, with a number of dendro_list_allocate().
 * `hints` are those of dendro_unit_create_list(). Lists that are near the same list, and that
 * list, are laid down together when their pages are moved. The list `near` need not exist.
 *
 * Returns: 0.
 *
 * Errors: EINVAL: there are no such hints. Others come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_create_list_near(const struct dendro_unit *unit,
                                 uint64_t list,
                                 uint32_t hints,
                                 uint64_t near);

/**
 * Adds to a unit: deletes a list with all that it has.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_delete_list(const struct dendro_unit *unit, uint64_t list);

/**
 * Adds to a unit: changes the hints of a list, which are those of dendro_unit_create_list(). It
 * stays near the list that it is near. If `hints` name no compression, it keeps the one that it
 * has at the time of this call.
 *
 * Returns: 0.
 *
 * Errors: EINVAL: there are no such hints. ESTALE: there is no such head. EIO. Others come from
 * dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_set_hints(const struct dendro_unit *unit, uint64_t list, uint32_t hints);

/**
 * Adds to a unit: changes the hints of a list, as dendro_unit_set_hints() does, and moves it
 * beside another. With `near` 0 it is near none afterwards. See dendro_unit_create_list_near().
 *
 * Returns: 0.
 *
 * Errors: as dendro_unit_set_hints().
 *
 * Threads: any.
 */
int dendro_unit_move_list(const struct dendro_unit *unit,
                          uint64_t list,
                          uint32_t hints,
                          uint64_t near);

/**
 * Adds to a unit: puts a record of `len` bytes in place of the one at `index`, if there is one.
 * The bytes are copied.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_put_record(const struct dendro_unit *unit,
                           uint64_t list,
                           uint64_t index,
                           const void *data,
                           size_t len);

/**
 * Adds to a unit: deletes the record at `index`. Without one, nothing happens.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_delete_record(const struct dendro_unit *unit, uint64_t list, uint64_t index);

/**
 * Adds to a unit: writes `len` bytes to the pages from `first_page` on. Zeros fill the rest of the
 * last page. The bytes are copied.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_write_pages(const struct dendro_unit *unit,
                            uint64_t list,
                            uint64_t first_page,
                            const void *data,
                            size_t len);

/**
 * Adds to a unit: writes `len` bytes from byte `offset` on, counted from the start of page 0. What
 * else their pages hold stays, and no other unit's change comes between. The bytes are copied.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_write_bytes(const struct dendro_unit *unit,
                            uint64_t list,
                            uint64_t offset,
                            const void *data,
                            size_t len);

/**
 * Adds to a unit: makes `count` pages zeros, and no holes: there is room for them from then on.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_zero_pages(const struct dendro_unit *unit,
                           uint64_t list,
                           uint64_t first_page,
                           uint64_t count);

/**
 * Adds to a unit: makes `count` pages holes. Those past the last page cost nothing.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_punch_pages(const struct dendro_unit *unit,
                            uint64_t list,
                            uint64_t first_page,
                            uint64_t count);

/**
 * Adds to a unit: moves `count` pages, with holes, from one list to another or within one. What
 * the source does not share with the destination becomes holes. The two may overlap.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_move_pages(const struct dendro_unit *unit,
                           uint64_t from,
                           uint64_t from_page,
                           uint64_t to,
                           uint64_t to_page,
                           uint64_t count);

/**
 * Adds to a unit: exchanges all pages of two lists. Their records stay.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_swap_pages(const struct dendro_unit *unit, uint64_t a, uint64_t b);

/**
 * Says that a unit frees space. It may then use what a full volume keeps for that.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_unit_set_reclaims(const struct dendro_unit *unit);

/**
 * Adds a condition to a unit: it is committed only if the record at `index` has these `len` bytes
 * then. With NULL and 0 there must be no such record. The bytes are copied.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_require_record(const struct dendro_unit *unit,
                               uint64_t list,
                               uint64_t index,
                               const void *data,
                               size_t len);

/**
 * Adds a condition to a unit: it is committed only if no unit has named the list since the commit
 * `since`, for which dendro_volume_last_commit() was asked before the list was read. Very many
 * changes of other lists may make it fail too.
 *
 * Returns: 0.
 *
 * Errors: come from dendro_unit_commit().
 *
 * Threads: any.
 */
int dendro_unit_require_unchanged(const struct dendro_unit *unit, uint64_t list, uint64_t since);

/**
 * Makes a unit use reserved space. A reservation that it was to use before is released.
 *
 * Returns: 0. The reservation is given back in any case.
 *
 * Errors: EINVAL: the reservation is of another volume.
 *
 * Threads: any for the unit. One for the reservation, and no other may use it at the time or
 * later.
 */
int dendro_unit_use_reservation(const struct dendro_unit *unit,
                                struct dendro_reservation *reservation);

/**
 * Reserves space for a later unit of `len_bytes`: its pages at their full size, its records, and
 * 64 bytes for each change. Such a unit is not refused for what others write meanwhile, unless the
 * client has a quota: see dendro_reservation_open_in().
 *
 * Returns: 0, with the handle in `*reservation`; it is given back by dendro_unit_use_reservation()
 * or dendro_reservation_close(). After an error `*reservation` is NULL.
 *
 * Errors: ENOSPC: there is not so much. EROFS: the volume takes no changes.
 *
 * Threads: any.
 */
int dendro_reservation_open(const struct dendro_volume *volume,
                            uint64_t len_bytes,
                            struct dendro_reservation **reservation);

/**
 * Reserves space as dendro_reservation_open() does, for a unit of changes to the version `head`.
 * If the client that it belongs to has a quota, as much of that is reserved as well.
 *
 * Returns: 0, with the handle in `*reservation`, as from dendro_reservation_open().
 *
 * Errors: ENOSPC: there is not so much. EDQUOT: there is not so much left of the quota. ESTALE:
 * there is no such version. EROFS: the volume takes no changes.
 *
 * Threads: any.
 */
int dendro_reservation_open_in(const struct dendro_volume *volume,
                               struct dendro_view head,
                               uint64_t len_bytes,
                               struct dendro_reservation **reservation);

/**
 * Releases reserved space. NULL does nothing.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_reservation_close(struct dendro_reservation *reservation);

/**
 * Puts the head of the main branch into `*view`.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_version_main(const struct dendro_volume *volume, struct dendro_view *view);

/**
 * Puts the version of a name into `*view`: the head of a `branch`, or a snapshot as `@snapshot` or
 * `branch@snapshot`. A snapshot without a name is named by its epoch.
 *
 * Returns: 0.
 *
 * Errors: ENOENT: there is none of that name. EINVAL: the name is not UTF-8.
 *
 * Threads: any.
 */
int dendro_version_find(const struct dendro_volume *volume,
                        const char *name,
                        struct dendro_view *view);

/**
 * Makes a snapshot called `name` of the branch with the head `head`, and puts it into `*view`,
 * which may be NULL. It takes some microseconds, whatever the volume holds. A name has from 1 to
 * 255 bytes, and no '/', '@', ':' or "..".
 *
 * Returns: 0.
 *
 * Errors: EEXIST: there is a snapshot of that name. EINVAL: that cannot be a name. ESTALE: there
 * is no such head. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_version_snapshot(const struct dendro_volume *volume,
                            struct dendro_view head,
                            const char *name,
                            struct dendro_view *view);

/**
 * Makes a branch called `name` that starts from the version `from`, a clone that can be changed,
 * and puts its head into `*view`, which may be NULL. Names and time are as with
 * dendro_version_snapshot().
 *
 * Returns: 0.
 *
 * Errors: EEXIST: there is a branch of that name. EINVAL: that cannot be a name. ESTALE: there is
 * no such version. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_version_clone(const struct dendro_volume *volume,
                         struct dendro_view from,
                         const char *name,
                         struct dendro_view *view);

/**
 * Deletes a snapshot, or the head of a branch. Its space is freed in the background.
 *
 * Returns: 0.
 *
 * Errors: EBUSY: it is the main branch, or a snapshot that is held. ESTALE: there is no such
 * version. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_version_delete(const struct dendro_volume *volume, struct dendro_view version);

/**
 * Renames a snapshot or a branch.
 *
 * Returns: 0.
 *
 * Errors: as dendro_version_snapshot().
 *
 * Threads: any.
 */
int dendro_version_rename(const struct dendro_volume *volume,
                          struct dendro_view version,
                          const char *name);

/**
 * Protects a snapshot from deletion if `is_held` is not 0, or ends that.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such snapshot. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_version_hold(const struct dendro_volume *volume,
                        struct dendro_view snapshot,
                        int is_held);

/**
 * Replaces the branch with the head `head` by a new one that starts from the snapshot `to` and
 * takes over its name, and puts the new head into `*view`, which may be NULL. All snapshots stay.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such head or snapshot. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_version_roll_back(const struct dendro_volume *volume,
                             struct dendro_view head,
                             struct dendro_view to,
                             struct dendro_view *view);

/**
 * Makes the branch with the head `head` the main one. It and the former main branch exchange their
 * names.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such head. EXDEV: the branch belongs to another client than the main
 * branch. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_version_promote(const struct dendro_volume *volume, struct dendro_view head);

/**
 * Writes the snapshot `of` as a stream to the descriptor `fd`, as `dendro send` does: all that it
 * has, or if `base` is not NULL what it has and the snapshot `*base` has not. The stream is not
 * compressed.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such snapshot. What write(2) answers. EAGAIN: the system refuses a
 * thread. EIO. The stream is worth nothing then.
 *
 * Threads: any.
 */
int dendro_version_send(const struct dendro_volume *volume,
                        struct dendro_view of,
                        const struct dendro_view *base,
                        int fd);

/**
 * Receives the version of a stream from the descriptor `fd`, as dendro_version_send() and
 * `dendro send` write it, as a snapshot, and puts that into `*view`, which may be NULL. The
 * snapshot is called `name`, or if that is NULL as it was on the volume that it was sent from. If
 * several streams follow each other, each version keeps its name, those that are here are passed
 * over, and `*view` is the last one. `fd` is read to the end of the stream, and no further.
 *
 * Returns: 0. The version is durable, and there whole.
 *
 * Errors: EEXIST: it is here already, or there is a snapshot of that name. ENOENT: it is based on
 * a version that is not here. EBADMSG: the stream is wrong, or cut off. EINVAL: that cannot be a
 * name. What read(2) answers. ENOSPC, EROFS, EIO. Nothing has changed then, but that of several
 * versions those before are here.
 *
 * Threads: any. One receives at a time.
 */
int dendro_version_receive(const struct dendro_volume *volume,
                           int fd,
                           const char *name,
                           struct dendro_view *view);

/**
 * Puts what up to `max` versions take into `usages`: the snapshots and the heads of branches. It
 * reads the whole map.
 *
 * Returns: how many versions there are, which may be more than `max`.
 *
 * Errors: EIO.
 *
 * Threads: any.
 */
int64_t dendro_versions_usage(const struct dendro_volume *volume,
                              struct dendro_usage *usages,
                              size_t max);

/**
 * Puts into `*bytes` how many bytes deleting all of `count` versions would free. That can be more
 * than their `exclusive_bytes` together, which leave out what several of them share. It reads the
 * whole map.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_versions_freed_by(const struct dendro_volume *volume,
                             const struct dendro_view *views,
                             size_t count,
                             uint64_t *bytes);

/**
 * Makes a client called `name` beside the one that the volume was made for, and puts the head of
 * its branch into `*view`, which may be NULL. `kind` is one of DENDRO_CLIENT_FILES and
 * DENDRO_CLIENT_APPLICATION; dendro_block_device_create() makes a block device. A client of files
 * has an empty root directory; one of a program has the list DENDRO_ROOT_LIST. Its lists may have
 * numbers that lists of other clients have. It is there whole or not at all. dendro_version_find()
 * finds it by its name again.
 *
 * Returns: 0.
 *
 * Errors: EEXIST: there is a branch of that name. EINVAL: that cannot be a name, or there is no
 * such kind, or it is DENDRO_CLIENT_BLOCK. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_client_create(const struct dendro_volume *volume,
                         const char *name,
                         uint32_t kind,
                         struct dendro_view *view);

/**
 * Makes a client called `name` that is a block device of `len_bytes`, a multiple of 4,096, all
 * zeros, and puts the head of its branch into `*view`, which may be NULL. Its contents are the
 * pages of the list DENDRO_ROOT_LIST; record 0 of that list describes the device, and is not to be
 * changed. It is there whole or not at all.
 *
 * Returns: 0.
 *
 * Errors: EEXIST: there is a branch of that name. EINVAL: that cannot be a name, or no block
 * device can have that length. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_block_device_create(const struct dendro_volume *volume,
                               const char *name,
                               uint64_t len_bytes,
                               struct dendro_view *view);

/**
 * Puts the length of the block device that a version is into `*len_bytes`.
 *
 * Returns: 0.
 *
 * Errors: EOPNOTSUPP: it is none. ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_block_device_len(const struct dendro_volume *volume,
                            struct dendro_view view,
                            uint64_t *len_bytes);

/**
 * Puts the kind of the client that a version belongs to into `*kind`.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such version. EIO.
 *
 * Threads: any.
 */
int dendro_client_kind(const struct dendro_volume *volume,
                       struct dendro_view version,
                       uint32_t *kind);

/**
 * Puts the quota of the client that a version belongs to into `*quota`, with what it uses of it.
 *
 * Returns: 1, or 0 if it has no quota, or if it is not known what it uses: a volume that is opened
 * for reading does not count that where a crash has left it open. Then `*quota` stays as it was.
 *
 * Errors: ESTALE: there is no such version.
 *
 * Threads: any.
 */
int dendro_client_quota(const struct dendro_volume *volume,
                        struct dendro_view version,
                        struct dendro_quota *quota);

/**
 * Bounds what all versions of the client that a version belongs to take together, by `limit_bytes`
 * or, with DENDRO_NO_QUOTA, no more. Changes that would exceed it answer EDQUOT. A client may use
 * more already: then only changes that free something work. The first quota of a client reads the
 * whole map, unless the client was made a moment ago.
 *
 * Returns: 0.
 *
 * Errors: ESTALE: there is no such version. ENOSPC, EROFS, EIO.
 *
 * Threads: any.
 */
int dendro_client_set_quota(const struct dendro_volume *volume,
                            struct dendro_view version,
                            uint64_t limit_bytes);

/**
 * Lists the versions of a volume: the heads, then the snapshots. Later changes do not show.
 *
 * Returns: 0, with the handle in `*versions`; it is given back by dendro_versions_close(). After
 * an error `*versions` is NULL.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_versions_open(const struct dendro_volume *volume, struct dendro_versions **versions);

/**
 * Puts the next version into `*version`.
 *
 * Returns: 1, or 0 if there is none left.
 *
 * Errors: none but those of any call.
 *
 * Threads: any. Each version is given to one of them.
 */
int dendro_versions_next(const struct dendro_versions *versions, struct dendro_version *version);

/**
 * Gives a list of versions back. NULL does nothing.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_versions_close(struct dendro_versions *versions);

/**
 * Makes a volume in a new image file of `len_bytes` bytes, and opens it. `contents` is
 * DENDRO_FILES or DENDRO_LISTS. `options` may be NULL.
 *
 * Returns: 0, with the handle in `*volume`; it is given back by dendro_volume_close(). After an
 * error `*volume` is NULL, and no file is left.
 *
 * Errors: EEXIST: there is a file of that path. EINVAL: the size is too small or too large, or an
 * option is wrong. What open(2) and write(2) answer.
 *
 * Threads: any.
 */
int dendro_volume_create(const char *path,
                         uint64_t len_bytes,
                         uint32_t contents,
                         const struct dendro_options *options,
                         struct dendro_volume **volume);

/**
 * Makes a volume in memory, for tests, and opens it. It is gone when it is closed.
 *
 * Returns: as dendro_volume_create().
 *
 * Errors: EINVAL: the size is too small or too large, or an option is wrong.
 *
 * Threads: any.
 */
int dendro_volume_create_in_memory(uint64_t len_bytes,
                                   uint32_t contents,
                                   const struct dendro_options *options,
                                   struct dendro_volume **volume);

/**
 * Opens the volume in an image file or on a block device, or on several that it lies on, of which
 * `path` is one and the others are where they were last. What a crash left unfinished is finished,
 * unless it is opened for reading. `options` may be NULL.
 *
 * Returns: 0, with the handle in `*volume`; it is given back by dendro_volume_close(). After an
 * error `*volume` is NULL.
 *
 * Errors: EBUSY: it is open already, here or in another process. EINVAL: an option is wrong. EIO:
 * there is no volume, or it is damaged. ENODEV: others of its devices are not there. What open(2)
 * answers.
 *
 * Threads: any.
 */
int dendro_volume_open(const char *path,
                       const struct dendro_options *options,
                       struct dendro_volume **volume);

/**
 * Ends the volume's threads, makes everything durable, and closes the volume. The next
 * dendro_volume_open() has nothing to recover.
 *
 * Close all other handles of the volume before. Those that are not closed can still be used to
 * read, and changes answer EROFS. The image stays locked until the last of them is closed.
 *
 * Returns: 0. The handle is given back in any case. NULL does nothing.
 *
 * Errors: EIO: what was not durable before may be lost. ENOSPC: so it is, because the file system
 * that holds the image is full.
 *
 * Threads: one, and no other may use the handle at the time or later.
 */
int dendro_volume_close(struct dendro_volume *volume);

/**
 * Makes everything durable that was done before.
 *
 * Returns: 0.
 *
 * Errors: EIO: what was not durable before may be lost, and the volume takes no more changes.
 *
 * Threads: any. Those that wait at the same time share one flush of the device.
 */
int dendro_volume_flush(const struct dendro_volume *volume);

/**
 * Makes all units up to the one with the number `commit` durable, which dendro_unit_commit()
 * returned. DENDRO_LATEST stands for all.
 *
 * Returns: 0.
 *
 * Errors: as dendro_volume_flush().
 *
 * Threads: any.
 */
int dendro_volume_flush_to(const struct dendro_volume *volume, uint64_t commit);

/**
 * Makes all units up to the one with the number `commit` outlast what `outlasts` says, one of
 * DENDRO_OUTLASTS_PROCESS, DENDRO_OUTLASTS_MACHINE and DENDRO_OUTLASTS_MEDIUM. DENDRO_LATEST
 * stands for all units. dendro_volume_flush_to() is for DENDRO_OUTLASTS_MACHINE; for less it may
 * cost less.
 *
 * Returns: 0.
 *
 * Errors: as dendro_volume_flush(). ENODEV: the volume lies on one device; it is durable there.
 * EINVAL: there is no such kind.
 *
 * Threads: any.
 */
int dendro_volume_flush_for(const struct dendro_volume *volume, uint32_t outlasts, uint64_t commit);

/**
 * Makes what the list `list` of the version `version` has durable. Nothing is written if it has
 * not changed since something later became durable.
 *
 * Returns: 0.
 *
 * Errors: as dendro_volume_flush().
 *
 * Threads: any.
 */
int dendro_volume_flush_list(const struct dendro_volume *volume,
                             struct dendro_view version,
                             uint64_t list);

/**
 * Tells the number of the last unit that is visible. What is read after this call is as old as
 * that or newer; see dendro_unit_require_unchanged().
 *
 * Returns: 0, with the number in `*commit`.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_volume_last_commit(const struct dendro_volume *volume, uint64_t *commit);

/**
 * Has `done` called once when all units up to the one with the number `commit` are durable, or
 * when that has failed, and returns without waiting. `done` is given `data`, and 0 or a negative
 * error number as of dendro_volume_flush(). It is called by this thread or another one, and must
 * not wait nor call functions of the library: it wakes an event loop. The volume's threads make
 * the units durable soon; without them, dendro_volume_step() does. At the latest it is called when
 * the volume is closed.
 *
 * Returns: 0.
 *
 * Errors: EINVAL: there is no function. `done` is not called then.
 *
 * Threads: any.
 */
int dendro_volume_when_durable(const struct dendro_volume *volume,
                               uint64_t commit,
                               void (*done)(void *data, int error),
                               void *data);

/**
 * Does one step of the work that the volume's threads do in the background. A program without them
 * calls it now and then, best when it has nothing else to do. Otherwise changes do that work when
 * they find no room.
 *
 * Returns: 1 if there was any, or 0.
 *
 * Errors: EIO, ENOSPC, EROFS.
 *
 * Threads: any.
 */
int dendro_volume_step(const struct dendro_volume *volume);

/**
 * Starts threads that write the log, clean segments, and make everything durable after each
 * `interval_ms` milliseconds: so much can be missing after a crash. 0 stands for 5,000. They end
 * with dendro_volume_stop_threads() or dendro_volume_close().
 *
 * Returns: 0.
 *
 * Errors: EBUSY: the volume has them, or had them. EAGAIN: the system refuses a thread.
 *
 * Threads: any.
 */
int dendro_volume_start_threads(const struct dendro_volume *volume, uint64_t interval_ms);

/**
 * Ends the threads and waits for them. What was done before is durable then, unless
 * dendro_volume_threads_error() says otherwise before the call. They cannot be started again.
 * Without threads nothing happens.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_volume_stop_threads(const struct dendro_volume *volume);

/**
 * Whether the volume's threads do their work.
 *
 * Returns: 0 if they do, or if there are none.
 *
 * Errors: the last error of work that has not succeeded since: EIO, ENOSPC, EROFS. EIO stays if a
 * thread has ended because of a bug.
 *
 * Threads: any.
 */
int dendro_volume_threads_error(const struct dendro_volume *volume);

/**
 * Puts the identity of the volume into `text`, which has room for DENDRO_UUID_SIZE bytes: 36
 * characters and a zero byte.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_volume_uuid(const struct dendro_volume *volume, char *text);

/**
 * Puts the volume's name for people into `buf` of `len` bytes, in UTF-8 with a zero byte, cut off
 * if there is no room. `buf` may be NULL if `len` is 0.
 *
 * Returns: the length of the whole name in bytes, without the zero byte; at most 64.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int64_t dendro_volume_label(const struct dendro_volume *volume, char *buf, size_t len);

/**
 * Puts the reason why the volume takes no changes into `buf` of `len` bytes, as
 * dendro_volume_label() does with the name.
 *
 * Returns: the length of the whole reason in bytes, or 0 if the volume takes changes.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int64_t dendro_volume_read_only_reason(const struct dendro_volume *volume, char *buf, size_t len);

/**
 * Puts into `*space` how the bytes of the volume are used.
 *
 * Returns: 0.
 *
 * Errors: none but those of any call.
 *
 * Threads: any.
 */
int dendro_volume_space(const struct dendro_volume *volume, struct dendro_space *space);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DENDRO_H */
