/* Each error has the number that the header says. The argument is a directory for images. */
#include "check.h"
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (32 << 20)

static dendro_view head;
static char image[512], other[512];

static void version(void)
{
	char text[64];
	snprintf(text, sizeof text, "%d.%d.%d", DENDRO_VERSION_MAJOR, DENDRO_VERSION_MINOR,
	         DENDRO_VERSION_PATCH);
	CHECK(strcmp(text, DENDRO_VERSION) == 0);
}

static void wrong_volumes(void)
{
	dendro_volume *volume = (dendro_volume *)image, *second;
	dendro_options options = {0};
	char label[66];
	CHECK(dendro_error_message()[0] == 0 && dendro_error_code() == 0);
	RETURNS(-ENOENT, dendro_volume_open(image, NULL, &volume));
	CHECK(volume == NULL && strstr(dendro_error_message(), image) != NULL);
	RETURNS(-EINVAL, dendro_volume_open(NULL, NULL, &volume));
	RETURNS(-EINVAL, dendro_volume_open(image, NULL, NULL));
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, 3, NULL, &volume));
	RETURNS(-EINVAL, dendro_volume_create(image, 4096, DENDRO_FILES, NULL, &volume));
	RETURNS(-EINVAL, dendro_volume_create(image, UINT64_MAX, DENDRO_FILES, NULL, &volume));
	options.flags = 4;
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options.flags = DENDRO_READ_ONLY;
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.metadata_copies = 3};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options.metadata_copies = 257;
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.compression = DENDRO_COMPRESS_ZSTD | DENDRO_COMPRESS_LZ4};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.compression = DENDRO_COMPRESS_LZ4, .compression_level = 3};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.compression = DENDRO_COMPRESS_ZSTD, .compression_level = 16};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options.compression_level = 257;
	RETURNS(-EINVAL, dendro_volume_open(image, &options, &volume));
	options = (dendro_options){.segment_size_bytes = 3 << 20};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.segment_size_bytes = 4096};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.segment_size_bytes = 1ULL << 40};
	RETURNS(-EINVAL, dendro_volume_create(image, 1ULL << 50, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.reserved = {0, 1}};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	options = (dendro_options){.label = "\xff"};
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	memset(label, 'x', sizeof label);
	label[65] = 0;
	options.label = label;
	RETURNS(-EINVAL, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	CHECK(access(image, F_OK) != 0);
	RETURNS(-ENOENT, dendro_volume_create("/nowhere/image", SIZE, DENDRO_FILES, NULL, &volume));

	label[64] = 0;
	RETURNS(0, dendro_volume_create(image, SIZE, DENDRO_FILES, &options, &volume));
	RETURNS(-EEXIST, dendro_volume_create(image, SIZE, DENDRO_FILES, NULL, &second));
	RETURNS(-EBUSY, dendro_volume_open(image, NULL, &second));
	RETURNS(0, dendro_volume_close(volume));
	RETURNS(-EINVAL, dendro_volume_open(image, &options, &volume));
	options = (dendro_options){.segment_size_bytes = 1 << 20};
	RETURNS(-EINVAL, dendro_volume_open(image, &options, &volume));
	RETURNS(0, dendro_volume_close(NULL));
	FILE *file = fopen(other, "w");
	for (int byte = 0; byte < 1 << 20; byte++)
		putc('x', file);
	fclose(file);
	RETURNS(-EIO, dendro_volume_open(other, NULL, &volume));
	CHECK(unlink(other) == 0);
}

static void read_only(void)
{
	dendro_options options = {.flags = DENDRO_READ_ONLY | DENDRO_NO_DISCARD};
	char text[DENDRO_UUID_SIZE];
	dendro_volume *volume;
	dendro_files *files;
	dendro_file *file;
	uint64_t list;
	RETURNS(0, dendro_volume_open(image, &options, &volume));
	CHECK(dendro_volume_read_only_reason(volume, NULL, 0) > 0);
	RETURNS(64, dendro_volume_label(volume, text, 3));
	CHECK(strcmp(text, "xx") == 0);
	RETURNS(0, dendro_volume_uuid(volume, text));
	CHECK(strlen(text) == 36);
	RETURNS(-EINVAL, dendro_volume_uuid(volume, NULL));
	RETURNS(-EROFS, dendro_version_snapshot(volume, head, "one", NULL));
	RETURNS(-EROFS, dendro_list_allocate(volume, &list));
	RETURNS(0, dendro_files_open(volume, head, &files));
	RETURNS(-EROFS, dendro_files_mkdir(files, "dir"));
	RETURNS(-EROFS, dendro_file_open(files, "new", DENDRO_WRITE | DENDRO_CREATE, &file));
	RETURNS(0, dendro_files_close(files));
	RETURNS(0, dendro_volume_close(volume));
}

/* What a mebibyte takes in a volume of these contents. */
static uint64_t taken(dendro_volume *volume, const char *path)
{
	static char bytes[1 << 20];
	dendro_space before, after;
	dendro_files *files;
	memset(bytes, 's', sizeof bytes);
	RETURNS(0, dendro_volume_space(volume, &before));
	RETURNS(0, dendro_files_open(volume, head, &files));
	RETURNS(0, dendro_files_replace(files, path, bytes, sizeof bytes));
	RETURNS(0, dendro_files_close(files));
	RETURNS(0, dendro_volume_flush(volume));
	RETURNS(0, dendro_volume_space(volume, &after));
	return after.live_bytes - before.live_bytes;
}

static void compressed(void)
{
	dendro_options options = {.compression = DENDRO_COMPRESS_ZSTD, .compression_level = 7};
	dendro_volume *volume;
	RETURNS(0, dendro_volume_create(other, SIZE, DENDRO_FILES, &options, &volume));
	CHECK(taken(volume, "made") < 1 << 18);
	RETURNS(0, dendro_volume_close(volume));
	RETURNS(0, dendro_volume_open(other, NULL, &volume));
	CHECK(taken(volume, "opened") < 1 << 18);
	RETURNS(0, dendro_volume_close(volume));
	options = (dendro_options){.compression = DENDRO_COMPRESS_NONE};
	RETURNS(0, dendro_volume_open(other, &options, &volume));
	CHECK(taken(volume, "otherwise") >= 1 << 20);
	RETURNS(0, dendro_volume_close(volume));
}

static void null_handles(dendro_volume *volume)
{
	RETURNS(-EINVAL, dendro_volume_flush(NULL));
	CHECK(strlen(dendro_error_message()) > 0);
	RETURNS(-EINVAL, dendro_volume_step(NULL));
	RETURNS(-EINVAL, dendro_volume_label(NULL, NULL, 0));
	RETURNS(-EINVAL, dendro_volume_label(volume, NULL, 1));
	RETURNS(-EINVAL, dendro_volume_space(volume, NULL));
	RETURNS(-EINVAL, dendro_version_main(volume, NULL));
	RETURNS(-EINVAL, dendro_unit_commit(NULL, NULL));
	RETURNS(-EINVAL, dendro_unit_delete_list(NULL, 1));
	RETURNS(-EINVAL, dendro_unit_open(volume, head, NULL));
	RETURNS(-EINVAL, dendro_unit_use_reservation(NULL, NULL));
	RETURNS(-EINVAL, dendro_file_read(NULL, 0, NULL, 0));
	RETURNS(-EINVAL, dendro_files_sync(NULL));
	RETURNS(-EINVAL, dendro_directory_next(NULL, NULL));
	RETURNS(-EINVAL, dendro_versions_next(NULL, NULL));
	RETURNS(0, dendro_unit_close(NULL));
	RETURNS(0, dendro_reservation_close(NULL));
	RETURNS(0, dendro_file_close(NULL));
	RETURNS(0, dendro_files_close(NULL));
	RETURNS(0, dendro_directory_close(NULL));
	RETURNS(0, dendro_versions_close(NULL));
}

static void wrong_versions(dendro_volume *volume)
{
	dendro_view view, none = {77, DENDRO_HEAD}, snapshot, branch;
	dendro_version version;
	dendro_versions *versions;
	int count = 0;
	RETURNS(-ENOENT, dendro_version_find(volume, "@none", &view));
	RETURNS(-EINVAL, dendro_version_find(volume, "\xff", &view));
	RETURNS(-EINVAL, dendro_version_find(volume, NULL, &view));
	RETURNS(-EINVAL, dendro_version_snapshot(volume, head, "a/b", NULL));
	RETURNS(-EINVAL, dendro_version_snapshot(volume, head, "", NULL));
	RETURNS(-ESTALE, dendro_version_snapshot(volume, none, "one", NULL));
	RETURNS(0, dendro_version_snapshot(volume, head, "one", &snapshot));
	RETURNS(-EEXIST, dendro_version_snapshot(volume, head, "one", NULL));
	RETURNS(-ESTALE, dendro_version_snapshot(volume, snapshot, "two", NULL));
	RETURNS(0, dendro_version_find(volume, "@one", &view));
	CHECK(view.branch == snapshot.branch && view.epoch == snapshot.epoch);
	RETURNS(-EEXIST, dendro_version_clone(volume, snapshot, "main", NULL));
	RETURNS(-ESTALE, dendro_version_clone(volume, none, "work", NULL));
	RETURNS(0, dendro_version_clone(volume, snapshot, "work", &branch));
	uint32_t kind;
	dendro_view client;
	uint64_t len;
	RETURNS(-EEXIST, dendro_client_create(volume, "work", DENDRO_CLIENT_FILES, NULL));
	RETURNS(-EINVAL, dendro_client_create(volume, "odd", 77, NULL));
	RETURNS(-EINVAL, dendro_client_create(volume, "odd", DENDRO_CLIENT_BLOCK, NULL));
	RETURNS(-EINVAL, dendro_block_device_create(volume, "odd", 4095, NULL));
	RETURNS(-EEXIST, dendro_block_device_create(volume, "work", 8192, NULL));
	RETURNS(0, dendro_block_device_create(volume, "client", 8192, &client));
	RETURNS(0, dendro_block_device_len(volume, client, &len));
	CHECK(len == 8192);
	RETURNS(-EOPNOTSUPP, dendro_block_device_len(volume, head, &len));
	RETURNS(-ESTALE, dendro_block_device_len(volume, none, &len));
	RETURNS(0, dendro_client_kind(volume, client, &kind));
	CHECK(kind == DENDRO_CLIENT_BLOCK);
	RETURNS(0, dendro_client_kind(volume, head, &kind));
	CHECK(kind == DENDRO_CLIENT_FILES || kind == DENDRO_CLIENT_APPLICATION);
	RETURNS(-ESTALE, dendro_client_kind(volume, none, &kind));
	RETURNS(0, dendro_version_delete(volume, client));
	RETURNS(-EBUSY, dendro_version_delete(volume, head));
	RETURNS(0, dendro_version_hold(volume, snapshot, 1));
	RETURNS(-EBUSY, dendro_version_delete(volume, snapshot));
	RETURNS(-ESTALE, dendro_version_hold(volume, head, 1));
	RETURNS(-EEXIST, dendro_version_rename(volume, branch, "main"));
	RETURNS(-ESTALE, dendro_version_rename(volume, none, "other"));
	RETURNS(0, dendro_versions_open(volume, &versions));
	while (dendro_versions_next(versions, &version) == 1) {
		count++;
		if (strcmp(version.name, "work") == 0)
			CHECK(version.flags == (DENDRO_VERSION_HEAD | DENDRO_VERSION_HAS_PARENT) &&
			      version.parent.epoch == snapshot.epoch);
		if (strcmp(version.name, "one") == 0)
			CHECK(version.flags == DENDRO_VERSION_HELD && version.created.seconds > 0);
		if (strcmp(version.name, "main") == 0)
			CHECK(version.flags == (DENDRO_VERSION_HEAD | DENDRO_VERSION_MAIN));
	}
	CHECK(count == 3);
	RETURNS(0, dendro_versions_next(versions, &version));
	RETURNS(0, dendro_versions_close(versions));
	RETURNS(0, dendro_version_roll_back(volume, branch, snapshot, &branch));
	RETURNS(-ESTALE, dendro_version_roll_back(volume, snapshot, snapshot, NULL));
	RETURNS(-ESTALE, dendro_version_roll_back(volume, branch, none, NULL));
	RETURNS(0, dendro_version_delete(volume, branch));
	RETURNS(-ESTALE, dendro_version_delete(volume, branch));
	RETURNS(0, dendro_version_hold(volume, snapshot, 0));
	RETURNS(0, dendro_version_delete(volume, snapshot));
}

static void note_durable(void *told, int error)
{
	CHECK(error == 0);
	*(int *)told += 1;
}

static uint32_t hints_of(dendro_volume *volume, uint64_t list)
{
	uint32_t hints;
	RETURNS(0, dendro_list_hints(volume, head, list, &hints));
	return hints;
}

/* What a change does not name stays, also of what the same unit has named. */
static void compression(dendro_volume *volume)
{
	const uint32_t all[] = {DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_ZSTD, DENDRO_COMPRESS_NONE};
	uint64_t list, near;
	dendro_unit *unit;
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	for (int at = 0; at < 3; at++) {
		RETURNS(0, dendro_list_allocate(volume, &list));
		RETURNS(0, dendro_unit_create_list(unit, list, all[at]));
		RETURNS(0, dendro_unit_move_list(unit, list, DENDRO_CLUSTERED, DENDRO_ROOT_LIST));
		RETURNS(0, dendro_unit_commit(unit, NULL));
		CHECK(hints_of(volume, list) == (all[at] | DENDRO_CLUSTERED));
		RETURNS(0, dendro_unit_set_hints(unit, list, 0));
		RETURNS(0, dendro_unit_commit(unit, NULL));
		CHECK(hints_of(volume, list) == all[at]);
		RETURNS(0, dendro_list_near(volume, head, list, &near));
		CHECK(near == DENDRO_ROOT_LIST);
		RETURNS(0, dendro_unit_move_list(unit, list, 0, 0));
		RETURNS(0, dendro_unit_commit(unit, NULL));
		CHECK(hints_of(volume, list) == all[at]);
		RETURNS(0, dendro_list_near(volume, head, list, &near));
		CHECK(near == 0);
	}
	RETURNS(0, dendro_unit_set_hints(unit, list, DENDRO_COMPRESS_LZ4));
	RETURNS(0, dendro_unit_set_hints(unit, list, DENDRO_CLUSTERED));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	CHECK(hints_of(volume, list) == (DENDRO_COMPRESS_LZ4 | DENDRO_CLUSTERED));
	RETURNS(0, dendro_unit_set_hints(unit, list, DENDRO_COMPRESS_DEFAULT));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	CHECK(hints_of(volume, list) == 0);
	const uint32_t two = DENDRO_COMPRESS_LZ4 | DENDRO_COMPRESS_NONE;
	RETURNS(-EINVAL, dendro_unit_set_hints(unit, list, two));
	RETURNS(0, dendro_unit_close(unit));
}

/* The code tells apart what has the same errno. */
static void codes(dendro_volume *volume)
{
	dendro_volume *second;
	dendro_unit *unit;
	dendro_view view;
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	RETURNS(0, dendro_unit_put_record(unit, 99, 0, "x", 1));
	RETURNS(-ENOENT, dendro_unit_commit(unit, NULL));
	CHECK(dendro_error_code() == DENDRO_ERROR_NO_SUCH_LIST);
	/* A call that succeeds leaves it. */
	RETURNS(0, dendro_unit_clear(unit));
	CHECK(dendro_error_code() == DENDRO_ERROR_NO_SUCH_LIST);
	RETURNS(-ENOENT, dendro_version_find(volume, "none", &view));
	CHECK(dendro_error_code() == 0);
	RETURNS(0, dendro_unit_write_pages(unit, DENDRO_ROOT_LIST, UINT64_MAX, "x", 1));
	RETURNS(-EFBIG, dendro_unit_commit(unit, NULL));
	CHECK(dendro_error_code() == DENDRO_ERROR_OUT_OF_RANGE);
	RETURNS(0, dendro_unit_close(unit));
	RETURNS(0, dendro_volume_create_in_memory(SIZE, DENDRO_LISTS, NULL, &second));
	RETURNS(0, dendro_unit_open(second, head, &unit));
	RETURNS(0, dendro_volume_close(second));
	RETURNS(0, dendro_unit_put_record(unit, DENDRO_ROOT_LIST, 0, "x", 1));
	RETURNS(-EROFS, dendro_unit_commit(unit, NULL));
	CHECK(dendro_error_code() == DENDRO_ERROR_READ_ONLY);
	RETURNS(0, dendro_unit_close(unit));
}

static void wrong_units(dendro_volume *volume)
{
	uint64_t since;
	int told = 0;
	dendro_unit *unit, *stale;
	dendro_view none = {77, DENDRO_HEAD};
	uint64_t list, lists[4], page, near, neighbour;
	uint32_t hints;
	static char pages[2 * DENDRO_PAGE_SIZE];
	RETURNS(0, dendro_list_allocate(volume, &list));
	RETURNS(-ENOENT, dendro_list_hints(volume, head, list, NULL));
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	RETURNS(-EINVAL, dendro_unit_create_list(unit, list, 32));
	RETURNS(-EINVAL, dendro_unit_set_hints(unit, list, 32));
	RETURNS(-EINVAL, dendro_unit_put_record(unit, list, 0, NULL, 1));
	RETURNS(-EINVAL, dendro_unit_put_record(unit, list, 0, "x", SIZE_MAX));
	RETURNS(-EINVAL, dendro_unit_write_pages(unit, list, 0, NULL, 1));
	RETURNS(0, dendro_unit_put_record(unit, list, 0, "x", 1));
	RETURNS(-ENOENT, dendro_unit_commit(unit, NULL));
	/* The unit is as it was. */
	RETURNS(-ENOENT, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_create_list(unit, list, DENDRO_CLUSTERED));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_list_hints(volume, head, list, &hints));
	CHECK(hints == DENDRO_CLUSTERED);
	RETURNS(0, dendro_list_near(volume, head, list, &near));
	CHECK(near == 0);
	RETURNS(0, dendro_list_allocate(volume, &neighbour));
	RETURNS(-EINVAL, dendro_unit_create_list_near(unit, neighbour, 32, list));
	RETURNS(0, dendro_unit_create_list_near(unit, neighbour, 0, list));
	RETURNS(0, dendro_unit_move_list(unit, list, DENDRO_CLUSTERED, neighbour));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_list_near(volume, head, neighbour, &near));
	CHECK(near == list);
	RETURNS(0, dendro_list_near(volume, head, list, &near));
	CHECK(near == neighbour);
	RETURNS(0, dendro_list_hints(volume, head, list, &hints));
	CHECK(hints == DENDRO_CLUSTERED);
	RETURNS(0, dendro_unit_move_list(unit, list, DENDRO_CLUSTERED, UINT64_MAX));
	RETURNS(-ENOENT, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_delete_list(unit, neighbour));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(-ENOENT, dendro_list_near(volume, head, neighbour, &near));
	RETURNS(-EINVAL, dendro_list_near(volume, head, list, NULL));
	RETURNS(0, dendro_unit_create_list(unit, list, 0));
	RETURNS(-EEXIST, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_put_record(unit, list, 0, NULL, 0));
	RETURNS(-EMSGSIZE, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_put_record(unit, list, 0, pages, DENDRO_MAX_RECORD_SIZE + 1));
	RETURNS(-EMSGSIZE, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_write_pages(unit, list, DENDRO_MAX_PAGE_COUNT, "x", 1));
	RETURNS(-EFBIG, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	for (uint64_t group = 0; group <= DENDRO_MAX_UNIT_GROUPS; group++)
		RETURNS(0, dendro_unit_write_pages(unit, list, group * DENDRO_GROUP_PAGES, "x", 1));
	RETURNS(-EFBIG, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	for (uint64_t at = 0; at < 512; at++)
		RETURNS(0, dendro_unit_zero_pages(unit, list, at * 32, 32));
	RETURNS(-ENOSPC, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	/* Conditions. */
	RETURNS(0, dendro_volume_last_commit(volume, &since));
	RETURNS(-EINVAL, dendro_volume_last_commit(volume, NULL));
	RETURNS(0, dendro_unit_put_record(unit, list, 7, "seven", 5));
	RETURNS(-EINVAL, dendro_unit_require_record(unit, list, 7, NULL, 1));
	RETURNS(0, dendro_unit_require_record(unit, list, 7, NULL, 0));
	RETURNS(0, dendro_unit_require_unchanged(unit, list, since));
	RETURNS(0, dendro_unit_commit(unit, &since));
	RETURNS(0, dendro_unit_put_record(unit, list, 7, "eight", 5));
	RETURNS(0, dendro_unit_require_record(unit, list, 7, "seven", 5));
	RETURNS(0, dendro_unit_require_unchanged(unit, list, since));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_require_record(unit, list, 7, "seven", 5));
	RETURNS(-EAGAIN, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_require_unchanged(unit, list, since));
	RETURNS(-EAGAIN, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	/* Durability. */
	RETURNS(0, dendro_volume_flush_list(volume, head, list));
	RETURNS(-EINVAL, dendro_volume_when_durable(volume, DENDRO_LATEST, NULL, NULL));
	RETURNS(0, dendro_volume_when_durable(volume, since, note_durable, &told));
	RETURNS(0, dendro_volume_flush(volume));
	CHECK(told == 1);
	RETURNS(0, dendro_unit_open(volume, none, &stale));
	RETURNS(0, dendro_unit_put_record(stale, list, 0, "x", 1));
	RETURNS(-ESTALE, dendro_unit_commit(stale, NULL));
	RETURNS(0, dendro_unit_close(stale));
	/* One list describes the volume. */
	RETURNS(3, dendro_lists(volume, head, 0, lists, 4));
	CHECK(lists[0] == DENDRO_ROOT_LIST && lists[1] == 2 && lists[2] == list);
	RETURNS(0, dendro_lists(volume, head, list + 1, lists, 4));
	RETURNS(-EINVAL, dendro_lists(volume, head, 0, NULL, 4));
	RETURNS(-EINVAL, dendro_lists(volume, head, 0, lists, SIZE_MAX));
	RETURNS(-ESTALE, dendro_lists(volume, none, 0, lists, 4));

	RETURNS(0, dendro_unit_write_pages(unit, list, 1, "abc", 3));
	RETURNS(0, dendro_unit_put_record(unit, list, 7, "dropped", 7));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(0, dendro_unit_write_pages(unit, list, 1, "abc", 3));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_pages_read(volume, head, list, 0, pages, sizeof pages));
	CHECK(pages[0] == 0 && memcmp(pages + DENDRO_PAGE_SIZE, "abc", 4) == 0);
	RETURNS(-EINVAL, dendro_pages_read(volume, head, list, 0, pages, 100));
	RETURNS(-EINVAL, dendro_pages_read(volume, head, list, 0, NULL, DENDRO_PAGE_SIZE));
	RETURNS(-EFBIG, dendro_pages_read(volume, head, list, UINT64_MAX, pages, sizeof pages));
	RETURNS(-ESTALE, dendro_pages_read(volume, none, list, 0, pages, sizeof pages));
	RETURNS(0, dendro_unit_write_bytes(unit, list, DENDRO_PAGE_SIZE + 1, "xyz", 2));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	dendro_page_range ranges[] = {{list, 1, 1}, {list, 1, 0}, {list, 0, 1}};
	RETURNS(0, dendro_pages_read_scattered(volume, head, ranges, 3, pages, sizeof pages));
	CHECK(memcmp(pages, "axy", 4) == 0);
	CHECK(pages[DENDRO_PAGE_SIZE] == 0);
	RETURNS(-EINVAL, dendro_pages_read_scattered(volume, head, ranges, 2, pages, sizeof pages));
	RETURNS(-EINVAL, dendro_pages_read_scattered(volume, head, NULL, 3, pages, sizeof pages));
	RETURNS(-EINVAL, dendro_pages_read_scattered(volume, head, ranges, SIZE_MAX, pages, 0));
	ranges[0].first_page = UINT64_MAX;
	RETURNS(-EFBIG, dendro_pages_read_scattered(volume, head, ranges, 3, pages, sizeof pages));
	RETURNS(0, dendro_unit_write_bytes(unit, list, UINT64_MAX, "xyz", 3));
	RETURNS(-EFBIG, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_unit_clear(unit));
	RETURNS(-EINVAL, dendro_unit_write_bytes(unit, list, 0, NULL, 3));
	RETURNS(0, dendro_unit_write_pages(unit, list, 1, "abc", 3));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(1, dendro_pages_next_data(volume, head, list, 0, &page));
	CHECK(page == 1);
	RETURNS(0, dendro_pages_next_hole(volume, head, list, 1, &page));
	CHECK(page == 2);
	RETURNS(0, dendro_pages_next_data(volume, head, list, 2, &page));
	RETURNS(0, dendro_unit_move_pages(unit, list, 1, DENDRO_ROOT_LIST, 5, 1));
	RETURNS(0, dendro_unit_swap_pages(unit, list, DENDRO_ROOT_LIST));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_pages_read(volume, head, list, 5, pages, DENDRO_PAGE_SIZE));
	CHECK(memcmp(pages, "abc", 4) == 0);
	RETURNS(0, dendro_unit_punch_pages(unit, list, 0, DENDRO_MAX_PAGE_COUNT));
	RETURNS(0, dendro_unit_set_hints(unit, list, 0));
	RETURNS(0, dendro_unit_set_reclaims(unit));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_pages_next_data(volume, head, list, 0, &page));
	RETURNS(0, dendro_unit_delete_list(unit, list));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(-ENOENT, dendro_list_hints(volume, head, list, NULL));
	RETURNS(0, dendro_unit_close(unit));
}

static void wrong_records(dendro_volume *volume)
{
	char buf[8];
	uint64_t index = 99, list = DENDRO_ROOT_LIST;
	dendro_unit *unit;
	RETURNS(-ENOENT, dendro_record_read(volume, head, list, 3, buf, sizeof buf));
	RETURNS(0, dendro_record_next(volume, head, list, 0, &index, buf, sizeof buf));
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	RETURNS(0, dendro_unit_put_record(unit, list, 3, "a record", 8));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(8, dendro_record_read(volume, head, list, 3, NULL, 0));
	RETURNS(-ERANGE, dendro_record_read(volume, head, list, 3, buf, 7));
	RETURNS(-ERANGE, dendro_record_next(volume, head, list, 0, &index, buf, 7));
	CHECK(index == 3);
	RETURNS(-EINVAL, dendro_record_read(volume, head, list, 3, NULL, 8));
	RETURNS(-EINVAL, dendro_record_next(volume, head, list, 3, NULL, buf, 8));
	RETURNS(8, dendro_record_read(volume, head, list, 3, buf, sizeof buf));
	CHECK(memcmp(buf, "a record", 8) == 0);
	RETURNS(0, dendro_unit_delete_record(unit, list, 3));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(-ENOENT, dendro_record_read(volume, head, list, 3, buf, sizeof buf));
	RETURNS(0, dendro_unit_close(unit));
}

static void reservations(dendro_volume *volume)
{
	dendro_volume *second;
	dendro_reservation *reservation;
	dendro_unit *unit;
	dendro_space space;
	RETURNS(-ENOSPC, dendro_reservation_open(volume, 1ULL << 40, &reservation));
	CHECK(reservation == NULL);
	RETURNS(0, dendro_reservation_open(volume, 1 << 20, &reservation));
	RETURNS(0, dendro_volume_space(volume, &space));
	CHECK(space.reserved_bytes >= 1 << 20 && space.available_bytes < space.capacity_bytes);
	RETURNS(0, dendro_reservation_close(reservation));
	RETURNS(0, dendro_volume_space(volume, &space));
	CHECK(space.reserved_bytes == 0);
	RETURNS(0, dendro_volume_create_in_memory(SIZE, DENDRO_LISTS, NULL, &second));
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	RETURNS(0, dendro_reservation_open(second, 4096, &reservation));
	RETURNS(-EINVAL, dendro_unit_use_reservation(unit, reservation));
	RETURNS(-EINVAL, dendro_unit_use_reservation(unit, NULL));
	RETURNS(0, dendro_reservation_open(volume, 4096, &reservation));
	RETURNS(0, dendro_unit_use_reservation(unit, reservation));
	RETURNS(0, dendro_unit_put_record(unit, DENDRO_ROOT_LIST, 1, "x", 1));
	RETURNS(0, dendro_unit_commit(unit, NULL));
	RETURNS(0, dendro_volume_space(volume, &space));
	CHECK(space.reserved_bytes == 0);
	/* A handle that outlives its volume takes no changes, and harms nothing. */
	dendro_unit *late;
	RETURNS(0, dendro_unit_open(second, head, &late));
	RETURNS(0, dendro_volume_close(second));
	RETURNS(0, dendro_unit_put_record(late, DENDRO_ROOT_LIST, 1, "x", 1));
	RETURNS(-EROFS, dendro_unit_commit(late, NULL));
	RETURNS(0, dendro_unit_close(late));
	RETURNS(0, dendro_unit_close(unit));
}

static void wrong_files(dendro_volume *volume)
{
	char name[300], buf[8];
	dendro_files *files, *kept;
	dendro_file *file;
	dendro_stat stat;
	dendro_view view, none = {77, DENDRO_HEAD};
	dendro_directory *directory;
	RETURNS(-ESTALE, dendro_files_open(volume, none, &files));
	RETURNS(0, dendro_files_open(volume, head, &files));
	RETURNS(-ENOENT, dendro_file_open(files, "file", 0, &file));
	RETURNS(-ENOENT, dendro_file_open(files, "file", DENDRO_WRITE, &file));
	RETURNS(-EINVAL, dendro_file_open(files, "file", DENDRO_CREATE, &file));
	RETURNS(-EINVAL, dendro_file_open(files, "file", DENDRO_WRITE | DENDRO_EXCLUSIVE, &file));
	RETURNS(-EINVAL, dendro_file_open(files, "file", 16, &file));
	RETURNS(-EINVAL, dendro_file_open(files, NULL, 0, &file));
	RETURNS(0, dendro_file_open(files, "file", DENDRO_WRITE | DENDRO_CREATE | DENDRO_EXCLUSIVE, &file));
	RETURNS(5, dendro_file_write(file, 0, "bytes", 5));
	RETURNS(0, dendro_file_write(file, 0, NULL, 0));
	RETURNS(-EINVAL, dendro_file_write(file, 0, NULL, 1));
	RETURNS(-EFBIG, dendro_file_write(file, UINT64_MAX, "x", 1));
	RETURNS(-EFBIG, dendro_file_truncate(file, UINT64_MAX));
	RETURNS(-EINVAL, dendro_file_read(file, 0, NULL, 1));
	RETURNS(-EINVAL, dendro_file_read(file, 0, buf, SIZE_MAX));
	RETURNS(0, dendro_file_read(file, 100, buf, sizeof buf));
	RETURNS(0, dendro_file_close(file));
	RETURNS(-EEXIST, dendro_file_open(files, "file", DENDRO_WRITE | DENDRO_CREATE | DENDRO_EXCLUSIVE, &file));
	RETURNS(0, dendro_file_open(files, "file", 0, &file));
	RETURNS(5, dendro_file_read(file, 0, buf, sizeof buf));
	RETURNS(-EBADF, dendro_file_write(file, 0, "x", 1));
	RETURNS(-EBADF, dendro_file_truncate(file, 0));
	RETURNS(0, dendro_file_close(file));
	RETURNS(0, dendro_file_open(files, "file", DENDRO_WRITE | DENDRO_TRUNCATE, &file));
	RETURNS(0, dendro_file_stat(file, &stat));
	CHECK(stat.len_bytes == 0 && stat.file_type == DENDRO_TYPE_FILE && stat.mode == 0644);
	RETURNS(0, dendro_file_truncate(file, 100));
	RETURNS(0, dendro_file_close(file));

	RETURNS(0, dendro_files_mkdir(files, "dir"));
	RETURNS(-EEXIST, dendro_files_mkdir(files, "dir"));
	RETURNS(-EINVAL, dendro_files_mkdir(files, "/"));
	RETURNS(-ENOENT, dendro_files_mkdir(files, "a/b"));
	RETURNS(0, dendro_files_mkdir_all(files, "a/b"));
	RETURNS(0, dendro_files_mkdir_all(files, "a/b"));
	RETURNS(-ENOTDIR, dendro_files_mkdir(files, "file/b"));
	memset(name, 'n', sizeof name);
	name[256] = 0;
	RETURNS(-ENAMETOOLONG, dendro_files_mkdir(files, name));
	name[255] = 0;
	RETURNS(0, dendro_files_mkdir(files, name));
	RETURNS(-EISDIR, dendro_files_unlink(files, "dir"));
	RETURNS(-EISDIR, dendro_file_open(files, "dir", DENDRO_WRITE, &file));
	RETURNS(-ENOTDIR, dendro_files_rmdir(files, "file"));
	RETURNS(-ENOTEMPTY, dendro_files_rmdir(files, "a"));
	RETURNS(-EINVAL, dendro_files_rename(files, "a", "a/b/c"));
	RETURNS(-EISDIR, dendro_files_rename(files, "file", "dir"));
	RETURNS(-ENOTDIR, dendro_files_rename(files, "dir", "file"));
	RETURNS(-ENOTEMPTY, dendro_files_rename(files, "dir", "a"));
	RETURNS(-EEXIST, dendro_files_link(files, "file", "dir"));
	RETURNS(-EPERM, dendro_files_link(files, "dir", "other"));
	RETURNS(-EISDIR, dendro_files_replace(files, "dir", "x", 1));
	RETURNS(-EINVAL, dendro_files_replace(files, "file", NULL, 1));
	RETURNS(0, dendro_files_symlink(files, "loop", "loop"));
	RETURNS(-ELOOP, dendro_files_stat(files, "loop", &stat));
	RETURNS(0, dendro_files_lstat(files, "loop", &stat));
	CHECK(stat.file_type == DENDRO_TYPE_SYMLINK);
	RETURNS(4, dendro_files_readlink(files, "loop", buf, 2));
	CHECK(memcmp(buf, "lo", 2) == 0);
	RETURNS(-EINVAL, dendro_files_readlink(files, "file", buf, sizeof buf));
	RETURNS(-EINVAL, dendro_files_stat(files, "file", NULL));
	RETURNS(-ENOENT, dendro_files_chmod(files, "none", 0600));
	RETURNS(0, dendro_files_chmod(files, "file", 0600));
	RETURNS(-ENOTDIR, dendro_directory_open(files, "file", &directory));
	RETURNS(-ENOENT, dendro_directory_open(files, "none", &directory));
	CHECK(directory == NULL);

	RETURNS(0, dendro_version_snapshot(volume, head, "kept", &view));
	RETURNS(0, dendro_files_open(volume, view, &kept));
	RETURNS(-EROFS, dendro_files_unlink(kept, "file"));
	RETURNS(-EROFS, dendro_files_replace(kept, "file", "x", 1));
	RETURNS(-EROFS, dendro_file_open(kept, "file", DENDRO_WRITE, &file));
	RETURNS(0, dendro_files_sync(files));
	RETURNS(0, dendro_files_close(kept));
	RETURNS(0, dendro_files_close(files));
}

/* A full volume, and one of the wrong kind. */
static void no_room(dendro_volume *lists)
{
	dendro_volume *volume;
	dendro_files *files;
	dendro_file *file;
	size_t len = 24 << 20;
	char *bytes = malloc(len);
	unsigned random = 1;
	for (size_t at = 0; at < len; at++)
		bytes[at] = (char)((random = random * 1103515245 + 12345) >> 16);
	RETURNS(-EOPNOTSUPP, dendro_files_open(lists, head, &files));
	RETURNS(0, dendro_volume_create_in_memory(16 << 20, DENDRO_FILES, NULL, &volume));
	RETURNS(0, dendro_files_open(volume, head, &files));
	RETURNS(0, dendro_file_open(files, "file", DENDRO_WRITE | DENDRO_CREATE, &file));
	int64_t count = dendro_file_write(file, 0, bytes, len);
	CHECK(count > 4 << 20 && count < 16 << 20);
	RETURNS(-ENOSPC, dendro_file_write(file, (uint64_t)count, bytes, 8 << 20));
	RETURNS(0, dendro_file_truncate(file, 0));
	RETURNS(1 << 20, dendro_file_write(file, 0, bytes, 1 << 20));
	free(bytes);
	RETURNS(0, dendro_file_close(file));
	RETURNS(0, dendro_files_close(files));
	RETURNS(0, dendro_volume_close(volume));
}

static void threads(dendro_volume *volume)
{
	RETURNS(0, dendro_volume_threads_error(volume));
	RETURNS(0, dendro_volume_stop_threads(volume));
	RETURNS(0, dendro_volume_start_threads(volume, 1000));
	RETURNS(-EBUSY, dendro_volume_start_threads(volume, 0));
	RETURNS(0, dendro_volume_stop_threads(volume));
	RETURNS(-EBUSY, dendro_volume_start_threads(volume, 0));
	while (dendro_volume_step(volume) == 1)
		;
	RETURNS(0, dendro_volume_flush(volume));
	RETURNS(0, dendro_volume_flush_to(volume, DENDRO_LATEST));
}

int main(int argc, char **argv)
{
	dendro_volume *lists, *files;
	CHECK(argc == 2);
	head.epoch = DENDRO_HEAD;
	snprintf(image, sizeof image, "%s/image", argv[1]);
	snprintf(other, sizeof other, "%s/other", argv[1]);
	version();
	wrong_volumes();
	read_only();
	compressed();
	RETURNS(0, dendro_volume_create_in_memory(SIZE, DENDRO_LISTS, NULL, &lists));
	RETURNS(0, dendro_volume_create_in_memory(SIZE, DENDRO_FILES, NULL, &files));
	null_handles(lists);
	wrong_versions(lists);
	wrong_units(lists);
	compression(lists);
	codes(lists);
	wrong_records(lists);
	reservations(lists);
	wrong_files(files);
	no_room(lists);
	threads(lists);
	RETURNS(0, dendro_volume_close(lists));
	RETURNS(0, dendro_volume_close(files));
	return 0;
}
