/*
 * random_columns.h
 *		Random tables of columns and programs over them, and a model of these in
 *		three-valued logic, for tests of filters.
 */
#ifndef GPUANN_RANDOM_COLUMNS_H
#define GPUANN_RANDOM_COLUMNS_H

#include "engine/filter.h"

#define TABLE_REALS		12
#define PROGRAM_STEPS	64
#define PROGRAM_LIST	6		/* values of a FILTER_IN, at most */

typedef enum Truth
{
	IS_FALSE,
	IS_NULL,
	IS_TRUE
} Truth;

/* A table, once as it is stored and once as the model knows it. */
typedef struct Table
{
	FilterKind	kinds[FILTER_MAX_COLUMNS];
	uint32_t	columns;
	uint32_t	rows;
	uint32_t	record_bytes;
	unsigned char *records;		/* room for rows of any kinds */
	bool		(*null)[FILTER_MAX_COLUMNS];
	double		(*value)[FILTER_MAX_COLUMNS];
} Table;

/* A program, and its constants as the model knows them. */
typedef struct Made
{
	FilterStep	steps[PROGRAM_STEPS];
	FilterValue values[PROGRAM_STEPS * PROGRAM_LIST];
	double		constants[PROGRAM_STEPS * PROGRAM_LIST];
	uint32_t	nsteps;
	uint32_t	nvalues;
	uint32_t	depth;
} Made;

/* Values that matter, of floats. */
extern const double table_reals[TABLE_REALS];

/*
 * A table for this many rows, of memory that `allocate` returns zeroed; `below`
 * returns a random number below a limit, here and for what follows.
 */
extern Table *table_create(uint32_t rows, void *(*allocate) (size_t bytes),
						   uint32_t (*below) (uint32_t limit));

/* Other columns, and other values of all rows. */
extern void table_make(Table *table);
/* Other values of a row, of the columns that there are. */
extern void table_make_row(Table *table, uint32_t row);
extern void program_make(const Table *table, Made *made);
extern FilterProgram program_of(const Made *made);

/* PostgreSQL's order of floats. */
extern int	order_of(double a, double b);

/* Whether a row passes a program, by the model. */
extern Truth truth_of(const Table *table, const Made *made, uint32_t row);

#endif							/* GPUANN_RANDOM_COLUMNS_H */
