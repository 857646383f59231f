/*
 * streams.cpp
 *		Streams and events: a device of one thread, which executes the first
 *		item of any stream, chosen at random.
 *
 * Nothing has been executed when a call returns, so host code must wait here
 * for whatever it must wait for on a device. Memory named by a copy is read
 * when the copy is executed.
 *
 * GPUANN_EMULATE_FAILURE=n in the environment makes the device fail after n
 * work items: as on a real one, the error is sticky, calls return it, and no
 * host function is called any more. The device recovers when all its streams
 * are destroyed.
 *
 * emulate_stall() makes it hang: nothing completes any more, and no call
 * reports it. It recovers when all its streams are destroyed, which then waits
 * for nothing.
 *
 * emulate_pageable counts copies from or to pageable memory: a real driver
 * stages these, and makes the caller wait.
 *
 * GPUANN_EMULATE_SCARCE=n makes one copy, memset or launch, after n others,
 * fail for lack of memory: it is not executed, and the error is returned by
 * cudaGetLastError() as on a device. Up to it the device is as late as it can
 * be: it executes only when the host waits or asks for the end of something, or
 * PAUSE later. So memory that the host frees without waiting is still in use.
 *
 * GPUANN_EMULATE_LATE=1 makes the device late all the time: it begins when the
 * host has launched nothing for NAP, or waits, and of several streams it
 * executes the item that was launched last. So what one stream launches reaches
 * the device before what another launched earlier, unless it waits for that.
 */
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

/*
 * Number of times that an event was recorded, and number of these records that
 * the device has reached.
 */
struct EventState
{
	uint64_t recorded;
	uint64_t reached;
};

struct EmulatedEvent
{
	std::shared_ptr<EventState> state;
};

/* A work item of a stream. */
struct Work
{
	std::function<void()> act;
	std::shared_ptr<EventState> event;
	uint64_t record;
	bool waits; /* it waits for the event's record; if not, it is that record */
	uint64_t launch = 0; /* number of its launch */
};

#define PAUSE std::chrono::seconds(1)
#define NAP std::chrono::milliseconds(3)

struct EmulatedStream
{
	std::deque<Work> queue;
	bool running;
};

/* all protected by device_lock */
static std::mutex device_lock;
static std::condition_variable device_changed;
static std::vector<EmulatedStream *> streams;
static std::thread device_thread;
static bool stopping;
static bool failed;
static bool stalled;
static long until_failure; /* work items; below 0: no failure */
static bool paused;		   /* until the host waits or asks */
static bool late;		   /* GPUANN_EMULATE_LATE; what is launched last is executed first */
static bool napping;	   /* the host launches, and waits for nothing */
static uint64_t launches;
static uint64_t chance = 88172645463325252u;

static bool
is_ready(const EmulatedStream *stream)
{
	if (stream->queue.empty())
		return false;

	const Work &work = stream->queue.front();

	return !work.waits || work.event->reached >= work.record;
}

/*
 * A stream whose first item can be executed, or NULL: chosen at random, or of a
 * late device the one that was launched last.
 */
static EmulatedStream *
choose_stream()
{
	std::vector<EmulatedStream *> ready;
	EmulatedStream *newest = NULL;

	if (failed || stalled || paused || napping)
		return NULL;
	for (EmulatedStream *stream : streams)
		if (is_ready(stream))
		{
			ready.push_back(stream);
			if (newest == NULL || stream->queue.front().launch > newest->queue.front().launch)
				newest = stream;
		}
	if (late)
		return newest;
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return ready.empty() ? NULL : ready[chance % ready.size()];
}

static void
device_main()
{
	std::unique_lock<std::mutex> lock(device_lock);

	while (!stopping)
	{
		EmulatedStream *stream = choose_stream();

		if (stream == NULL)
		{
			uint64_t before = launches;

			if (late)
			{
				device_changed.wait_for(lock, NAP);
				napping = napping && launches != before;
			}
			else if (!paused)
				device_changed.wait(lock);
			else if (device_changed.wait_for(lock, PAUSE) == std::cv_status::timeout)
				paused = false;
			continue;
		}
		if (until_failure == 0)
		{
			failed = true;
			device_changed.notify_all();
			continue;
		}
		until_failure -= until_failure > 0;

		Work work = std::move(stream->queue.front());

		stream->queue.pop_front();
		stream->running = true;
		if (work.act)
		{
			lock.unlock();
			work.act();
			lock.lock();
		}
		if (work.event != NULL && !work.waits)
			work.event->reached = work.record;
		stream->running = false;
		device_changed.notify_all();
	}
}

/* The host launches; nothing is executed yet. */
static void
start_pause()
{
	std::lock_guard<std::mutex> lock(device_lock);

	paused = true;
}

/* The host waits or asks: the device goes on. With the lock held. */
static void
end_pause()
{
	paused = false;
	device_changed.notify_all();
}

static cudaError_t
state_of_device()
{
	return failed ? cudaErrorUnknown : cudaSuccess;
}

/* of the calling thread: only one thread can have a call refused */
static cudaError_t last_error = cudaSuccess;

/* Whether this call is the one that fails for lack of memory. */
static bool
finds_no_memory()
{
	const char *left = getenv("GPUANN_EMULATE_SCARCE");
	long n = left != NULL ? atol(left) : 1;

	if (left == NULL)
		return false;
	start_pause();
	if (n > 0)
	{
		setenv("GPUANN_EMULATE_SCARCE", std::to_string(n - 1).c_str(), 1);
		return false;
	}
	unsetenv("GPUANN_EMULATE_SCARCE");
	last_error = cudaErrorMemoryAllocation;
	return true;
}

static cudaError_t
add_work(EmulatedStream *stream, Work work)
{
	std::lock_guard<std::mutex> lock(device_lock);

	work.launch = ++launches;
	napping = late;
	if (!failed)
		stream->queue.push_back(std::move(work));
	if (!late)
		device_changed.notify_all();
	return state_of_device();
}

void
emulate_enqueue(cudaStream_t stream, std::function<void()> act)
{
	if (!finds_no_memory())
		add_work(stream, {std::move(act), NULL, 0, false});
}

std::atomic<unsigned long> emulate_pageable;

void
emulate_stall()
{
	std::lock_guard<std::mutex> lock(device_lock);

	stalled = true;
}

cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
	emulate_pageable += emulate_is_pageable(to) || emulate_is_pageable(from);
	return finds_no_memory()
			   ? last_error
			   : add_work(stream, {[=] { memcpy(to, from, bytes); }, NULL, 0, false});
}

cudaError_t
cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	return finds_no_memory()
			   ? last_error
			   : add_work(stream, {[=] { memset(to, value, bytes); }, NULL, 0, false});
}

cudaError_t
cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
	return add_work(stream, {[=] { function(arg); }, NULL, 0, false});
}

cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int, int)
{
	std::lock_guard<std::mutex> lock(device_lock);
	const char *failure = getenv("GPUANN_EMULATE_FAILURE");

	*stream = new EmulatedStream();
	streams.push_back(*stream);
	if (streams.size() == 1)
	{
		stopping = failed = stalled = paused = napping = false;
		late = getenv("GPUANN_EMULATE_LATE") != NULL;
		until_failure = failure != NULL ? atol(failure) : -1;
		device_thread = std::thread(device_main);
	}
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

/* Wait until a stream, or all of them (NULL), are empty. */
static cudaError_t
wait_for(const EmulatedStream *only)
{
	std::unique_lock<std::mutex> lock(device_lock);
	auto is_busy = [&] {
		for (const EmulatedStream *stream : streams)
			if ((only == NULL || stream == only) &&
				(stream->running || (!failed && !stalled && !stream->queue.empty())))
				return true;
		return false;
	};

	end_pause();
	napping = false;
	while (is_busy())
		device_changed.wait(lock);
	return state_of_device();
}

cudaError_t
cudaStreamQuery(cudaStream_t stream)
{
	std::lock_guard<std::mutex> lock(device_lock);

	end_pause();
	if (failed)
		return cudaErrorUnknown;
	return stream->running || !stream->queue.empty() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
	return wait_for(stream);
}

cudaError_t
cudaDeviceSynchronize()
{
	return wait_for(NULL);
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t error;
	bool last;

	{
		std::lock_guard<std::mutex> lock(device_lock);

		if (!failed && !stalled && (stream->running || !stream->queue.empty()))
		{
			fprintf(stderr, "emulation: a stream is destroyed, on which a device does not wait\n");
			abort();
		}
	}
	error = wait_for(stream);
	{
		std::lock_guard<std::mutex> lock(device_lock);

		for (size_t i = 0; i < streams.size(); i++)
			if (streams[i] == stream)
				streams.erase(streams.begin() + (long) i--);
		last = stopping = streams.empty();
		device_changed.notify_all();
	}
	if (last)
		device_thread.join();
	delete stream;
	return error;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
	uint64_t record;

	{
		std::lock_guard<std::mutex> lock(device_lock);

		record = event->state->recorded;
	}
	return add_work(stream, {nullptr, event->state, record, true});
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int)
{
	*event = new EmulatedEvent{std::make_shared<EventState>(EventState{0, 0})};
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	uint64_t record;

	{
		std::lock_guard<std::mutex> lock(device_lock);

		record = ++event->state->recorded;
	}
	return add_work(stream, {nullptr, event->state, record, false});
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
	std::lock_guard<std::mutex> lock(device_lock);

	end_pause();
	if (failed)
		return cudaErrorUnknown;
	return event->state->reached >= event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	delete event;
	return cudaSuccess;
}

cudaError_t
cudaGetLastError()
{
	std::lock_guard<std::mutex> lock(device_lock);
	cudaError_t error = failed ? cudaErrorUnknown : last_error;

	last_error = cudaSuccess;
	return error;
}
