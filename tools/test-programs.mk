# test-programs.mk
#		The test programs in C, from test/*.c: part of the makefile, apart because it is only for developers.
#
#   conformance       test/conformance*.c and the engine
#   conformance-san   the same, with AddressSanitizer and UndefinedBehaviorSanitizer
#   NAME_test         test/NAME_test*.c, promises.c and the engine, protocol_test also the server without its main.c; each also as NAME_test-san
#                     and, with ThreadSanitizer, NAME_test-tsan
#   NAME_engine.so    test/NAME_engine.c: an engine for tests, loaded at run time; fault_engine.so has the CPU engine in it
#   NAME_preload.so   test/NAME_preload.c: for LD_PRELOAD
#   sanitized         gpuann-server with AddressSanitizer and UndefinedBehaviorSanitizer, and the fault engine with them
#   select_test       bench/kernels/select_test.cu and the selection unit on this processor, its events counted (no sanitizer: see below)
#   song_test         bench/kernels/song_test.cu likewise: SONG's structures and its search; song_device for a GPU
#   cuda_emulated-san.so  that with AddressSanitizer, for conformance-san --engine (by name only)
#   memory_test       cuda/tests/memory_test.cu and the whole engine on this processor: what it says it uses is what the driver counts; memory_device
#   walks_test        cuda/tests/walks_test.cu and the whole engine on this processor: its walks beside a model's; walks_device for a GPU
#   lists_search_test  cuda/tests/lists_search_test.cu and the whole engine on this processor: searches of lists beside a model's; lists_search_device
#   cooc_scan_test    bench/kernels/cooc_scan_test.cu likewise: sums over co-occurrence words and plain codes; cooc_scan_device for a GPU
#   lists_code_test   cuda/tests/lists_code_test.cu likewise: rows on their way into lists beside src/engine/quantizer; lists_code_device for a GPU
#   lists_jobs_test   cuda/tests/lists_jobs_test.cu and the whole engine on this processor: jobs of lists, seen from within; lists_jobs_device
#   owner_test        cuda/tests/owner_test.cu and the whole engine on this processor: what its owner's thread waits for, and how long
#   products_test     cuda/tests/products_test.cu: products of tiles beside the bound of their error, and the boxes of rows that are copied
#   products_device   the same for a GPU, where tensor cores make the products
#   select_device     the same as select_test for a GPU (make test/build/select_device; not among test-programs, for it takes nvcc)
#   cuda-warnings     every file that nvcc compiles, by its front end for all default architectures
#   cuda_emulated.so  cuda/ on this processor (cuda/emulate): the CUDA engine's own code on machines without a GPU, with reference mode
#   gpuann_cuda_test.so  the CUDA engine with reference mode (cuda/tests/reference.cu), for conformance on a GPU
#
# Every program prints TAP ("ok 1 - the promise tested", "# skip why" after those skipped) and exits non-zero on failure.

TEST_BUILD = test/build
TEST_CPPFLAGS = -Itest -DPROTOCOL_STEPS
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

TEST_ENGINE = $(ENGINE_OBJS)
# The server as a part of a test program notices the steps of the protocol (src/server/steps.h).
TEST_SERVER_SOURCES = $(filter-out src/server/main.c,$(wildcard src/server/*.c))
TEST_SERVER = $(patsubst src/server/%.c,$(TEST_BUILD)/server/%.o,$(TEST_SERVER_SOURCES))
# $(1): a test program, $(2): what it has if it has the server.
WITH_SERVER = $(if $(filter protocol_test,$(1)),$(2))
TEST_SOURCES = $(wildcard test/$(1)*.c) test/promises.c $(if $(filter codes_test,$(1)),test/decode.c) \
	$(if $(filter filter_test,$(1)),test/random_columns.c)
SAN = $(patsubst %.o,$(TEST_BUILD)/san/%.o,$(1))
TSAN = $(patsubst %.o,$(TEST_BUILD)/tsan/%.o,$(1))
TEST_OBJECT = $(patsubst test/%.c,$(TEST_BUILD)/%.o,$(1))

CONFORMANCE_SOURCES = $(wildcard test/conformance*.c) test/decode.c test/random_columns.c
TEST_NAMES = $(patsubst test/%.c,%,$(wildcard test/*_test.c))

TEST_ENGINES = $(patsubst test/%.c,$(TEST_BUILD)/%.so,$(wildcard test/*_engine.c test/*_preload.c test/*_module.c))
EMULATED_SOURCES = $(CUDA_OBJS:.o=.cu) $(wildcard cuda/emulate/*.cpp)
EMULATED_OBJECTS = $(EMULATED_SOURCES:%=$(TEST_BUILD)/emulated/%.o)
# Only engines for tests have the graph search's reference mode.
REFERENCE_MODE = cuda/tests/reference.cu
ifneq ($(CUDA_OBJS),)
TEST_ENGINES += $(TEST_BUILD)/cuda_emulated.so
endif
ifneq ($(wildcard cuda/tests/*.cu),)
TEST_ENGINES += $(TEST_BUILD)/select_test $(TEST_BUILD)/select_test-san $(TEST_BUILD)/song_test $(TEST_BUILD)/song_test-san $(TEST_BUILD)/memory_test \
	$(TEST_BUILD)/walks_test $(TEST_BUILD)/products_test $(TEST_BUILD)/lists_search_test $(TEST_BUILD)/lists_code_test \
	$(TEST_BUILD)/lists_jobs_test $(TEST_BUILD)/owner_test $(TEST_BUILD)/cooc_scan_test
endif
TEST_PROGRAMS = $(TEST_ENGINES) $(addprefix $(TEST_BUILD)/,$(if $(CONFORMANCE_SOURCES),conformance conformance-san) \
	$(foreach t,$(TEST_NAMES),$(t) $(t)-san $(t)-tsan))

.PHONY: test-programs test-engines sanitized
test-programs: $(TEST_PROGRAMS)

# What t/ needs of them, but for the emulated CUDA engine.
test-engines: $(filter-out %/cuda_emulated.so,$(filter %.so,$(TEST_ENGINES)))

# What a GPU host is sent: no sanitizers, nothing emulated; tests of parts of the CUDA engine for its device.
DEVICE_TESTS = select song products walks memory lists_search lists_code lists_jobs cooc_scan
GPU_TEST_PROGRAMS = $(filter-out %/cuda_emulated.so,$(filter %.so,$(TEST_ENGINES))) $(addprefix $(TEST_BUILD)/,$(if $(CONFORMANCE_SOURCES),conformance) \
	$(TEST_NAMES) $(if $(NVCC),$(DEVICE_TESTS:%=%_device) gpuann_cuda_test.so))

# For a run of t/, sql/ and specs/ with a server under sanitizers: in a directory of its own, each file by its usual name.
sanitized: $(TEST_BUILD)/sanitized/gpuann-server $(TEST_BUILD)/sanitized/fault_engine.so

$(TEST_BUILD)/%.o: test/%.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) $(TEST_CPPFLAGS) -MMD -MP -c -o $@ $<

$(TEST_BUILD)/server/%.o: src/server/%.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) $(TEST_CPPFLAGS) -MMD -MP -c -o $@ $<

$(TEST_BUILD)/san/%.o: %.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(SANITIZE) $(filter-out -D_FORTIFY_SOURCE=2,$(PLAIN_CPPFLAGS)) $(TEST_CPPFLAGS) \
		-MMD -MP -c -o $@ $<

$(TEST_BUILD)/tsan/%.o: %.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) -fsanitize=thread $(filter-out -D_FORTIFY_SOURCE=2,$(PLAIN_CPPFLAGS)) $(TEST_CPPFLAGS) -MMD -MP -c -o $@ $<

# Unlike the server in a test program this one does not notice the steps of the protocol.
$(TEST_BUILD)/sanitized/%.o: src/server/%.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(SANITIZE) $(filter-out -D_FORTIFY_SOURCE=2,$(PLAIN_CPPFLAGS)) -MMD -MP -c -o $@ $<

$(TEST_BUILD)/sanitized/gpuann-server: $(patsubst src/server/%,$(TEST_BUILD)/sanitized/%,$(SERVER_OBJS)) $(call SAN,$(ENGINE_OBJS))
	$(CC) $(PLAIN_CFLAGS) $(SANITIZE) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/sanitized/fault_engine.so: test/fault_engine.c $(call SAN,$(ENGINE_OBJS))
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) -fvisibility=default $(SANITIZE) $(filter-out -D_FORTIFY_SOURCE=2,$(PLAIN_CPPFLAGS)) $(TEST_CPPFLAGS) -MMD -MP \
		-shared -o $@ $(filter %.c %.o,$^) $(PLAIN_LIBS)

$(TEST_BUILD)/conformance: $(call TEST_OBJECT,$(CONFORMANCE_SOURCES)) $(TEST_ENGINE)
	$(CC) $(PLAIN_CFLAGS) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/conformance-san: $(call SAN,$(CONFORMANCE_SOURCES:.c=.o) $(TEST_ENGINE))
	$(CC) $(PLAIN_CFLAGS) $(SANITIZE) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/%_engine.so: test/%_engine.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) -fvisibility=default $(PLAIN_CPPFLAGS) $(TEST_CPPFLAGS) -MMD -MP -shared -o $@ \
		$(filter %.c %.o,$^) $(PLAIN_LIBS)

$(TEST_BUILD)/fault_engine.so: $(TEST_ENGINE)

$(TEST_BUILD)/%_preload.so: test/%_preload.c
	@$(MKDIR_P) $(@D)
	$(CC) $(PLAIN_CFLAGS) $(PLAIN_CPPFLAGS) -MMD -MP -shared -o $@ $< -ldl

# Modules of PostgreSQL.
$(TEST_BUILD)/%_module.so: test/%_module.c
	@$(MKDIR_P) $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -shared -o $@ $<

EMULATED_FLAGS = -std=c++17 -g -O2 -fno-ipa-icf -fPIC -fvisibility=hidden -pthread -ffp-contract=off -fno-strict-aliasing -Wall -Wextra \
	-Wno-unused-parameter -Wno-unknown-pragmas \
	$(filter -Werror,$(COPT)) -DEMULATED -Icuda/emulate -I. -Isrc -D_GNU_SOURCE

$(TEST_BUILD)/emulated/%.o: %
	@$(MKDIR_P) $(@D)
	$(CXX) -x c++ $(EMULATED_FLAGS) -MMD -MP -c -o $@ $<

$(TEST_BUILD)/cuda_emulated.so: $(REFERENCE_MODE:%=$(TEST_BUILD)/emulated/%.o) $(EMULATED_OBJECTS) $(ENGINE_OBJS) cuda/exports.map
	$(CXX) -shared -o $@ $(filter %.o,$^) -Wl,--version-script=cuda/exports.map $(PLAIN_LIBS)

$(TEST_BUILD)/memory_test: $(TEST_BUILD)/emulated/cuda/tests/memory_test.cu.o $(EMULATED_OBJECTS) $(ENGINE_OBJS)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/owner_test: $(TEST_BUILD)/emulated/cuda/tests/owner_test.cu.o $(EMULATED_OBJECTS) $(ENGINE_OBJS)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/walks_test: $(TEST_BUILD)/emulated/cuda/tests/walks_test.cu.o $(EMULATED_OBJECTS) $(ENGINE_OBJS) $(TEST_BUILD)/quantizer_test_int8.o
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/lists_%_test: $(TEST_BUILD)/emulated/cuda/tests/lists_%_test.cu.o $(EMULATED_OBJECTS) $(ENGINE_OBJS)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

PRODUCTS_SOURCES = cuda/tests/products_test.cu cuda/emulate/emulate.cpp cuda/emulate/streams.cpp
$(TEST_BUILD)/products_test: $(PRODUCTS_SOURCES:%=$(TEST_BUILD)/emulated/%.o)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

# The selection unit alone: with its events counted, and with AddressSanitizer, whose own stacks the coroutines do without.
SELECT_SOURCES = $(SELECT_WAYS) bench/kernels/select_test.cu cuda/emulate/emulate.cpp cuda/emulate/streams.cpp
SELECT_OBJECTS = $(SELECT_SOURCES:%=$(TEST_BUILD)/$(1)/%.o)
SELECT_SAN = $(SANITIZE) -DGPUANN_SANITIZED --param asan-stack=0

$(TEST_BUILD)/counting/%.o: %
	@$(MKDIR_P) $(@D)
	$(CXX) -x c++ $(EMULATED_FLAGS) -DGPUANN_COUNTING -MMD -MP -c -o $@ $<

$(TEST_BUILD)/select_test: $(call SELECT_OBJECTS,counting)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/emulated-san/%.o: %
	@$(MKDIR_P) $(@D)
	$(CXX) -x c++ $(EMULATED_FLAGS) $(SELECT_SAN) -MMD -MP -c -o $@ $<

# All of the engine likewise, for conformance-san --engine: not among test-programs, because it takes long.
$(TEST_BUILD)/cuda_emulated-san.so: $(patsubst %,$(TEST_BUILD)/emulated-san/%.o,$(REFERENCE_MODE) $(EMULATED_SOURCES)) \
		$(call SAN,$(TEST_ENGINE)) cuda/exports.map
	$(CXX) $(SELECT_SAN) -shared -o $@ $(filter %.o,$^) -Wl,--version-script=cuda/exports.map $(PLAIN_LIBS)

$(TEST_BUILD)/select_test-san: $(call SELECT_OBJECTS,emulated-san)
	$(CXX) $(SELECT_SAN) -o $@ $^ $(PLAIN_LIBS)

SONG_SOURCES = bench/kernels/song_test.cu cuda/emulate/emulate.cpp cuda/emulate/streams.cpp
SONG_OBJECTS = $(SONG_SOURCES:%=$(TEST_BUILD)/$(1)/%.o)

$(TEST_BUILD)/song_test: $(call SONG_OBJECTS,emulated)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

$(TEST_BUILD)/song_test-san: $(call SONG_OBJECTS,emulated-san)
	$(CXX) $(SELECT_SAN) -o $@ $^ $(PLAIN_LIBS)

COOC_SCAN_SOURCES = bench/kernels/cooc_scan_test.cu cuda/emulate/emulate.cpp cuda/emulate/streams.cpp

$(TEST_BUILD)/cooc_scan_test: $(COOC_SCAN_SOURCES:%=$(TEST_BUILD)/emulated/%.o) $(ENGINE_OBJS)
	$(CXX) -o $@ $^ $(PLAIN_LIBS)

ifneq ($(NVCC),)
$(TEST_BUILD)/select_device: $(filter-out cuda/emulate/%,$(SELECT_SOURCES))
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) -DGPUANN_COUNTING $(CUDA_GENCODE) -o $@ $^

$(TEST_BUILD)/song_device: bench/kernels/song_test.cu
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -o $@ $<

$(TEST_BUILD)/cooc_scan_device: bench/kernels/cooc_scan_test.cu bench/kernels/cooc_scan.cuh bench/kernels/cooc_lists.h $(ENGINE_OBJS)
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -o $@ $(filter %.cu %.o,$^) -lpthread -ldl

$(TEST_BUILD)/products_device: cuda/tests/products_test.cu $(wildcard cuda/common/*.h cuda/common/*.cuh cuda/exact/*.h cuda/exact/*.cuh)
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -o $@ $<

# The shipped engine with reference mode.
$(TEST_BUILD)/gpuann_cuda_test.so: $(REFERENCE_MODE:.cu=.o) $(CUDA_OBJS) $(ENGINE_OBJS) cuda/exports.map
	@$(MKDIR_P) $(@D)
	$(CUDA_LINK) $(filter %.o,$^) $(CUDA_LINK_LIBS)

# Those with the whole engine in them, because they look into it.
$(TEST_BUILD)/walks_device: $(TEST_BUILD)/quantizer_test_int8.o
$(TEST_BUILD)/%_device: cuda/tests/%_test.cu $(CUDA_OBJS) $(ENGINE_OBJS)
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) $(CUDA_GENCODE) -o $@ $^ -lpthread -ldl

# Whatever nvcc compiles, through its front end for each default architecture, whichever CUDA_ARCHS are built: all warnings but ptxas's. Device code goes
# no further than LTO has it, unoptimised: optimising is nearly all of nvcc's time.
# owner_test.cu asks the emulator, and is never compiled by nvcc.
CUDA_FRONT_SOURCES = $(CUDA_OBJS:.o=.cu) $(filter-out cuda/tests/owner_test.cu,$(wildcard cuda/tests/*.cu bench/kernels/*.cu))
CUDA_FRONT_ARCHS = $(if $(CUDA_KNOWN_ARCHS),$(filter $(CUDA_KNOWN_ARCHS),$(CUDA_DEFAULT_ARCHS)),$(CUDA_DEFAULT_ARCHS))

.PHONY: cuda-warnings
cuda-warnings: $(CUDA_FRONT_SOURCES:%=$(TEST_BUILD)/warnings/%.o)

$(addprefix $(TEST_BUILD)/warnings/cuda/,exact/exact_wgmma.cu.o tests/products_test.cu.o): CUDA_90 = $(if $(findstring sm_90a,$(CUDA_NVCC_HELP)),90a,90)
$(TEST_BUILD)/warnings/%.o: NVCCFLAGS = -O0
$(TEST_BUILD)/warnings/%.o: %
	@$(MKDIR_P) $(@D)
	$(NVCC) $(CUDA_FLAGS) -rdc=true $(foreach a,$(patsubst 90,$(or $(CUDA_90),90),$(CUDA_FRONT_ARCHS)),-gencode arch=compute_$(a)$(comma)code=lto_$(a)) \
		-MMD -MP -MF $(@:.o=.d) -c -o $@ $<
endif

# $(1): the program's name.
define test_program
$(TEST_BUILD)/$(1): $(call TEST_OBJECT,$(call TEST_SOURCES,$(1))) $(call WITH_SERVER,$(1),$(TEST_SERVER)) $(TEST_ENGINE)
	$$(CC) $$(PLAIN_CFLAGS) -o $$@ $$^ $$(PLAIN_LIBS)

$(TEST_BUILD)/$(1)-san: $(call SAN,$(patsubst %.c,%.o,$(call TEST_SOURCES,$(1)) $(call WITH_SERVER,$(1),$(TEST_SERVER_SOURCES))) $(TEST_ENGINE))
	$$(CC) $$(PLAIN_CFLAGS) $$(SANITIZE) -o $$@ $$^ $$(PLAIN_LIBS)

$(TEST_BUILD)/$(1)-tsan: $(call TSAN,$(patsubst %.c,%.o,$(call TEST_SOURCES,$(1)) $(call WITH_SERVER,$(1),$(TEST_SERVER_SOURCES))) $(TEST_ENGINE))
	$$(CC) $$(PLAIN_CFLAGS) -fsanitize=thread -o $$@ $$^ $$(PLAIN_LIBS)
endef
$(foreach t,$(TEST_NAMES),$(eval $(call test_program,$(t))))

-include $(shell find $(TEST_BUILD) -name '*.d' 2>/dev/null)
