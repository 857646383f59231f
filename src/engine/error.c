/*
 * error.c
 *		Engine errors: a status code, and a message formatted where the error is
 *		detected.
 */
#include <stdarg.h>
#include <stdio.h>

#include "engine/engine.h"

EngineStatus
engine_error(EngineError *error, EngineStatus status, const char *format,...)
{
	va_list		args;

	if (error == NULL)
		return status;
	error->status = status;
	va_start(args, format);
	(void) vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return status;
}
