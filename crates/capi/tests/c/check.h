/* What the test programs share. */
#include <dendro.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless `call` returns `wanted`. */
#define RETURNS(wanted, call) \
	do { \
		long long wanted_ = (wanted), returned_ = (call); \
		if (wanted_ != returned_) { \
			fprintf(stderr, "%s:%d: %s returned %lld, not %lld: %s\n", __FILE__, __LINE__, \
			        #call, returned_, wanted_, dendro_error_message()); \
			exit(1); \
		} \
	} while (0)
#define CHECK(condition) RETURNS(1, !!(condition))
