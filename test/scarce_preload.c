/*
 * scarce_preload.c
 *		Preloaded (LD_PRELOAD), makes memfd_create fail for want of descriptors
 *		as long as the file that GPUANN_SCARCE names exists.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*MemfdCreate) (const char *name, unsigned flags);

extern int	memfd_create(const char *name, unsigned flags);

/* Stands before the C library's function of this name. */
__attribute__((visibility("default"))) int
memfd_create(const char *name, unsigned flags)
{
	const char *path = getenv("GPUANN_SCARCE");
	void	   *symbol = dlsym(RTLD_NEXT, "memfd_create");
	MemfdCreate real;

	if (symbol == NULL || (path != NULL && access(path, F_OK) == 0))
	{
		errno = EMFILE;
		return -1;
	}
	memcpy(&real, &symbol, sizeof(real));
	return real(name, flags);
}
