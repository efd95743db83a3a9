/*
 * A queue that survives crashes: what was pushed is popped once, in order.
 *
 * A list has a record for each message, and the root list a record with the place of the first one.
 * A push is one unit, and so is a pop. Neither waits for the device: after a crash the queue is as
 * it was after one of them. queue_sync() is for a message that somebody was told of.
 *
 *     cc -o queue queue.c $(pkg-config --cflags --libs dendro)
 *     ./queue /tmp/queue.img
 */
#include <dendro.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The record of the root list that names the queue's list and its first message. */
#define HEAD 0

/* A queue of messages of up to 1,024 bytes. */
struct queue {
	dendro_volume *volume;
	dendro_view main;
	dendro_unit *unit;
	uint64_t list;
	uint64_t first;
	uint64_t end;
};

static void put_number(uint8_t *at, uint64_t number)
{
	for (int byte = 0; byte < 8; byte++)
		at[byte] = (uint8_t)(number >> (8 * byte));
}

static uint64_t get_number(const uint8_t *at)
{
	uint64_t number = 0;
	for (int byte = 0; byte < 8; byte++)
		number |= (uint64_t)at[byte] << (8 * byte);
	return number;
}

/* Adds to the unit: the queue begins with the message `first`. */
static int put_head(struct queue *queue, uint64_t first)
{
	uint8_t head[16];
	put_number(head, queue->list);
	put_number(head + 8, first);
	return dendro_unit_put_record(queue->unit, DENDRO_ROOT_LIST, HEAD, head, sizeof head);
}

/* Makes the queue in a new volume. */
static int make(struct queue *queue)
{
	int error = dendro_list_allocate(queue->volume, &queue->list);
	if (!error)
		error = dendro_unit_create_list(queue->unit, queue->list, 0);
	if (!error)
		error = put_head(queue, 0);
	return error ? error : dendro_unit_commit(queue->unit, NULL);
}

/* Finds the first message and the end. */
static int find(struct queue *queue)
{
	uint8_t head[16], message[DENDRO_MAX_RECORD_SIZE];
	int64_t len = dendro_record_read(queue->volume, queue->main, DENDRO_ROOT_LIST, HEAD, head,
	                                 sizeof head);
	if (len < 0)
		return (int)len;
	if (len != sizeof head)
		return -EIO;
	queue->list = get_number(head);
	queue->first = queue->end = get_number(head + 8);
	for (;;) {
		uint64_t index;
		len = dendro_record_next(queue->volume, queue->main, queue->list, queue->end, &index,
		                         message, sizeof message);
		if (len <= 0)
			return (int)len;
		queue->end = index + 1;
	}
}

static int queue_close(struct queue *queue)
{
	dendro_unit_close(queue->unit);
	return dendro_volume_close(queue->volume);
}

/* Opens the queue in an image, which is made if there is none. */
static int queue_open(struct queue *queue, const char *path)
{
	int is_new = access(path, F_OK) != 0;
	memset(queue, 0, sizeof *queue);
	int error = is_new ? dendro_volume_create(path, 64 << 20, DENDRO_LISTS, NULL, &queue->volume)
	                   : dendro_volume_open(path, NULL, &queue->volume);
	if (!error)
		error = dendro_version_main(queue->volume, &queue->main);
	if (!error)
		error = dendro_unit_open(queue->volume, queue->main, &queue->unit);
	if (!error && is_new)
		error = make(queue);
	if (!error)
		error = find(queue);
	if (error)
		queue_close(queue);
	return error;
}

/* Adds a message. */
static int queue_push(struct queue *queue, const void *message, size_t len)
{
	int error = dendro_unit_put_record(queue->unit, queue->list, queue->end, message, len);
	if (!error)
		error = dendro_unit_commit(queue->unit, NULL);
	if (!error)
		queue->end++;
	return error;
}

/* Takes the first message out into `message`, which has room for DENDRO_MAX_RECORD_SIZE bytes.
 * Returns its length, 0 if there is none. */
static int64_t queue_pop(struct queue *queue, void *message)
{
	int64_t len = dendro_record_read(queue->volume, queue->main, queue->list, queue->first, message,
	                                 DENDRO_MAX_RECORD_SIZE);
	if (len == -ENOENT)
		return 0;
	if (len < 0)
		return len;
	int error = dendro_unit_delete_record(queue->unit, queue->list, queue->first);
	if (!error)
		error = put_head(queue, queue->first + 1);
	if (!error)
		error = dendro_unit_commit(queue->unit, NULL);
	if (error)
		return error;
	queue->first++;
	return len;
}

/* How many messages wait. */
static uint64_t queue_waiting(const struct queue *queue)
{
	return queue->end - queue->first;
}

/* Makes everything durable. */
static int queue_sync(struct queue *queue)
{
	return dendro_volume_flush(queue->volume);
}

static int use(struct queue *queue)
{
	char message[DENDRO_MAX_RECORD_SIZE];
	int error = dendro_volume_start_threads(queue->volume, 0);
	if (error)
		return error;
	printf("%" PRIu64 " messages wait\n", queue_waiting(queue));
	int64_t len = queue_pop(queue, message);
	if (len < 0)
		return (int)len;
	if (len > 0)
		printf("the first was: %.*s\n", (int)len, message);
	for (int number = 0; number < 3 && !error; number++) {
		int count = snprintf(message, sizeof message, "message %d of process %ld", number,
		                     (long)getpid());
		error = queue_push(queue, message, (size_t)count);
	}
	if (!error)
		error = queue_sync(queue);
	if (!error)
		printf("%" PRIu64 " wait now, whatever happens\n", queue_waiting(queue));
	return error;
}

int main(int argc, char **argv)
{
	struct queue queue;
	int error = queue_open(&queue, argc > 1 ? argv[1] : "queue.img");
	if (!error) {
		int closed;
		error = use(&queue);
		closed = queue_close(&queue);
		error = error ? error : closed;
	}
	if (error)
		fprintf(stderr, "queue: %s (%s)\n", dendro_error_message(), strerror(-error));
	return error != 0;
}
