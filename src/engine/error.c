/*
 * error.c
 *		Engine errors: a code, and a text made where the fact is known.
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
