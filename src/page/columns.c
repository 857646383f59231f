/*
 * columns.c
 *		Columns that an index includes: which can be, their table on the
 *		metapage, values as they are stored.
 */
#include "postgres.h"

#include "page/columns.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Integers of a double that are not rounded are below this. */
#define WHOLE_DOUBLES	9007199254740992.0

StaticAssertDecl(sizeof(ColumnTable) + GPUANN_META_COLUMNS < GPUANN_PAYLOAD,
				 "the table of columns fits on the metapage");
StaticAssertDecl(offsetof(ColumnRecord, values) == 8, "a record has no padding");

/* Tables seen by this process, one for each kind of index that it has met. */
typedef struct InternedTable
{
	struct InternedTable *next;
	ColumnTable table;
} InternedTable;

static InternedTable *interned_tables = NULL;

/* Whether arrays with elements of a type are stored as sets of tags. */
static bool
is_tag_type(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case TEXTOID:
		case VARCHAROID:
		case UUIDOID:
			return true;
		default:
			return false;
	}
}

FilterKind
column_kind(Oid type)
{
	Oid			element;

	/* Of what is no type getBaseType() says that it is damage. */
	if (get_typtype(type) == TYPTYPE_DOMAIN)
		type = getBaseType(type);
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
			return FILTER_U8;
		case INT2OID:
			return FILTER_I16;
		case INT4OID:
		case DATEOID:
			return FILTER_I32;
		case INT8OID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return FILTER_I64;
		case OIDOID:
			return FILTER_U32;
		case FLOAT4OID:
			return FILTER_F32;
		case FLOAT8OID:
			return FILTER_F64;
		case UUIDOID:
			return FILTER_BYTES16;
		case NUMERICOID:
			return FILTER_BOUNDS;
		case TEXTOID:
		case VARCHAROID:
			return FILTER_TEXT;
		default:
			if (type_is_enum(type))
				return FILTER_U32;
			/* int2vector has elements, too, and is no array of them. */
			element = get_element_type(type);
			return is_tag_type(element) && get_array_type(element) == type ? FILTER_TAGS
																		   : FILTER_NO_KIND;
	}
}

/*
 * Refuse a column of a type that cannot be included. Its name may be NULL.
 */
static void
check_type(Oid type, const char *name)
{
	const char *of = name != NULL ? psprintf("column \"%s\" of ", name) : "";

	if (column_kind(type) == FILTER_NO_KIND)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%stype %s cannot be included in a gpuann index", of,
						format_type_extended(type, -1, FORMAT_TYPE_ALLOW_INVALID)),
				 errhint("Columns of type boolean, \"char\", smallint, integer, bigint, oid, real, "
						 "double precision, numeric, date, time, timestamp, timestamp with time "
						 "zone, uuid, text, character varying and of enum types can be, and arrays "
						 "of smallint, integer, bigint, uuid, text and character varying.")));
}

static void
check_count(int count)
{
	if (count > GPUANN_MAX_COLUMNS)
		ereport(ERROR, (errcode(ERRCODE_TOO_MANY_COLUMNS),
						errmsg("a gpuann index cannot include more than %d columns",
							   GPUANN_MAX_COLUMNS)));
}

/*
 * Set where columns are in a record, by their kinds. The length is not checked.
 */
static void
lay_out(ColumnTable *table)
{
	uint32		end = offsetof(ColumnRecord, values);

	for (uint32 i = 0; i < table->count; i++)
	{
		table->columns[i].offset = (uint16) end;
		end += filter_width((FilterKind) table->columns[i].kind);
	}
	table->row_bytes = table->count > 0 ? TYPEALIGN(4, end) : 0;
	StaticAssertStmt(offsetof(ColumnRecord, nulls) == FILTER_RECORD_NULLS &&
					 offsetof(ColumnRecord, values) == FILTER_RECORD_VALUES,
					 "engines read records as they are on pages");
}

/*
 * Make a table of columns of these types, whose kinds are known to be some.
 */
static void
make_table(ColumnTable *table, const Oid *types, int count)
{
	memset(table, 0, sizeof(*table));
	table->count = (uint32) count;
	for (int i = 0; i < count; i++)
		table->columns[i].kind = column_kind(types[i]);
	lay_out(table);
	if (table->row_bytes > GPUANN_MAX_RECORD_BYTES)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the columns that a gpuann index includes cannot have more than "
							   "%d bytes a row",
							   GPUANN_MAX_COLUMN_BYTES)));
}

void
column_table_plan(Relation index, ColumnTable *table)
{
	const Form_pg_index form = index->rd_index;
	Oid			types[GPUANN_MAX_COLUMNS];
	int			keys = form->indnkeyatts;
	int			count = form->indnatts - keys;

	check_count(count);
	for (int i = 0; i < count; i++)
	{
		types[i] = TupleDescAttr(RelationGetDescr(index), keys + i)->atttypid;
		check_type(types[i], get_attname(form->indrelid, form->indkey.values[keys + i], false));
	}
	make_table(table, types, count);
}

void
column_table_of(const Oid *types, int count, ColumnTable *table)
{
	check_count(count);
	for (int i = 0; i < count; i++)
		check_type(types[i], NULL);
	make_table(table, types, count);
}

void
column_table_write(Page page, const ColumnTable *table)
{
	page_reach(page, GPUANN_META_COLUMNS + sizeof(ColumnTable));
	*ColumnTableOf(page) = *table;
}

/*
 * Whether a table is one that lay_out() makes, and that of the format.
 */
static bool
table_is_right(const IndexFormat *format, const ColumnTable *table)
{
	ColumnTable made = *table;

	if (table->count < 1 || table->count > GPUANN_MAX_COLUMNS)
		return false;
	for (uint32 i = 0; i < table->count; i++)
		if (filter_width((FilterKind) table->columns[i].kind) == 0)
			return false;
	lay_out(&made);
	return memcmp(&made, table, sizeof(made)) == 0 && made.row_bytes == format->column_bytes;
}

/*
 * Cache a table.
 */
static const ColumnTable *
intern_table(Relation index, const ColumnTable *table)
{
	InternedTable *entry = interned_tables;

	while (entry != NULL && memcmp(&entry->table, table, sizeof(*table)) != 0)
		entry = entry->next;
	if (entry == NULL)
	{
		entry = MemoryContextAllocZero(TopMemoryContext, sizeof(*entry));
		entry->table = *table;
		entry->next = interned_tables;
		interned_tables = entry;
	}
	index_cache_columns(index, &entry->table);
	return &entry->table;
}

const ColumnTable *
index_columns(Relation index)
{
	const ColumnTable *cached = index_cached_columns(index);
	ColumnTable table;
	Buffer		buffer;

	if (cached != NULL)
		return cached;
	buffer = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_SHARE, false);
	table = *ColumnTableOf(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	if (!table_is_right(index_format(index), &table))
		report_corrupt(index, GPUANN_META_BLOCK, "the table of columns is not consistent");
	return intern_table(index, &table);
}

const ColumnTable *
peek_columns(Relation index)
{
	const IndexFormat *format = peek_format(index);
	ColumnTable table;
	Buffer		buffer;

	if (format == NULL || format->column_bytes == 0)
		return NULL;
	if (index_cached_columns(index) != NULL)
		return index_cached_columns(index);
	buffer = peek_page(index, RelationGetNumberOfBlocks(index), GPUANN_META_BLOCK, PAGE_META);
	if (!BufferIsValid(buffer))
		return NULL;
	table = *ColumnTableOf(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return table_is_right(format, &table) ? intern_table(index, &table) : NULL;
}

void
read_columns(Relation index, const IndexFormat *format, uint32 first, uint32 count, void *records)
{
	char	   *out = records;

	for (uint32 end = first + count, next; first < end; first = next)
	{
		Buffer		buffer =
			read_hinted_page(index, column_block(format, first), PAGE_COLUMN, false);
		Size		bytes;

		next = Min(end, first - column_index(format, first) + columns_per_page(format));
		bytes = (Size) (next - first) * format->column_bytes;
		memcpy(out, column_record(format, BufferGetPage(buffer), first), bytes);
		UnlockReleaseBuffer(buffer);
		out += bytes;
	}
}

void
numeric_bounds(Datum value, double bounds[2])
{
	double		nearest = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
	bool		is_real = isnan(nearest) || numeric_is_inf(DatumGetNumeric(value));

	/* A conversion back would round it, unless it is a small integer. */
	if (!is_real && fabs(nearest) < WHOLE_DOUBLES && nearest == floor(nearest))
		is_real = DatumGetBool(DirectFunctionCall2(
			numeric_eq, value, DirectFunctionCall1(int8_numeric, Int64GetDatum((int64) nearest))));
	bounds[0] = is_real ? nearest : nextafter(nearest, -INFINITY);
	bounds[1] = is_real ? nearest : nextafter(nearest, INFINITY);
}

void
text_bytes(Datum value, unsigned char to[16])
{
	const text *detoasted = DatumGetTextPP(value);
	const char *bytes = VARDATA_ANY(detoasted);
	int			length = (int) VARSIZE_ANY_EXHDR(detoasted);

	filter_text(bytes, (size_t) length,
				length <= FILTER_TEXT_WHOLE
					? 0
					: hash_bytes_extended((const unsigned char *) bytes, length, 0),
				to);
}

uint32
tag_number(Oid type, Datum value)
{
	const text *detoasted;
	int64		number;

	switch (type)
	{
		case INT2OID:
			return (uint32) DatumGetInt16(value);
		case INT4OID:
			return (uint32) DatumGetInt32(value);
		case INT8OID:
			number = DatumGetInt64(value);
			return hash_bytes((const unsigned char *) &number, sizeof(number));
		case UUIDOID:
			return hash_bytes(DatumGetUUIDP(value)->data, UUID_LEN);
		default:
			detoasted = DatumGetTextPP(value);
			return hash_bytes((const unsigned char *) VARDATA_ANY(detoasted),
							  (int) VARSIZE_ANY_EXHDR(detoasted));
	}
}

/*
 * Write an array as a set.
 */
static void
store_tags(Datum value, unsigned char *to)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	Oid			type = ARR_ELEMTYPE(array);
	bool		has_null = false;
	uint32	   *tags;
	uint32		count = 0;
	int16		length;
	bool		by_value;
	char		align;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, type, length, by_value, align, &elements, &nulls, &n);
	tags = palloc(sizeof(uint32) * (Size) Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			has_null = true;
		else
			tags[count++] = tag_number(type, elements[i]);
	}
	filter_tags(tags, count, has_null, to);
	pfree(tags);
}

/*
 * Write a value as its kind is stored.
 */
static void
store_value(FilterKind kind, Datum value, char *to)
{
	union
	{
		uint8		u8;
		int16		i16;
		int32		i32;
		int64		i64;
		uint32		u32;
		float4		f32;
		float8		f64;
		double		bounds[2];
	}			number;

	switch (kind)
	{
		case FILTER_U8:
			number.u8 = DatumGetUInt8(value);
			break;
		case FILTER_I16:
			number.i16 = DatumGetInt16(value);
			break;
		case FILTER_I32:
			number.i32 = DatumGetInt32(value);
			break;
		case FILTER_I64:
			number.i64 = DatumGetInt64(value);
			break;
		case FILTER_U32:
			number.u32 = DatumGetUInt32(value);
			break;
		case FILTER_F32:
			number.f32 = DatumGetFloat4(value);
			break;
		case FILTER_F64:
			number.f64 = DatumGetFloat8(value);
			break;
		case FILTER_BOUNDS:
			numeric_bounds(value, number.bounds);
			break;
		case FILTER_TEXT:
			text_bytes(value, (unsigned char *) to);
			return;
		case FILTER_TAGS:
			store_tags(value, (unsigned char *) to);
			return;
		default:
			memcpy(to, DatumGetUUIDP(value)->data, UUID_LEN);
			return;
	}
	memcpy(to, &number, filter_width(kind));
}

void
column_record_form(Relation index, const ColumnTable *table, const Datum *values,
				   const bool *isnull, const ItemPointerData *tid, ColumnRecord *record)
{
	int			keys = IndexRelationGetNumberOfKeyAttributes(index);

	memset(record, 0, table->row_bytes);
	record->tid = *tid;
	for (uint32 i = 0; i < table->count; i++)
	{
		if (isnull[keys + i])
			record->nulls |= (uint16) (1 << i);
		else
			store_value((FilterKind) table->columns[i].kind, values[keys + i],
						(char *) record + table->columns[i].offset);
	}
}
