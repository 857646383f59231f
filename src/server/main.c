/*
 * main.c
 *		Command line of gpuann-server; see protocol.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

/* Parse a decimal number of at most `most`, which must be the whole text. */
static bool
parse_number(const char *text, uint64_t most, uint64_t *number)
{
	char	   *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *number <= most;
}

/* Set one option. Returns false if name or value is invalid. */
static bool
parse_option(ServerOptions *options, const char *name, const char *value)
{
	uint64_t	number;

	if (strcmp(name, "--lock") == 0)
		options->lock_path = value;
	else if (strcmp(name, "--engine-library") == 0)
		options->engine_library = value;
	else if (strcmp(name, "--engine") == 0)
	{
		options->engine = value;
		return strcmp(value, "auto") == 0 || strcmp(value, "cuda") == 0 ||
			   strcmp(value, "cpu") == 0;
	}
	else if (strcmp(name, "--memory-limit") == 0)
		return parse_number(value, UINT64_MAX, &options->memory_limit);
	else if (strcmp(name, "--host-rows-limit") == 0)
		return parse_number(value, UINT64_MAX, &options->host_rows_limit);
	else if (strcmp(name, "--hang-ms") == 0 && parse_number(value, INT_MAX, &number))
		options->hang_ms = (int) number;
	else if (strcmp(name, "--area-fd") == 0 && parse_number(value, INT_MAX, &number))
		options->area_fd = (int) number;
	else if (strcmp(name, "--death-fd") == 0 && parse_number(value, INT_MAX, &number))
		options->death_fd = (int) number;
	else
		return false;
	return true;
}

int
main(int argc, char **argv)
{
	ServerOptions options = {.area_fd = -1, .death_fd = -1, .engine = "auto"};

	for (int i = 1; i < argc; i += 2)
	{
		if (i + 1 >= argc || !parse_option(&options, argv[i], argv[i + 1]))
		{
			process_log("FATAL", "invalid option \"%.200s\"", argv[i]);
			return SERVER_EXIT_REFUSED;
		}
	}
	if (options.area_fd < 0 || options.death_fd < 0 || options.lock_path == NULL)
	{
		process_log("FATAL",
					"--area-fd, --death-fd and --lock are needed: %s is started by PostgreSQL",
					SERVER_PROGRAM);
		return SERVER_EXIT_REFUSED;
	}
	return server_main(&options);
}
