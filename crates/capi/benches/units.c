/* Commits small units on a volume in memory; prints the nanoseconds of CPU time that each takes. */
#include <dendro.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define UNITS 200000
#define RECORDS 50000

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(void)
{
	dendro_volume *volume;
	dendro_view head;
	dendro_unit *unit;
	char value[100];
	int error = dendro_volume_create_in_memory(512 << 20, DENDRO_LISTS, NULL, &volume);
	if (!error)
		error = dendro_version_main(volume, &head);
	if (!error)
		error = dendro_unit_open(volume, head, &unit);
	memset(value, 7, sizeof value);
	double start = now();
	for (uint64_t number = 0; number < UNITS && !error; number++) {
		error = dendro_unit_put_record(unit, DENDRO_ROOT_LIST, number * 7919 % RECORDS, value,
		                               sizeof value);
		if (!error)
			error = dendro_unit_commit(unit, NULL);
	}
	if (error) {
		fprintf(stderr, "%s\n", dendro_error_message());
		return 1;
	}
	printf("%.1f\n", (now() - start) / UNITS);
	dendro_unit_close(unit);
	return dendro_volume_close(volume) != 0;
}
