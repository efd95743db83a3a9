/*
 * Files of a volume without a mount: writes some, makes a snapshot, changes them, and prints both
 * versions.
 *
 *     cc -o files files.c $(pkg-config --cflags --libs dendro)
 *     ./files /tmp/files.img
 */
#include <dendro.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Writes a file that then has `text` alone. */
static int write_text(dendro_files *files, const char *path, const char *text)
{
	dendro_file *file;
	int error = dendro_file_open(files, path, DENDRO_WRITE | DENDRO_CREATE | DENDRO_TRUNCATE, &file);
	if (error)
		return error;
	int64_t count = dendro_file_write(file, 0, text, strlen(text));
	error = count < 0 ? (int)count : dendro_file_sync(file);
	dendro_file_close(file);
	return error;
}

/* Prints a directory, and the beginnings of the files in it. */
static int print(dendro_files *files, const char *directory)
{
	dendro_directory *entries;
	dendro_entry entry;
	int next, error = dendro_directory_open(files, directory, &entries);
	if (error)
		return error;
	while ((next = dendro_directory_next(entries, &entry)) == 1) {
		char path[2 * DENDRO_NAME_SIZE], text[32];
		dendro_stat stat;
		dendro_file *file;
		snprintf(path, sizeof path, "%s/%s", directory, entry.name);
		if ((error = dendro_files_stat(files, path, &stat)) ||
		    (error = dendro_file_open(files, path, 0, &file)))
			break;
		int64_t count = dendro_file_read(file, 0, text, sizeof text);
		dendro_file_close(file);
		if (count < 0) {
			error = (int)count;
			break;
		}
		printf("%6" PRIu64 "  %s: %.*s\n", stat.len_bytes, path, (int)count, text);
	}
	dendro_directory_close(entries);
	return error ? error : next;
}

/* Prints what a version has. */
static int print_version(dendro_volume *volume, const char *title, dendro_view version)
{
	dendro_files *files;
	int error = dendro_files_open(volume, version, &files);
	if (error)
		return error;
	printf("%s\n", title);
	error = print(files, "notes");
	dendro_files_close(files);
	return error;
}

static int change(dendro_volume *volume, dendro_files *files, dendro_view main, dendro_view *before)
{
	int error = dendro_files_mkdir(files, "notes");
	if (!error)
		error = write_text(files, "notes/today", "written");
	if (!error)
		error = write_text(files, "notes/old", "to be removed");
	if (!error)
		error = dendro_version_snapshot(volume, main, "before", before);
	if (!error)
		error = write_text(files, "notes/today", "written again");
	if (!error)
		error = dendro_files_unlink(files, "notes/old");
	return error ? error : dendro_files_rename(files, "notes/today", "notes/yesterday");
}

static int use(dendro_volume *volume)
{
	dendro_files *files;
	dendro_view main, before;
	int error = dendro_version_main(volume, &main);
	if (!error)
		error = dendro_files_open(volume, main, &files);
	if (error)
		return error;
	error = change(volume, files, main, &before);
	dendro_files_close(files);
	if (!error)
		error = print_version(volume, "now:", main);
	return error ? error : print_version(volume, "before:", before);
}

int main(int argc, char **argv)
{
	dendro_options options = {.label = "notes"};
	dendro_volume *volume;
	int error = dendro_volume_create(argc > 1 ? argv[1] : "files.img", 64 << 20, DENDRO_FILES,
	                                 &options, &volume);
	if (!error) {
		int closed;
		error = use(volume);
		closed = dendro_volume_close(volume);
		error = error ? error : closed;
	}
	if (error)
		fprintf(stderr, "files: %s (%s)\n", dendro_error_message(), strerror(-error));
	return error != 0;
}
