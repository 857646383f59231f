/*
 * quantizer_jobs.cu
 *		When a mirror's codes are made and judged: stages of the jobs that link
 *		rows.
 *
 * Codes are made of all rows before the graph rows that lead to them are
 * written. First the new rows widen the ranges of values; if the scale in use
 * does not hold them any more, offsets and scale are made anew and every row is
 * encoded again, while searches walk the stored rows. After the graph rows a
 * sample of them says whether codes serve (quantizer.h), again whenever the
 * graph has grown by a quarter. A link on the device asks the same of what it
 * has linked so far (link.cu).
 */
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda/jobs/quantizer_jobs.h"
#include "cuda/memory/mirror_seeds.h"

#define BAD_MAX 20u	   /* 1 / this of the sampled rows may be served badly */
#define ROTATED_FROM 64u   /* linked rows before codes are rotated */

static bool
codes_copy_out(CudaEngine *engine, void *to, const void *from, size_t bytes)
{
	return GPU(&engine->device.failure,
			   cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, engine->device.job_stream));
}

/*
 * Widen the ranges by the rows that have no codes yet, and have them brought
 * here.
 */
static bool
send_ranges(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	CudaCodedRows rows = coded_rows(mirror);
	Piece *piece = piece_hold(engine, job);

	if (piece == NULL)
		return false;
	if ((!mirror->has_ranges &&
		 !GPU(&engine->device.failure, quantizer_clear_ranges(&rows, engine->device.job_stream))) ||
		!GPU(&engine->device.failure,
			 codes_measure(&rows, NULL, mirror->coded, mirror->rows - mirror->coded,
						   engine->device.job_stream)) ||
		!codes_copy_out(engine, piece->staged, rows.least,
						2 * (size_t) rows.dims * sizeof(uint32_t)))
		return false;
	mirror->has_ranges = true;
	return piece_send(engine, job, piece);
}

/*
 * Encode what needs it, everything if the scale does not hold the ranges that
 * were brought.
 */
static bool
send_codes(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	Piece *piece = job->held;
	const uint32_t *least = (const uint32_t *) piece->staged;
	const uint32_t *greatest = least + mirror->spec.dims;
	uint32_t first = mirror->coded;
	CudaCodedRows rows;

	mirror->ranges_changed = false;
	if (mirror->code_steps == 0 || !quantizer_hold(least, greatest, mirror->spec.dims,
												   mirror->code_offsets, mirror->code_steps))
	{
		mirror->code_steps =
			quantizer_parameters(least, greatest, mirror->spec.dims, mirror->code_offsets);
		mirror->codes_good = false;
		mirror->judged = first = 0;
		mirror->nentries = 0; /* their pivots are on the old scale */
		memcpy(piece->staged, mirror->code_offsets, mirror->spec.dims * sizeof(float));
	}
	mirror->coded = mirror->code_steps == 0 ? 0 : mirror->rows;
	if (mirror->code_steps == 0)
		return true;
	rows = coded_rows(mirror);
	if (first == 0 && (!batch_streams_wait(engine, mirror) ||
					   !GPU(&engine->device.failure,
							cudaMemcpyAsync(rows.offsets, piece->staged, rows.dims * sizeof(float),
											cudaMemcpyHostToDevice, engine->device.job_stream))))
		return false;
	return GPU(&engine->device.failure, quantizer_encode(&rows, NULL, first, mirror->rows - first,
														 engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Encode the rows that have no codes yet, where the codes are rotated. */
static bool
send_rotated(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	CudaCodedRows rows = coded_rows(mirror);
	Piece *piece = piece_hold(engine, job);
	uint32_t first = mirror->coded;

	if (piece == NULL)
		return false;
	mirror->coded = mirror->rows;
	return GPU(&engine->device.failure, quantizer_encode(&rows, NULL, first, mirror->rows - first,
														 engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

bool
quantizer_stage(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;

	if (job->step == 0)
	{
		if (!mirror->has_code_room || (mirror->coded == mirror->rows && !mirror->ranges_changed))
			return true;
		if (!(mirror->codes_rotated ? send_rotated(engine, job) : send_ranges(engine, job)))
			return false;
		job->step = mirror->codes_rotated ? 2 : 1;
	}
	if (job->in_flight > 0)
		return false;
	if (job->step == 1)
	{
		if (!send_codes(engine, job))
			return false;
		job->step = 2;
	}
	if (job->in_flight > 0)
		return false;
	piece_release(job);
	return true;
}

bool
quantizer_send_judgement(CudaEngine *engine, CudaJob *job, const uint32_t *slots, uint32_t count)
{
	CudaMirror *mirror = job->mirror;
	CudaCodedRows rows = coded_rows(mirror);
	QuantizerVerdict *verdict = (QuantizerVerdict *) (rows.rotation + rows.dims);
	Piece *piece = piece_hold(engine, job);

	return piece != NULL &&
		   GPU(&engine->device.failure,
			   quantizer_judge(&rows, slots, count, verdict, engine->device.job_stream)) &&
		   codes_copy_out(engine, piece->staged, verdict, sizeof(*verdict)) &&
		   piece_send(engine, job, piece);
}

/* Rows of a sample: as many as a piece holds. */
static uint32_t
sampled_rows(const CudaMirror *mirror)
{
	uint32_t most = (uint32_t) (PIECE_BYTES / mirror->stride);

	most = most < INT8_SAMPLE ? most : INT8_SAMPLE;
	return mirror->rows < most ? mirror->rows : most;
}

/* Copy a sample of the rows to the host. */
static bool
quantizer_send_sample(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t count = sampled_rows(mirror);
	CudaCodedRows rows = coded_rows(mirror);
	Piece *piece = piece_hold(engine, job);

	/* a copy of each row by itself would keep this thread for a millisecond */
	return piece != NULL &&
		   GPU(&engine->device.failure,
			   quantizer_sample(&rows, piece->device, count, engine->device.job_stream)) &&
		   codes_copy_out(engine, piece->staged, piece->device, (size_t) count * mirror->stride) &&
		   piece_send(engine, job, piece);
}

/* Grow the memory of scales to all slots. */
static bool
grow_scales(CudaEngine *engine, CudaMirror *mirror)
{
	EngineError ignored;

	return (mirror->scales.base != 0 ||
			range_reserve(&engine->device.arena, &mirror->scales, PART_VECTORS,
						  (uint64_t) mirror->most * sizeof(float2), &ignored) == ENGINE_OK) &&
		   range_grow(&engine->device.arena, &mirror->scales,
					  (uint64_t) mirror->capacity * sizeof(float2), &ignored) == ENGINE_OK;
}

/*
 * Make rotated codes of all rows, with offsets from the sample that was
 * brought.
 */
static bool
send_rotation(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	Piece *piece = job->held;
	uint32_t dims = mirror->spec.dims;
	CudaCodedRows rows = coded_rows(mirror);
	std::vector<uint32_t> rotation(dims);

	rotation_make(ROTATION_SEED, dims, rotation.data());
	quantizer_rotated_offsets(&rows, rotation.data(), piece->staged, sampled_rows(mirror),
							  mirror->code_offsets);
	mirror->codes_rotated = true;
	mirror->code_steps = 1;
	mirror->nentries = 0; /* their pivots are of other codes */
	rows = coded_rows(mirror);
	/* in the device's layout */
	memcpy(piece->staged, mirror->code_offsets, dims * sizeof(float));
	memcpy(piece->staged + dims * sizeof(float), rotation.data(), dims * sizeof(uint32_t));
	return batch_streams_wait(engine, mirror) &&
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync(rows.offsets, piece->staged,
							   dims * (sizeof(float) + sizeof(uint32_t)), cudaMemcpyHostToDevice,
							   engine->device.job_stream)) &&
		   GPU(&engine->device.failure,
			   quantizer_encode(&rows, NULL, 0, mirror->rows, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

bool
quantizer_verdict(CudaJob *job)
{
	QuantizerVerdict verdict;

	memcpy(&verdict, job->held->staged, sizeof(verdict));
	piece_release(job);
	return verdict.good > 0 && verdict.bad <= (verdict.good + verdict.bad) / BAD_MAX;
}

/*
 * Whether codes may be made anew, rotated, for good: the verdict against them
 * must be one of many rows. Of a mirror that is being loaded few are linked.
 */
static bool
may_rotate_now(const CudaMirror *mirror)
{
	return may_be_rotated(mirror->spec.dims, mirror->spec.metric) &&
		   mirror->linked >= ROTATED_FROM && mirror->linked >= mirror->rows / 2;
}

/*
 * Judge codes; if they are bad, take a sample (steps 2 and 3), make rotated
 * ones (3, 5) and judge these (5, 4).
 */
bool
quantizer_judge_stage(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;

	if (job->step == 0)
	{
		if (!mirror->has_code_room || mirror->code_steps == 0 || mirror->coded != mirror->rows ||
			mirror->linked < mirror->judged + mirror->judged / 4 + 1)
			return true;
		if (job->in_flight > 0 || !quantizer_send_judgement(engine, job, NULL, mirror->rows))
			return false;
		job->step = 1;
	}
	if (job->in_flight > 0)
		return false;
	if (job->step == 1 || job->step == 4)
	{
		mirror->codes_good = quantizer_verdict(job);
		mirror->judged = mirror->linked;
		mirror->overwritten = 0;
		if (mirror->codes_good || job->step == 4 ||
			!may_rotate_now(mirror) || !grow_scales(engine, mirror))
			return true;
		job->step = 2;
	}
	if (job->step == 2)
	{
		if (!quantizer_send_sample(engine, job))
			return false;
		job->step = 3;
		return false;
	}
	if (job->step == 3)
	{
		if (!send_rotation(engine, job))
			return false;
		job->step = 5;
		return false;
	}
	/* 5: codes are there */
	piece_release(job);
	if (!quantizer_send_judgement(engine, job, NULL, mirror->rows))
		return false;
	job->step = 4;
	return false;
}

bool
quantizer_overwrite(CudaEngine *engine, CudaMirror *mirror, const uint32_t *slots, uint32_t count)
{
	CudaCodedRows rows;

	if (!mirror->has_code_room || mirror->code_steps == 0)
		return true;
	rows = coded_rows(mirror);
	mirror->ranges_changed = !mirror->codes_rotated;
	/* where offsets are to be is not known of rotated codes: they are judged */
	mirror->overwritten += count;
	if (mirror->codes_rotated && mirror->overwritten > mirror->judged / 4)
		mirror->judged = 0;
	return (mirror->codes_rotated ||
			GPU(&engine->device.failure,
				codes_measure(&rows, slots, 0, count, engine->device.job_stream))) &&
		   GPU(&engine->device.failure,
			   quantizer_encode(&rows, slots, 0, count, engine->device.job_stream));
}
