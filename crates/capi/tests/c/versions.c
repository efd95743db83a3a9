/*
 * What versions have changed, what they take, and how they come and go. The argument is a directory
 * for images and streams.
 */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define SIZE (32 << 20)

static char pages[64 * DENDRO_PAGE_SIZE];

static void commit(dendro_unit *unit)
{
	RETURNS(0, dendro_unit_commit(unit, NULL));
}

/* Two versions of a list: records 1 and 5, and pages 3 and 40 to 42, are others. */
static void changes(dendro_volume *volume, dendro_view head)
{
	dendro_view before, none = {77, DENDRO_HEAD};
	dendro_unit *unit;
	uint64_t list, other, found[4], first, count;
	RETURNS(0, dendro_list_allocate(volume, &list));
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	RETURNS(0, dendro_unit_create_list(unit, list, 0));
	for (int index = 0; index < 8; index++)
		RETURNS(0, dendro_unit_put_record(unit, list, index, "before", 6));
	memset(pages, 'b', sizeof pages);
	RETURNS(0, dendro_unit_write_pages(unit, list, 0, pages, sizeof pages));
	commit(unit);
	RETURNS(0, dendro_version_snapshot(volume, head, "before", &before));
	RETURNS(0, dendro_changed_lists(volume, before, head, 0, found, 4));
	RETURNS(0, dendro_changed_records(volume, before, head, list, 0, found, 4));
	RETURNS(0, dendro_changed_pages(volume, before, head, list, 0, &first, &count));

	RETURNS(0, dendro_list_allocate(volume, &other));
	RETURNS(0, dendro_unit_create_list(unit, other, 0));
	RETURNS(0, dendro_unit_put_record(unit, list, 1, "after", 5));
	RETURNS(0, dendro_unit_delete_record(unit, list, 5));
	memset(pages, 'a', sizeof pages);
	RETURNS(0, dendro_unit_write_pages(unit, list, 3, pages, DENDRO_PAGE_SIZE));
	RETURNS(0, dendro_unit_write_pages(unit, list, 40, pages, 3 * DENDRO_PAGE_SIZE));
	commit(unit);
	RETURNS(0, dendro_unit_close(unit));
	RETURNS(2, dendro_changed_lists(volume, before, head, 0, found, 4));
	CHECK(found[0] == list && found[1] == other);
	RETURNS(1, dendro_changed_lists(volume, before, head, list + 1, found, 4));
	CHECK(found[0] == other);
	RETURNS(1, dendro_changed_lists(volume, head, before, 0, found, 1));
	RETURNS(0, dendro_changed_lists(volume, before, head, other + 1, found, 4));
	RETURNS(2, dendro_changed_records(volume, before, head, list, 0, found, 4));
	CHECK(found[0] == 1 && found[1] == 5);
	RETURNS(1, dendro_changed_records(volume, before, head, list, 2, found, 4));
	CHECK(found[0] == 5);
	RETURNS(1, dendro_changed_pages(volume, before, head, list, 0, &first, &count));
	CHECK(first == 3 && count == 1);
	RETURNS(1, dendro_changed_pages(volume, before, head, list, 4, &first, &count));
	CHECK(first == 40 && count == 3);
	RETURNS(0, dendro_changed_pages(volume, before, head, list, 43, &first, &count));

	RETURNS(-ESTALE, dendro_changed_lists(volume, none, head, 0, found, 4));
	RETURNS(-ESTALE, dendro_changed_records(volume, before, none, list, 0, found, 4));
	RETURNS(-ESTALE, dendro_changed_pages(volume, none, head, list, 0, &first, &count));
	RETURNS(-EINVAL, dendro_changed_lists(volume, before, head, 0, NULL, 4));
	RETURNS(-EINVAL, dendro_changed_records(NULL, before, head, list, 0, found, 4));
	RETURNS(-EINVAL, dendro_changed_pages(volume, before, head, list, 0, NULL, &count));
}

static void usage(dendro_volume *volume, dendro_view head)
{
	dendro_usage usages[4];
	int heads = 0;
	RETURNS(2, dendro_versions_usage(volume, NULL, 0));
	RETURNS(2, dendro_versions_usage(volume, usages, 1));
	RETURNS(2, dendro_versions_usage(volume, usages, 4));
	for (int at = 0; at < 2; at++) {
		CHECK(usages[at].seen_bytes >= sizeof pages);
		CHECK(usages[at].exclusive_bytes >= 4 * DENDRO_PAGE_SIZE);
		CHECK(usages[at].exclusive_bytes < usages[at].seen_bytes);
		heads += usages[at].view.branch == head.branch && usages[at].view.epoch == DENDRO_HEAD;
	}
	CHECK(heads == 1);

	dendro_view views[2] = {usages[0].view, usages[1].view}, none = {77, DENDRO_HEAD};
	uint64_t alone, together;
	RETURNS(0, dendro_versions_freed_by(volume, NULL, 0, &alone));
	CHECK(alone == 0);
	RETURNS(0, dendro_versions_freed_by(volume, views, 1, &alone));
	CHECK(alone == usages[0].exclusive_bytes);
	RETURNS(0, dendro_versions_freed_by(volume, views, 2, &together));
	CHECK(together > usages[0].exclusive_bytes + usages[1].exclusive_bytes);
	RETURNS(-ESTALE, dendro_versions_freed_by(volume, &none, 1, &alone));
	RETURNS(-EINVAL, dendro_versions_freed_by(volume, NULL, 1, &alone));
	RETURNS(-EINVAL, dendro_versions_freed_by(volume, views, 1, NULL));
	RETURNS(-EINVAL, dendro_versions_usage(volume, NULL, 4));
	RETURNS(-EINVAL, dendro_versions_usage(NULL, usages, 4));
}

static void promotion(dendro_volume *volume, dendro_view head)
{
	dendro_view snapshot, work, client, now;
	RETURNS(0, dendro_version_find(volume, "@before", &snapshot));
	RETURNS(-ESTALE, dendro_version_promote(volume, snapshot));
	RETURNS(0, dendro_version_clone(volume, snapshot, "work", &work));
	RETURNS(0, dendro_client_create(volume, "client", DENDRO_CLIENT_APPLICATION, &client));
	RETURNS(-EXDEV, dendro_version_promote(volume, client));
	RETURNS(0, dendro_version_promote(volume, work));
	RETURNS(0, dendro_version_main(volume, &now));
	CHECK(now.branch == work.branch);
	RETURNS(0, dendro_version_find(volume, "main", &now));
	CHECK(now.branch == work.branch);
	RETURNS(0, dendro_version_find(volume, "work", &now));
	CHECK(now.branch == head.branch);
	RETURNS(0, dendro_version_promote(volume, head));
	RETURNS(-EINVAL, dendro_version_promote(NULL, work));
}

/* A client of lists that may take 64 KiB. */
static void quotas(dendro_volume *volume)
{
	dendro_quota quota = {0};
	dendro_reservation *reservation;
	dendro_view head, none = {77, DENDRO_HEAD};
	dendro_unit *unit;
	RETURNS(0, dendro_client_create(volume, "bounded", DENDRO_CLIENT_APPLICATION, &head));
	RETURNS(0, dendro_client_quota(volume, head, &quota));
	RETURNS(0, dendro_client_set_quota(volume, head, 64 << 10));
	RETURNS(1, dendro_client_quota(volume, head, &quota));
	CHECK(quota.limit_bytes == 64 << 10 && quota.used_bytes < 4096);
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	RETURNS(0, dendro_unit_write_pages(unit, DENDRO_ROOT_LIST, 0, pages, sizeof pages));
	RETURNS(-EDQUOT, dendro_unit_commit(unit, NULL));
	CHECK(strstr(dendro_error_message(), "quota"));
	RETURNS(0, dendro_reservation_open_in(volume, head, 32 << 10, &reservation));
	RETURNS(1, dendro_client_quota(volume, head, &quota));
	CHECK(quota.reserved_bytes == 32 << 10);
	RETURNS(0, dendro_reservation_close(reservation));
	RETURNS(-EDQUOT, dendro_reservation_open_in(volume, head, 65 << 10, &reservation));
	CHECK(!reservation);
	RETURNS(-ESTALE, dendro_reservation_open_in(volume, none, 1, &reservation));
	RETURNS(0, dendro_client_set_quota(volume, head, DENDRO_NO_QUOTA));
	RETURNS(0, dendro_client_quota(volume, head, &quota));
	commit(unit);
	RETURNS(0, dendro_unit_close(unit));
	RETURNS(-ESTALE, dendro_client_quota(volume, none, &quota));
	RETURNS(-ESTALE, dendro_client_set_quota(volume, none, 1));
	RETURNS(-EINVAL, dendro_client_quota(volume, head, NULL));
	RETURNS(-EINVAL, dendro_client_set_quota(NULL, head, 1));
	RETURNS(-EINVAL, dendro_reservation_open_in(volume, head, 1, NULL));
}

static void durability(dendro_volume *volume)
{
	RETURNS(0, dendro_volume_flush_for(volume, DENDRO_OUTLASTS_PROCESS, DENDRO_LATEST));
	RETURNS(0, dendro_volume_flush_for(volume, DENDRO_OUTLASTS_MACHINE, DENDRO_LATEST));
	/* There is one device alone. */
	RETURNS(-ENODEV, dendro_volume_flush_for(volume, DENDRO_OUTLASTS_MEDIUM, DENDRO_LATEST));
	RETURNS(-EINVAL, dendro_volume_flush_for(volume, 0, DENDRO_LATEST));
	RETURNS(-EINVAL, dendro_volume_flush_for(NULL, DENDRO_OUTLASTS_MACHINE, DENDRO_LATEST));
}

/* Sends two versions, of which the second is based on the first. */
static void *sending(void *nothing)
{
	const char *names[] = {"first", "second"}, *files[] = {"full", "rest"};
	dendro_volume *volume;
	dendro_view head, sent[2];
	dendro_unit *unit;
	RETURNS(0, dendro_volume_create_in_memory(SIZE, DENDRO_LISTS, NULL, &volume));
	RETURNS(0, dendro_version_main(volume, &head));
	RETURNS(0, dendro_unit_open(volume, head, &unit));
	for (int at = 0; at < 2; at++) {
		const char *name = names[at];
		RETURNS(0, dendro_unit_put_record(unit, DENDRO_ROOT_LIST, 7, name, strlen(name)));
		RETURNS(0, dendro_unit_write_pages(unit, DENDRO_ROOT_LIST, 0, pages, sizeof pages));
		commit(unit);
		RETURNS(0, dendro_version_snapshot(volume, head, name, &sent[at]));
		int fd = open(files[at], O_WRONLY | O_CREAT | O_TRUNC, 0600);
		CHECK(fd >= 0);
		RETURNS(0, dendro_version_send(volume, sent[at], at ? &sent[0] : NULL, fd));
		close(fd);
	}
	RETURNS(-ESTALE, dendro_version_send(volume, head, NULL, 1));
	RETURNS(-ESTALE, dendro_version_send(volume, sent[1], &head, 1));
	RETURNS(-EBADF, dendro_version_send(volume, sent[1], NULL, -1));
	RETURNS(-EINVAL, dendro_version_send(NULL, sent[1], NULL, 1));
	RETURNS(0, dendro_unit_close(unit));
	RETURNS(0, dendro_volume_close(volume));
	return nothing;
}

static int opened(const char *name)
{
	int fd = open(name, O_RDONLY);
	CHECK(fd >= 0);
	return fd;
}

static void reception(dendro_volume *volume)
{
	char record[DENDRO_MAX_RECORD_SIZE];
	dendro_view first, second, none;
	int fd = opened("rest"), ends[2];
	RETURNS(-ENOENT, dendro_version_receive(volume, fd, NULL, &second));
	close(fd);
	fd = opened("full");
	RETURNS(0, dendro_version_receive(volume, fd, "received", &first));
	/* Nothing was read behind its end. */
	CHECK(lseek(fd, 0, SEEK_CUR) == lseek(fd, 0, SEEK_END));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	RETURNS(-EEXIST, dendro_version_receive(volume, fd, NULL, NULL));
	close(fd);
	RETURNS(0, dendro_version_find(volume, "@received", &none));
	CHECK(none.epoch == first.epoch);
	fd = opened("rest");
	RETURNS(-EEXIST, dendro_version_receive(volume, fd, "received", NULL));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	RETURNS(-EINVAL, dendro_version_receive(volume, fd, "a/b", NULL));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	RETURNS(0, dendro_version_receive(volume, fd, NULL, &second));
	close(fd);
	RETURNS(0, dendro_version_find(volume, "@second", &none));
	CHECK(none.epoch == second.epoch);
	RETURNS(5, dendro_record_read(volume, first, DENDRO_ROOT_LIST, 7, record, sizeof record));
	CHECK(memcmp(record, "first", 5) == 0);
	RETURNS(6, dendro_record_read(volume, second, DENDRO_ROOT_LIST, 7, record, sizeof record));
	CHECK(memcmp(record, "second", 6) == 0);

	RETURNS(-EBADF, dendro_version_receive(volume, -1, NULL, NULL));
	RETURNS(-EINVAL, dendro_version_receive(NULL, 0, NULL, NULL));
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], "no stream, but it is longer than the header of one is; so it has to be "
	            "wrong, and not too short", 90) == 90);
	close(ends[1]);
	RETURNS(-EBADMSG, dendro_version_receive(volume, ends[0], NULL, NULL));
	close(ends[0]);
}

int main(int argc, char **argv)
{
	dendro_volume *volume;
	dendro_view head;
	pthread_t sender;
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	RETURNS(0, dendro_volume_create("image", SIZE, DENDRO_LISTS, NULL, &volume));
	RETURNS(0, dendro_version_main(volume, &head));
	changes(volume, head);
	usage(volume, head);
	promotion(volume, head);
	quotas(volume);
	durability(volume);
	RETURNS(0, dendro_volume_close(volume));
	CHECK(unlink("image") == 0);
	RETURNS(0, dendro_volume_create("image", SIZE, DENDRO_LISTS, NULL, &volume));
	/* What the library knows of the thread is freed when that ends, before memory is checked. */
	CHECK(pthread_create(&sender, NULL, sending, NULL) == 0 && pthread_join(sender, NULL) == 0);
	reception(volume);
	RETURNS(0, dendro_volume_close(volume));
	return 0;
}
