/*
 * error.c
 *		Engine errors: a status code, and a message formatted where the error is
 *		detected.
 */
#include <stdarg.h>
#include <stdio.h>

#include "engine/engine.h"

/* Fill *error (which may be NULL). */
void
engine_error(EngineError *error, EngineStatus status, const char *format,...)
{
	va_list		args;

	if (error == NULL)
		return;
	error->status = status;
	va_start(args, format);
	(void) vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
}
