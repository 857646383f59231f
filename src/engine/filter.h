/*
 * filter.h
 *		Conditions on columns of fixed width: a typed program, evaluated for
 *		many rows at once.
 *
 * A program is a list of steps in postfix order. Each step leaves two bits for
 * a row: whether the condition may pass, and whether it may fail. A condition
 * that is NULL does neither, one whose value the stored form of a column leaves
 * open does both. AND and OR combine the bits of either side, NOT exchanges
 * them; so what a program excludes surely does not pass, and with
 * FILTER_SURELY, where an open condition counts as neither, what it lets pass
 * surely does.
 *
 * Numbers are compared as 64-bit integers; floats are mapped to integers that
 * have PostgreSQL's order: -0 equals 0, NaN equals NaN and comes last.
 */
#ifndef GPUANN_FILTER_H
#define GPUANN_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILTER_MAX_COLUMNS	16
#define FILTER_MAX_DEPTH	32		/* results that wait for a further step */

/* How a column is stored. Kinds are on metapages: numbers must not change. */
typedef enum FilterKind
{
	FILTER_NO_KIND,
	FILTER_U8 = 1,
	FILTER_I16 = 2,
	FILTER_I32 = 3,
	FILTER_I64 = 4,
	FILTER_U32 = 5,
	FILTER_F32 = 6,
	FILTER_F64 = 7,
	FILTER_BYTES16 = 8,			/* compared byte by byte */
	FILTER_BOUNDS = 9,			/* two doubles that the value lies between, equal if it is one */
	FILTER_TEXT = 10,			/* as filter_text() has it: equal or not */
	FILTER_TAGS = 11,			/* a set, as filter_tags() has it */
	FILTER_KINDS
} FilterKind;

/* Bytes of a value of a kind; 0: there is no such kind. */
extern uint32_t filter_width(FilterKind kind);

typedef enum FilterOp
{
	/* a column, compared with the step's value */
	FILTER_LT,
	FILTER_LE,
	FILTER_EQ,
	FILTER_NE,
	FILTER_GE,
	FILTER_GT,
	FILTER_IN,					/* equal to one of its values, which are sorted */
	FILTER_ANY_TAG,				/* a set that has one of its values, or ... */
	FILTER_ALL_TAGS,			/* ... all of them */
	FILTER_IS_NULL,
	/* without a column */
	FILTER_TRUE,
	FILTER_FALSE,
	FILTER_NULL,
	FILTER_OPEN,				/* may pass and may fail: what no step expresses */
	/* of the results of steps before */
	FILTER_AND,
	FILTER_OR,
	FILTER_NOT,
	FILTER_OPS
} FilterOp;

/* A value that a column is compared with. */
typedef struct FilterValue
{
	union
	{
		struct
		{
			int64_t		low;	/* a number, or the lower bound of it */
			int64_t		high;	/* the same number, or the upper bound */
		};
		unsigned char bytes[16];
	};
} FilterValue;

#define FILTER_TEXT_WHOLE	15		/* bytes of a text that is stored whole */
#define FILTER_TAGS_WHOLE	7		/* elements of a set that are stored one by one */

/* Whether a step compares a column with values. */
static inline bool
filter_has_values(FilterOp op)
{
	return op <= FILTER_ALL_TAGS;
}

typedef struct FilterStep
{
	uint8_t		op;				/* FilterOp */
	uint8_t		column;
	bool		has_null;		/* FILTER_IN: so has the list */
	uint32_t	value;			/* the first one, in the program's values */
	uint32_t	count;			/* FILTER_IN, FILTER_ANY_TAG, FILTER_ALL_TAGS: how many */
} FilterStep;

/* A program. Its arrays belong to whoever made it. */
typedef struct FilterProgram
{
	const FilterStep *steps;
	const FilterValue *values;
	uint32_t	nsteps;
	uint32_t	nvalues;
} FilterProgram;

/* The columns of some rows, wherever they are stored. */
typedef struct FilterRows
{
	uint32_t	count;
	uint32_t	columns;
	const void *nulls;			/* of the first row: uint16_t, bit i set: column i is NULL */
	uint32_t	nulls_stride;	/* bytes from one row to the next, as those of values */
	struct
	{
		FilterKind	kind;
		const void *values;		/* of the first row, in any alignment */
		uint32_t	stride;
	}			column[FILTER_MAX_COLUMNS];
} FilterRows;

/*
 * The columns of a row as index pages and jobs of an engine have them, in any
 * alignment: 6 bytes that no program reads (the place of the row in its table),
 * then which columns are NULL (uint16_t, bit i: column i), then the values, in
 * order, without padding. Records are a multiple of 4 bytes long.
 */
#define FILTER_RECORD_NULLS	6		/* offset */
#define FILTER_RECORD_VALUES 8

/* Bytes of a record with columns of these kinds; 0: one of them is none. */
extern uint32_t filter_record_bytes(const FilterKind *kinds, uint32_t columns);

/* The columns of `count` records one after another, for filter_run(). */
extern void filter_record_rows(const FilterKind *kinds, uint32_t columns, const void *records,
							   uint32_t count, FilterRows *rows);

/* Which rows are counted as passing where stored columns leave that open. */
typedef enum FilterMode
{
	FILTER_MAY,
	FILTER_SURELY
} FilterMode;

/* A double as the number that it is compared as. */
extern int64_t filter_real(double value);

/*
 * A text as it is stored and compared: with its length in front, or, if it is
 * longer than FILTER_TEXT_WHOLE, its first bytes and a hash, by which two texts
 * are surely different or left open.
 */
extern void filter_text(const char *text, size_t bytes, uint64_t hash, unsigned char to[16]);

/*
 * A set as it is stored, of numbers that elements have in common by chance
 * only: one by one, or, of more than FILTER_TAGS_WHOLE, as a signature. So an
 * element surely is not in it, or is left open. has_null: it has an element
 * that is NULL, too. Sorts the numbers.
 */
extern void filter_tags(uint32_t *tags, uint32_t count, bool has_null, unsigned char to[32]);

/* The values of a kind in order, for FILTER_IN. */
extern void filter_sort(FilterKind kind, FilterValue *values, uint32_t count);

/*
 * What is wrong with a program for columns of these kinds, or NULL. Only a
 * program without a fault may be run.
 */
extern const char *filter_fault(const FilterProgram *program, const FilterKind *kinds,
								uint32_t columns);

/*
 * Which rows pass: row i is bit i % 64 of passes[i / 64]; bits beyond the rows
 * are 0.
 */
extern void filter_run(const FilterProgram *program, const FilterRows *rows, FilterMode mode,
					   uint64_t *passes);

#endif							/* GPUANN_FILTER_H */
