/* SPDX-License-Identifier: Apache-2.0
 *
 * What the processor offers: refuses a program that needs more, and picks one of several that are for levels of x86-64.
 * Compiled for the architecture's baseline and into every model library; knows nothing of what a program computes. */
#include "relaybuild/checks.h"
#include "relaybuild/program.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

typedef enum { RB_EAX, RB_EBX, RB_ECX, RB_EDX } RbRegister;

/* The level of x86-64 that brings a feature, 0 where none does; where CPUID reports it, and which register state the
 * operating system must save for it (bits of XCR0). */
typedef struct RbCpuFeature {
  const char *name;
  int32_t level;
  uint32_t leaf, subleaf;
  RbRegister reg;
  uint32_t bit;
  uint32_t state;
} RbCpuFeature;

enum { RB_STATE_NONE = 0, RB_STATE_AVX = 0x6, RB_STATE_AVX512 = 0xe6, RB_STATE_AMX = 0x60000 };

static const RbCpuFeature rb_cpu_features[] = {
    {"sse3", 2, 1, 0, RB_ECX, 0, RB_STATE_NONE},
    {"pclmul", 0, 1, 0, RB_ECX, 1, RB_STATE_NONE},
    {"ssse3", 2, 1, 0, RB_ECX, 9, RB_STATE_NONE},
    {"fma", 3, 1, 0, RB_ECX, 12, RB_STATE_AVX},
    {"cx16", 2, 1, 0, RB_ECX, 13, RB_STATE_NONE},
    {"sse4.1", 2, 1, 0, RB_ECX, 19, RB_STATE_NONE},
    {"sse4.2", 2, 1, 0, RB_ECX, 20, RB_STATE_NONE},
    {"movbe", 3, 1, 0, RB_ECX, 22, RB_STATE_NONE},
    {"popcnt", 2, 1, 0, RB_ECX, 23, RB_STATE_NONE},
    {"aes", 0, 1, 0, RB_ECX, 25, RB_STATE_NONE},
    {"avx", 3, 1, 0, RB_ECX, 28, RB_STATE_AVX},
    {"f16c", 3, 1, 0, RB_ECX, 29, RB_STATE_AVX},
    {"sse", 1, 1, 0, RB_EDX, 25, RB_STATE_NONE},
    {"sse2", 1, 1, 0, RB_EDX, 26, RB_STATE_NONE},
    {"bmi", 3, 7, 0, RB_EBX, 3, RB_STATE_NONE},
    {"avx2", 3, 7, 0, RB_EBX, 5, RB_STATE_AVX},
    {"bmi2", 3, 7, 0, RB_EBX, 8, RB_STATE_NONE},
    {"avx512f", 4, 7, 0, RB_EBX, 16, RB_STATE_AVX512},
    {"avx512dq", 4, 7, 0, RB_EBX, 17, RB_STATE_AVX512},
    {"avx512ifma", 0, 7, 0, RB_EBX, 21, RB_STATE_AVX512},
    {"avx512cd", 4, 7, 0, RB_EBX, 28, RB_STATE_AVX512},
    {"avx512bw", 4, 7, 0, RB_EBX, 30, RB_STATE_AVX512},
    {"avx512vl", 4, 7, 0, RB_EBX, 31, RB_STATE_AVX512},
    {"avx512vbmi", 0, 7, 0, RB_ECX, 1, RB_STATE_AVX512},
    {"avx512vbmi2", 0, 7, 0, RB_ECX, 6, RB_STATE_AVX512},
    {"gfni", 0, 7, 0, RB_ECX, 8, RB_STATE_NONE},
    {"vaes", 0, 7, 0, RB_ECX, 9, RB_STATE_AVX},
    {"vpclmulqdq", 0, 7, 0, RB_ECX, 10, RB_STATE_AVX},
    {"avx512vnni", 0, 7, 0, RB_ECX, 11, RB_STATE_AVX512},
    {"avx512bitalg", 0, 7, 0, RB_ECX, 12, RB_STATE_AVX512},
    {"avx512vpopcntdq", 0, 7, 0, RB_ECX, 14, RB_STATE_AVX512},
    {"avx512vp2intersect", 0, 7, 0, RB_EDX, 8, RB_STATE_AVX512},
    {"amx-bf16", 0, 7, 0, RB_EDX, 22, RB_STATE_AMX},
    {"avx512fp16", 0, 7, 0, RB_EDX, 23, RB_STATE_AVX512},
    {"amx-tile", 0, 7, 0, RB_EDX, 24, RB_STATE_AMX},
    {"amx-int8", 0, 7, 0, RB_EDX, 25, RB_STATE_AMX},
    {"avxvnni", 0, 7, 1, RB_EAX, 4, RB_STATE_AVX},
    {"avx512bf16", 0, 7, 1, RB_EAX, 5, RB_STATE_AVX512},
    {"avxifma", 0, 7, 1, RB_EAX, 23, RB_STATE_AVX},
    {"avxvnniint8", 0, 7, 1, RB_EDX, 4, RB_STATE_AVX},
    {"lahf_lm", 2, 0x80000001u, 0, RB_ECX, 0, RB_STATE_NONE},
    {"lzcnt", 3, 0x80000001u, 0, RB_ECX, 5, RB_STATE_NONE},
};

static uint32_t rb_cpuid(uint32_t leaf, uint32_t subleaf, RbRegister reg) {
  unsigned int registers[4] = {0, 0, 0, 0};
  if (!__get_cpuid_count(leaf, subleaf, &registers[RB_EAX], &registers[RB_EBX], &registers[RB_ECX],
                         &registers[RB_EDX])) {
    return 0;
  }
  return registers[reg];
}

/* XCR0: the register state that the operating system saves on a context switch. */
static uint32_t rb_saved_state(void) {
  const uint32_t osxsave = UINT32_C(1) << 27;
  if (!(rb_cpuid(1, 0, RB_ECX) & osxsave)) {
    return 0;
  }
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static bool rb_reports(const RbCpuFeature *feature) {
  return rb_cpuid(feature->leaf, feature->subleaf, feature->reg) >> feature->bit & 1u;
}

static bool rb_offers(const RbCpuFeature *feature) {
  return rb_reports(feature) && (rb_saved_state() & feature->state) == feature->state;
}

static const RbCpuFeature *rb_feature(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof rb_cpu_features / sizeof rb_cpu_features[0]; ++i) {
    if (strlen(rb_cpu_features[i].name) == length && memcmp(rb_cpu_features[i].name, name, length) == 0) {
      return &rb_cpu_features[i];
    }
  }
  return NULL;
}

static bool rb_cpu_has(const char *name, size_t length) {
  const RbCpuFeature *feature = rb_feature(name, length);
  return feature && rb_offers(feature);
}

/* Whether it is only the operating system that stands in the way of a feature. */
static bool rb_is_switched_off(const char *name, size_t length) {
  const RbCpuFeature *feature = rb_feature(name, length);
  return feature && rb_reports(feature) && !rb_offers(feature);
}

/* The highest level all of whose features, and those of the levels below, are offered. */
static int32_t rb_find_level(void) {
  int32_t level = RB_MAX_LEVEL;
  for (size_t i = 0; i < sizeof rb_cpu_features / sizeof rb_cpu_features[0]; ++i) {
    const RbCpuFeature *feature = &rb_cpu_features[i];
    if (feature->level && feature->level <= level && !rb_offers(feature)) {
      level = feature->level - 1;
    }
  }
  return level;
}

#else

static bool rb_cpu_has(const char *name, size_t length) {
  (void)name;
  (void)length;
  return false;
}

static bool rb_is_switched_off(const char *name, size_t length) {
  (void)name;
  (void)length;
  return false;
}

static int32_t rb_find_level(void) {
  return 0;
}

#endif

static const char *const rb_level_names[RB_MAX_LEVEL + 1] = {"unknown", "x86-64", "x86-64-v2", "x86-64-v3",
                                                             "x86-64-v4"};

/* The processor's level, found once: CPUID is slow on a virtual machine. */
static int32_t rb_cpu_level(void) {
  static _Atomic int32_t known = -1;
  int32_t level = atomic_load_explicit(&known, memory_order_relaxed);
  if (level < 0) {
    level = rb_find_level();
    atomic_store_explicit(&known, level, memory_order_relaxed);
  }
  return level;
}

/* The number in "v2" or "x86-64-v2"; -1 for what is no level. */
static int32_t rb_level_number(const char *text) {
  for (int32_t level = 1; level <= RB_MAX_LEVEL; ++level) {
    const char *name = rb_level_names[level], *tail = strrchr(name, 'v');
    if (strcmp(text, name) == 0 || strcmp(text, tail ? tail : "v1") == 0) {
      return level;
    }
  }
  return -1;
}

/* What RELAYBUILD_CPU_LEVEL allows at most; -1 where it is no level. */
static int32_t rb_wanted_level(void) {
  const char *text = getenv("RELAYBUILD_CPU_LEVEL");
  return text && *text ? rb_level_number(text) : RB_MAX_LEVEL;
}

const RbProgram *rb_level_program(const RbProgram *program) {
  const int32_t wanted = rb_wanted_level(), has = rb_cpu_level();
  const int32_t most = wanted >= 0 && wanted < has ? wanted : has;
  for (int32_t i = program->num_levels - 1; i > 0; --i) {
    if (program->levels[i]->level <= most) {
      return program->levels[i];
    }
  }
  return program->num_levels ? program->levels[0] : program;
}

const RbModelInfo *rb_program_info(const RbProgram *program) {
  return &rb_level_program(program)->info;
}

static RbStatus rb_check_wanted_level(const RbProgram *program) {
  const int32_t wanted = program->level ? rb_wanted_level() : RB_MAX_LEVEL;
  if (wanted < 0) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "RELAYBUILD_CPU_LEVEL is '%s', expected v1, v2, v3 or v4",
                   getenv("RELAYBUILD_CPU_LEVEL"));
  }
  if (wanted < program->level) {
    return rb_fail(RB_ERROR_UNSUPPORTED_CPU,
                   "RELAYBUILD_CPU_LEVEL allows %s at most, but the least that model '%s' was compiled for is %s: "
                   "raise or unset it, or compile the model with a lower level among those of its --target",
                   rb_level_names[wanted], program->name, program->target);
  }
  return RB_OK;
}

/* The name of the first feature that a program needs and the processor does not offer, its length, and how many more
 * there are; NULL where it has all. */
static const char *rb_first_lacking(const RbProgram *program, size_t *first_length, int32_t *more) {
  const char *first = NULL;
  *more = 0;
  for (const char *at = program->cpu_features; at && *at;) {
    const size_t length = strcspn(at, " ");
    if (length && !rb_cpu_has(at, length)) {
      *more += first != NULL;
      *first_length = first ? *first_length : length;
      first = first ? first : at;
    }
    at += length + (at[length] == ' ');
  }
  return first;
}

RbStatus rb_check_cpu(const RbProgram *program) {
  const RbStatus status = rb_check_wanted_level(program);
  size_t length = 0;
  int32_t more = 0;
  const char *lacking = status ? NULL : rb_first_lacking(program, &length, &more);
  if (!lacking) {
    return status;
  }
  const int32_t has = rb_cpu_level();
  char others[32] = "";
  if (more) {
    snprintf(others, sizeof others, " and %" PRId32 " more", more);
  }
  if (!has) {
    return rb_fail(
        RB_ERROR_UNSUPPORTED_CPU,
        "model '%s' was compiled for target '%s', which needs the processor feature '%.*s'%s; this processor "
        "does not offer it: compile the model with a lower --target",
        program->name, program->target, (int)length, lacking, others);
  }
  return rb_fail(RB_ERROR_UNSUPPORTED_CPU,
                 "model '%s' was compiled for target '%s', which needs the processor feature '%.*s'%s; %s %s: compile "
                 "the model with --target %s%s",
                 program->name, program->target, (int)length, lacking, others,
                 rb_is_switched_off(lacking, length) ? "the operating system does not enable it, which leaves"
                                                     : "this processor offers no more than",
                 rb_level_names[has], rb_level_names[has],
                 has > 1 ? ", or with x86-64-multi for processors of several levels" : "");
}
