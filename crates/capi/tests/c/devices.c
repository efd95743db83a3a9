/* A volume that lies on two devices: a mirror, of which the argument names the directory. */
#include <dendro.h>

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	CHECK(chdir(argv[1]) == 0);
	const char *devices[] = {"two.img", NULL}, *foreign[] = {"none.img", NULL};
	dendro_options options = {.devices = devices};
	dendro_volume *volume;
	uint64_t commit;
	RETURNS(-EINVAL, dendro_volume_create("new.img", 1 << 25, DENDRO_LISTS, &options, &volume));
	RETURNS(-ENODEV, dendro_volume_open("one.img", NULL, &volume));
	options.devices = foreign;
	RETURNS(-ENOENT, dendro_volume_open("one.img", &options, &volume));

	options.devices = devices;
	RETURNS(0, dendro_volume_open("one.img", &options, &volume));
	RETURNS(0, dendro_volume_last_commit(volume, &commit));
	RETURNS(0, dendro_volume_flush_for(volume, DENDRO_OUTLASTS_MEDIUM, commit));
	RETURNS(0, dendro_volume_close(volume));

	CHECK(unlink("two.img") == 0);
	options = (dendro_options){.flags = DENDRO_DEGRADED};
	RETURNS(-EINVAL, dendro_volume_create("new.img", 1 << 25, DENDRO_LISTS, &options, &volume));
	RETURNS(0, dendro_volume_open("one.img", &options, &volume));
	RETURNS(0, dendro_volume_close(volume));
	return 0;
}
