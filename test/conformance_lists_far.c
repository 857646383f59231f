#include "conformance_lists.h"
const Case list_far_cases[] = {
	{NULL, NULL, false}};
