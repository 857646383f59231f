# gpuann: an index access method for PostgreSQL that answers from the GPU.
#
# make, make install, make installcheck work as for any extension (PGXS); PG_CONFIG chooses the server.
# GNUmakefile, in front of this file, adds make check, make demo and make gpu-bundle.
#
#   make gpuann-server     the server program         make test-programs   test/*.c, see tools/README.md
#   make CUDA=1            with the CUDA engine, gpuann_cuda.so, as make does by itself where there is a GPU (NVCC=... names an nvcc)
#   make bench-programs    bench/*.c, with nvcc those of bench/kernels, into bench/build
#   make CUDA_ARCHS=90     for one GPU generation only: quicker to compile
#   make NVCCFLAGS="-O3 -lineinfo"  for a profiler
#   make TUNING=1          a CUDA engine that takes numbers from the environment, see bench/README.md; make clean before and after
#   make COPT='-Wall -Wextra -Wno-unused-parameter -Werror' as make check builds it

EXTENSION = control/gpuann
DATA = $(wildcard control/gpuann--*.sql)
SCRIPTS = $(wildcard tools/gpuann_top tools/gpuann_migrate)
PG_CONFIG ?= pg_config

# Three zones: src/ knows PostgreSQL, src/engine/ and src/server/ are plain C, cuda/ implements src/engine/engine.h.
# Rooms of src/, each of which may use those before it (tools/check-rooms).
EXTENSION_ROOMS = base page lists client link mirror scan build plan inspect launcher
CUDA_ROOMS = common quantizer filter exact graph link lists memory query jobs engine

EXTENSION_OBJS = $(patsubst %.c,%.o,$(wildcard $(EXTENSION_ROOMS:%=src/%/*.c) src/*.c))
ENGINE_OBJS = $(patsubst %.c,%.o,$(wildcard src/engine/*.c src/engine/quantizer/*.c src/engine/units/*.c src/engine/cpu/*.c))
SERVER_OBJS = $(patsubst %.c,%.o,$(wildcard src/server/*.c))
CUDA_OBJS = $(patsubst %.cu,%.o,$(wildcard $(CUDA_ROOMS:%=cuda/%/*.cu)))

# Ways of selection that are measured and tested.
SELECT_WAYS = $(filter-out %_test.cu,$(wildcard bench/kernels/select_*.cu))

ifneq ($(EXTENSION_OBJS),)
MODULE_big = gpuann
OBJS = $(EXTENSION_OBJS) $(ENGINE_OBJS)
# Symbols of ours are ours: PostgreSQL loads every module's symbols into one space. Functions of the engine that only tests call stay out.
SHLIB_LINK = -Wl,-Bsymbolic -Wl,--gc-sections -lpthread -lm
endif

PG_CPPFLAGS = -Isrc
PG_CFLAGS = -Wextra -Wno-unused-parameter -ffp-contract=off

REGRESS := $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
REGRESS_OPTS = --load-extension=vector --load-extension=gpuann
ISOLATION := $(patsubst specs/%.spec,%,$(sort $(wildcard specs/*.spec)))
ISOLATION_OPTS = --load-extension=vector --load-extension=gpuann
TAP_TESTS := $(if $(wildcard t/*.pl),1)

# No bitcode: what runs long here is not worth inlining into JIT code.
override with_llvm = no

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(wildcard $(PGXS)),)
$(error PostgreSQL's development files are not there (PG_CONFIG=$(PG_CONFIG)): run tools/setup, or name a pg_config)
endif

# Programs and libraries beside the extension itself.
ifneq ($(SERVER_OBJS),)
INSTALLED_PROGRAMS += gpuann-server
endif

# CUDA=1: with the CUDA engine, or not at all; auto: with it where nvcc is; 0: without.
NVCC ?= $(firstword $(wildcard $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
CUDA ?= $(if $(wildcard /dev/nvidiactl),auto,0)
ifneq ($(CUDA_OBJS),)
ifeq ($(CUDA)$(NVCC),1)
$(error CUDA=1, and there is no nvcc: put it on the path, or name it by NVCC=)
endif
ifneq ($(if $(filter 0,$(CUDA)),,$(NVCC)),)
INSTALLED_LIBRARIES += gpuann_cuda.so
else
CUDA_LEFT_OUT = cuda-left-out
endif
endif

EXTRA_CLEAN = build gpuann-server gpuann_cuda.so test/build bench/build results output_iso tmp_check tmp_check_iso log \
	$(SERVER_OBJS) $(CUDA_OBJS) cuda/tests/reference.o $(wildcard src/*.d src/*/*.d src/*/*/*.d cuda/*/*.d)

include $(PGXS)

all: $(INSTALLED_PROGRAMS) $(INSTALLED_LIBRARIES) $(CUDA_LEFT_OUT)

.PHONY: cuda-left-out
cuda-left-out:
	@echo 'without the CUDA engine; make CUDA=1 builds it, CUDA_ARCHS=90 for one GPU generation only and sooner'

# --- src/: with PostgreSQL's flags and include paths -----------------------------------------------------------------

src/%.o: src/%.c
	$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

# --- src/engine/, src/server/: plain C, no PostgreSQL in sight --------------------------------------------------------
#
# -ffp-contract=off: one distance, to the last bit, whatever the compiler may fuse (design, I10).

PLAIN_CFLAGS = -std=gnu11 -g -O2 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -pthread -ffp-contract=off -fno-strict-aliasing \
	-Wall -Wextra -Wno-unused-parameter -Wmissing-prototypes -Wpointer-arith -Wvla $(COPT)
PLAIN_CPPFLAGS = -D_GNU_SOURCE -D_FORTIFY_SOURCE=2 -Isrc
PLAIN_LIBS = -pthread -ldl -lm

src/engine/%.o: src/engine/%.c
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) -MMD -MP -c -o $@ $<

src/server/%.o: src/server/%.c
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) -MMD -MP -c -o $@ $<

gpuann-server: $(SERVER_OBJS) $(ENGINE_OBJS)
	$(CC) $(PLAIN_CFLAGS) -Wl,-z,relro -Wl,-z,now -Wl,--gc-sections -o $@ $^ $(PLAIN_LIBS)

# --- cuda/: one shared object, its symbols hidden but for the entry of engine.h ---------------------------------------
#
# Machine code for each architecture, and PTX of the first, which serves those between and after them too. Compressed as far as it goes, to a fifth; drivers
# of CUDA 12.4 and later read that.

CUDA_DEFAULT_ARCHS = 80 90 100 120
CUDA_ARCHS ?= $(CUDA_DEFAULT_ARCHS)
comma := ,
ifneq ($(NVCC),)
CUDA_KNOWN_ARCHS := $(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code 2>/dev/null))
CUDA_NVCC_HELP := $(shell $(NVCC) --help 2>/dev/null)
CUDA_COMPRESS := $(if $(findstring --compress-mode,$(CUDA_NVCC_HELP)),--compress-mode=size)
endif
CUDA_BUILT_ARCHS = $(if $(CUDA_KNOWN_ARCHS),$(filter $(CUDA_KNOWN_ARCHS),$(CUDA_ARCHS)),$(CUDA_ARCHS))
CUDA_GENCODE = $(CUDA_COMPRESS) $(foreach a,$(CUDA_FILE_ARCHS),-gencode arch=compute_$(a)$(comma)code=sm_$(a)) \
	$(foreach a,$(firstword $(CUDA_BUILT_ARCHS)),-gencode arch=compute_$(a)$(comma)code=compute_$(a))
# Warp groups that multiply are for sm_90 and no other: files with them have code for sm_90a instead of sm_90, with CUDA_ARCHS=90 too.
CUDA_FILE_ARCHS = $(CUDA_BUILT_ARCHS)
CUDA_OWN_ARCHS = $(if $(findstring sm_90a,$(CUDA_NVCC_HELP)),$(patsubst 90,90a,$(CUDA_BUILT_ARCHS)),$(CUDA_BUILT_ARCHS))
cuda/exact/exact_wgmma.o test/build/products_device: CUDA_FILE_ARCHS = $(CUDA_OWN_ARCHS)
NVCCFLAGS ?= -O3
NVCC_COPT = $(if $(filter -Werror,$(COPT)),-Werror all-warnings)
CUDA_FLAGS = -std=c++17 $(NVCCFLAGS) $(if $(TUNING),-DGPUANN_TUNING) $(NVCC_COPT) --fmad=false -cudart static -I. -Isrc \
	-Xcompiler -fPIC,-Wall,-Wextra,-Wno-unused-parameter,-fvisibility=hidden,-ffp-contract=off

cuda/%.o: cuda/%.cu
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -MMD -MP -MF cuda/$*.d -c -o $@ $<

# What builds lists of codes, by itself: for a test and a benchmark.
LISTS_CODE_UNITS = cuda/common/sort $(addprefix cuda/lists/lists_,code assign halves near learn seeds means)

CUDA_LINK = $(NVCC) -shared -cudart static $(CUDA_GENCODE) -o $@
CUDA_LINK_LIBS = -Xlinker --version-script=cuda/exports.map -Xlinker --gc-sections -Xlinker -z,relro -lpthread -ldl

gpuann_cuda.so: $(CUDA_OBJS) $(ENGINE_OBJS) cuda/exports.map
	$(CUDA_LINK) $(CUDA_OBJS) $(ENGINE_OBJS) $(CUDA_LINK_LIBS)

# --- Installation ---------------------------------------------------------------------------------------------------

install: install-beside
.PHONY: install-beside uninstall-beside
install-beside: all installdirs
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)'
	$(if $(INSTALLED_PROGRAMS),$(INSTALL_PROGRAM) $(INSTALLED_PROGRAMS) '$(DESTDIR)$(pkglibdir)/')
	$(if $(INSTALLED_LIBRARIES),$(INSTALL_SHLIB) $(INSTALLED_LIBRARIES) '$(DESTDIR)$(pkglibdir)/')

uninstall: uninstall-beside
uninstall-beside:
	rm -f $(addprefix '$(DESTDIR)$(pkglibdir)'/,gpuann-server gpuann_cuda.so)

include tools/test-programs.mk

# --- Benchmarks -----------------------------------------------------------------------------------------------------

BENCH_PROGRAMS = $(patsubst bench/%.c,bench/build/%,$(filter-out %_engine.c $(if $(wildcard $(includedir)/libpq-fe.h),,bench/ask.c),$(wildcard bench/*.c))) \
	$(patsubst bench/%.c,bench/build/%.so,$(wildcard bench/*_engine.c)) $(if $(NVCC),bench/build/select bench/build/song bench/build/lists bench/build/lists_code bench/build/cooc_scan)

.PHONY: bench-programs
bench-programs: $(BENCH_PROGRAMS)

# What a GPU host is sent of programs (tools/gpu-bundle), and their names; with the library for cuVS if it was made.
.PHONY: gpu-programs gpu-programs-list
gpu-programs: $(GPU_TEST_PROGRAMS) $(BENCH_PROGRAMS)
gpu-programs-list:
	@printf '%s\n' $(GPU_TEST_PROGRAMS) $(BENCH_PROGRAMS) $(wildcard bench/build/peer_rabitq.so)

bench/build/%: bench/%.c bench/program.h $(ENGINE_OBJS)
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) -o $@ $(filter %.c %.o,$^) $(PLAIN_LIBS)

# One in several files.
bench/build/engine: bench/engine_run/load.c bench/engine_run/lone.c bench/engine_run/run.h

# A client.
bench/build/ask: PLAIN_CPPFLAGS += -I$(includedir)
bench/build/ask: PLAIN_LIBS += -L$(libdir) -lpq

# One with the server in it.
bench/build/roundtrip: $(filter-out src/server/main.o,$(SERVER_OBJS))

# Engines that are measured against, or measure everything else.
bench/build/%_engine.so: bench/%_engine.c $(ENGINE_OBJS)
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) -shared -o $@ $^ $(PLAIN_LIBS)

# What bench/peers_lists needs of cuVS, whose wheels are unpacked in CUVS.
.PHONY: peer-rabitq
peer-rabitq: bench/build/peer_rabitq.so
bench/build/peer_rabitq.so: bench/peer_rabitq.cpp
	@$(MKDIR_P) $(@D)
	$(CXX) -std=c++20 -O2 -fPIC -shared -w $(addprefix -isystem $(CUVS)/,libcuvs/include libraft/include librmm/include libraft/include/rapids rapids_logger/include) \
		-isystem $(dir $(NVCC))../include -o $@ $< -L$(CUVS)/libcuvs/lib64 -lcuvs

# Benchmarks of single kernels.
bench/build/select: bench/kernels/measure_select.cu $(SELECT_WAYS)
bench/build/song: bench/kernels/measure_song.cu $(SELECT_WAYS)
bench/build/lists_code: bench/kernels/measure_lists_code.cu $(LISTS_CODE_UNITS:%=%.o) $(ENGINE_OBJS)
bench/build/cooc_scan: bench/kernels/measure_cooc.cu $(ENGINE_OBJS) $(addprefix bench/kernels/cooc_,scan.cuh lists.h rows.h)
bench/build/select bench/build/song bench/build/lists_code bench/build/cooc_scan: bench/kernels/device.cuh
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -o $@ $(filter %.cu %.o,$^) -lpthread -ldl

bench/build/lists: bench/kernels/measure_lists.cu bench/kernels/device.cuh $(CUDA_OBJS) $(ENGINE_OBJS)
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -o $@ $(filter %.cu %.o,$^) -lpthread -ldl

-include $(patsubst %.o,%.d,$(EXTENSION_OBJS) $(ENGINE_OBJS) $(SERVER_OBJS) $(CUDA_OBJS))
