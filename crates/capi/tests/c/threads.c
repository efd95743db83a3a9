/* Several threads use the same handles at the same time. */
#include "check.h"
#include <pthread.h>

#define THREADS 4
#define TURNS 60

static dendro_volume *lists, *volume;
static dendro_unit *shared;
static dendro_files *files;
static dendro_file *file;
static dendro_view head;

/* Each has records of its own, and some by a unit that all fill and commit. */
static void use_lists(uint64_t thread)
{
	dendro_unit *own;
	uint64_t list, index, commit, last = 0;
	char buf[16];
	RETURNS(0, dendro_list_allocate(lists, &list));
	RETURNS(0, dendro_unit_open(lists, head, &own));
	RETURNS(0, dendro_unit_create_list(own, list, DENDRO_CLUSTERED));
	RETURNS(0, dendro_unit_commit(own, NULL));
	for (uint64_t turn = 0; turn < TURNS; turn++) {
		RETURNS(0, dendro_unit_put_record(own, list, turn, &thread, sizeof thread));
		RETURNS(0, dendro_unit_commit(own, &commit));
		CHECK(commit > last);
		last = commit;
		RETURNS(0, dendro_unit_put_record(shared, DENDRO_ROOT_LIST, thread * TURNS + turn, "x", 1));
		RETURNS(0, dendro_unit_commit(shared, NULL));
		RETURNS(8, dendro_record_next(lists, head, list, turn, &index, buf, sizeof buf));
		CHECK(index == turn && memcmp(buf, &thread, sizeof thread) == 0);
	}
	RETURNS(0, dendro_volume_flush_to(lists, last));
	RETURNS(0, dendro_unit_close(own));
	/* Messages are of one thread. */
	char path[32];
	snprintf(path, sizeof path, "@none-%d", (int)thread);
	dendro_view view;
	for (int turn = 0; turn < TURNS; turn++) {
		RETURNS(-ENOENT, dendro_version_find(lists, path, &view));
		CHECK(strstr(dendro_error_message(), path) != NULL);
	}
}

static void use_files(uint64_t thread)
{
	char path[64], bytes[4096], read[4096];
	dendro_entry entry;
	dendro_directory *directory;
	memset(bytes, 'a' + (int)thread, sizeof bytes);
	for (uint64_t turn = 0; turn < TURNS; turn++) {
		uint64_t offset = (thread * TURNS + turn) * sizeof bytes;
		RETURNS(sizeof bytes, dendro_file_write(file, offset, bytes, sizeof bytes));
		RETURNS(sizeof read, dendro_file_read(file, offset, read, sizeof read));
		CHECK(memcmp(bytes, read, sizeof read) == 0);
		snprintf(path, sizeof path, "file-%d-%d", (int)thread, (int)turn);
		RETURNS(0, dendro_files_replace(files, path, bytes, 100));
		if (turn % 16 == 0) {
			RETURNS(0, dendro_file_sync(file));
			RETURNS(0, dendro_directory_open(files, "/", &directory));
			while (dendro_directory_next(directory, &entry) == 1)
				CHECK(entry.ino != 0 && entry.name[0] != 0);
			RETURNS(0, dendro_directory_close(directory));
		}
	}
}

static void *work(void *number)
{
	uint64_t thread = (uint64_t)(uintptr_t)number;
	use_lists(thread);
	use_files(thread);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	dendro_stat stat;
	RETURNS(0, dendro_volume_create_in_memory(64 << 20, DENDRO_LISTS, NULL, &lists));
	RETURNS(0, dendro_volume_create_in_memory(64 << 20, DENDRO_FILES, NULL, &volume));
	RETURNS(0, dendro_volume_start_threads(lists, 10));
	RETURNS(0, dendro_volume_start_threads(volume, 0));
	RETURNS(0, dendro_version_main(lists, &head));
	RETURNS(0, dendro_unit_open(lists, head, &shared));
	RETURNS(0, dendro_files_open(volume, head, &files));
	RETURNS(0, dendro_file_open(files, "shared", DENDRO_WRITE | DENDRO_CREATE, &file));
	for (uintptr_t thread = 0; thread < THREADS; thread++)
		CHECK(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0);
	for (int thread = 0; thread < THREADS; thread++)
		pthread_join(threads[thread], NULL);
	/* What one thread put into the shared unit, it or another one committed. */
	RETURNS(0, dendro_unit_commit(shared, NULL));
	for (uint64_t index = 0; index < THREADS * TURNS; index++)
		RETURNS(1, dendro_record_read(lists, head, DENDRO_ROOT_LIST, index, NULL, 0));
	RETURNS(0, dendro_file_stat(file, &stat));
	CHECK(stat.len_bytes == (uint64_t)THREADS * TURNS * 4096);
	RETURNS(0, dendro_volume_threads_error(lists));
	RETURNS(0, dendro_volume_stop_threads(lists));
	RETURNS(0, dendro_unit_close(shared));
	RETURNS(0, dendro_file_close(file));
	RETURNS(0, dendro_files_close(files));
	RETURNS(0, dendro_volume_close(lists));
	RETURNS(0, dendro_volume_close(volume));
	return 0;
}
